package maps

import (
	"net/netip"
	"time"

	"github.com/headgate/headgate/config"
)

// Options say where the gate keeps its maps and how large they are.
type Options struct {
	Pins  string // folder in a bpffs, made if missing
	Slots uint32 // places in the bucket table: a power of two
}

// Gate is the network gate: its maps and its loaded program.
type Gate struct{}

// Open adopts the maps pinned under o.Pins, or makes and pins them, and loads
// the program on them. Nothing is attached.
func Open(o Options) (*Gate, error) { panic("soon") }

// Close lets go of the maps and the program; pins and attached links stay.
func (g *Gate) Close() error { panic("soon") }

// SetRules makes rules (those of the network gate) and management ports the
// ones in force, in one step: a packet sees the old set or the new one.
func (g *Gate) SetRules(rules []config.Rule, m config.Management) error { panic("soon") }

// Lists is what passes or is dropped by source prefix alone.
type Lists struct {
	Management []netip.Prefix
	Allow      []netip.Prefix
	Block      map[netip.Prefix]time.Time // its end; the zero time: never
}

// SetLists makes l the lists in force and touches only what differs.
func (g *Gate) SetLists(l Lists) error { panic("soon") }

// Block drops packets from p until end; the zero time: for ever. It replaces
// an earlier end of the same prefix.
func (g *Gate) Block(p netip.Prefix, end time.Time) error { panic("soon") }

// Unblock ends the block of exactly p. Blocks that cover p stay.
func (g *Gate) Unblock(p netip.Prefix) error { panic("soon") }

// Allow lets packets from p pass blocks and rules.
func (g *Gate) Allow(p netip.Prefix) error { panic("soon") }

// Disallow ends the allow of exactly p.
func (g *Gate) Disallow(p netip.Prefix) error { panic("soon") }

// Blocks returns the blocks that the maps hold, with their ends (zero: never):
// it survives the daemon.
func (g *Gate) Blocks() (map[netip.Prefix]time.Time, error) { panic("soon") }

// Counters are packets and frame bytes since the maps were made. They grow
// over reloads and restarts.
type Counters struct {
	PassedPackets, PassedBytes   uint64
	RefusedPackets, RefusedBytes uint64
	WatchedPackets, WatchedBytes uint64 // would have been refused
}

// RuleCounters returns the counters of each rule in force, by rule name.
func (g *Gate) RuleCounters() (map[string]Counters, error) { panic("soon") }

// ReasonCount is what one verdict's reason has seen.
type ReasonCount struct {
	Verdict string // pass or drop
	Reason  string
	Packets uint64
	Bytes   uint64
}

// Reasons returns every reason's counter, in a fixed order.
func (g *Gate) Reasons() ([]ReasonCount, error) { panic("soon") }

// TableStats tells how the bucket table fares.
type TableStats struct {
	Slots       uint64
	Live        uint64 // slots whose bucket is not full
	EvictedLive uint64 // live buckets that lost their slot to a newcomer
	Full        uint64 // packets charged to an overflow bucket
	Contended   uint64 // packets that lost a race for a slot too often
}

// Table returns the state of the bucket table.
func (g *Gate) Table() (TableStats, error) { panic("soon") }
