// Package packets holds tables of frames with the reason that each must get. The tests
// of package maps run them on the kernel at hand, make test-kernels on others.
package packets

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

// Table is what a gate is told, and the frames that come to it then, in their
// order.
type Table struct {
	Name       string
	Rules      []config.Rule
	Management config.Management
	Allow      []netip.Prefix
	Block      []netip.Prefix
	Own        []netip.Addr // the host's own addresses
	FragsOnly  bool         // the plain program would count other bytes
	Cases      []Case
}

// Case is one frame and its reason.
type Case struct {
	Name   string
	Reason string
	Frame  []byte
	Linear int // bytes in the first buffer; 0: as many as the kernel puts there
}

// Gate is what a table runs on: a network gate whose clock is fixed, and which
// nothing else uses meanwhile.
type Gate interface {
	SetRules([]config.Rule, config.Management, map[string][]netip.Prefix) error
	SetOwnAddresses([]netip.Addr) error
	// SetPrefixes replaces the lists; the blocks have no end.
	SetPrefixes(management, allow, block []netip.Prefix) error
	Advance(time.Duration)
	Program(frags bool) *ebpf.Program
	Counts() ([]Count, error)
}

// Count is what one reason has counted.
type Count struct {
	Verdict, Reason string
	Packets, Bytes  uint64
}

// Result is what became of a table's cases, each run on both programs.
type Result struct {
	Passed int
	NotRun int      // this kernel's test runs can't form the frame
	Failed []string // a line each
}

// All returns every table.
func All() []Table {
	return []Table{Vital(), Management(), Shapes(), VLAN(), Unparsable(), Truncated(), Buffers()}
}

const (
	// rest fills every bucket of a table that ran before.
	rest = 24 * time.Hour
	// step lies between two frames: vital traffic stays within its caps, and
	// no bucket of a rule gains a packet in a whole table.
	step = 10 * time.Millisecond
)

// Run runs the table on the program for frames of several buffers, then on the
// plain one. An error says that it could not be run at all.
func (t Table) Run(g Gate) (Result, error) {
	var r Result
	for _, frags := range []bool{true, false} {
		if t.FragsOnly && !frags {
			continue
		}
		if err := t.prepare(g); err != nil {
			return r, fmt.Errorf("prepare table %s: %w", t.Name, err)
		}
		for _, c := range t.Cases {
			g.Advance(step)
			r.add(c, frags, c.run(g, frags))
		}
	}
	return r, nil
}

func (t Table) prepare(g Gate) error {
	g.Advance(rest)
	if err := g.SetRules(t.Rules, t.Management, nil); err != nil {
		return err
	}
	if err := g.SetOwnAddresses(t.Own); err != nil {
		return err
	}
	return g.SetPrefixes(t.Management.Sources, t.Allow, t.Block)
}

func (c Case) run(g Gate, frags bool) error {
	reason, err := Judge(g, c.Frame, c.Linear, frags)
	if err == nil && reason != c.Reason {
		err = fmt.Errorf("reason %s, want %s: % x", reason, c.Reason, c.Frame[:min(len(c.Frame), 80)])
	}
	return err
}

// perSource is a rule on everything: one packet an hour and source, after the
// burst.
func perSource(burst int64) config.Rule {
	return config.Rule{
		Name: "all", Gate: config.GateNetwork, Per: []config.Per{config.PerSource},
		Algorithm: config.TokenBucket, Mode: config.Enforce,
		Rate: config.Rate{Amount: 1, Interval: time.Hour, Unit: config.Count}, Burst: burst,
	}
}

// From is a UDP packet of a source to port 9000.
func From(source string) rig.Packet {
	src, dst := netip.MustParseAddr(source), netip.MustParseAddr("192.0.2.1")
	if src.Is6() {
		dst = netip.MustParseAddr("2001:db8:ffff::1")
	}
	return rig.Packet{Src: src, Dst: dst, SrcPort: 40000, DstPort: 9000, Unmarked: true}
}

func prefixes(list ...string) (ps []netip.Prefix) {
	for _, s := range list {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}
