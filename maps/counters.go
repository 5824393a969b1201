package maps

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Counters are packets and frame bytes since the rule was made. They grow over
// reloads and restarts.
type Counters struct {
	PassedPackets, PassedBytes   uint64
	RefusedPackets, RefusedBytes uint64
	WatchedPackets, WatchedBytes uint64 // would have been refused
}

// ReasonCount is what one verdict's reason has seen.
type ReasonCount struct {
	Verdict string // pass or drop
	Reason  string
	Packets uint64
	Bytes   uint64
}

// TableStats tells how the bucket table fares. While EvictedLive stands still
// no source was admitted more than burst + rate·T.
type TableStats struct {
	Slots       uint64
	Live        uint64 // slots whose bucket is not full
	EvictedLive uint64 // live buckets that lost their slot to a newcomer
	Overflowed  uint64 // packets charged to an overflow bucket
	Contended   uint64 // packets that lost a race for a slot too often
	UndoFailed  uint64 // charges left standing: too strict
	Recharged   uint64 // charges that met a slot that was just lost
}

// RuleCounters returns the counters of each rule in force, by rule name.
func (g *Gate) RuleCounters() (map[string]Counters, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]Counters, len(g.counters))
	for name, index := range g.counters {
		var cpus []bpfRuleCounter
		if err := g.objects.RuleCounters.Lookup(index, &cpus); err != nil {
			return nil, fmt.Errorf("read the counters of rule %s: %w", name, err)
		}
		var c Counters
		for _, cpu := range cpus {
			c.PassedPackets += cpu.Passed.Packets
			c.PassedBytes += cpu.Passed.Bytes
			c.RefusedPackets += cpu.Refused.Packets
			c.RefusedBytes += cpu.Refused.Bytes
			c.WatchedPackets += cpu.Watched.Packets
			c.WatchedBytes += cpu.Watched.Bytes
		}
		all[name] = c
	}
	return all, nil
}

// Reasons returns every reason's counter, in the order of bpf/types.h.
func (g *Gate) Reasons() ([]ReasonCount, error) {
	cpus, err := g.readCPUs()
	if err != nil {
		return nil, err
	}
	all := make([]ReasonCount, bpfReasonREASONS)
	for r := range all {
		all[r].Reason = reasonNames[r]
		all[r].Verdict = "pass"
		if bpfReason(r) > bpfReasonREASON_LEASH {
			all[r].Verdict = "drop"
		}
		for _, cpu := range cpus {
			all[r].Packets += cpu.Reasons[r].Packets
			all[r].Bytes += cpu.Reasons[r].Bytes
		}
	}
	return all, nil
}

// reasonNames are the reasons' names in status and metrics.
var reasonNames = [bpfReasonREASONS]string{
	bpfReasonREASON_NO_RULE:     "no_rule",
	bpfReasonREASON_WITHIN_RATE: "within_rate",
	bpfReasonREASON_VITAL:       "vital",
	bpfReasonREASON_MANAGEMENT:  "management",
	bpfReasonREASON_ALLOW:       "allow",
	bpfReasonREASON_NOT_IP:      "not_ip",
	bpfReasonREASON_OPEN:        "open",
	bpfReasonREASON_LEASH:       "leash",
	bpfReasonREASON_BLOCK:       "block",
	bpfReasonREASON_OVER_RATE:   "over_rate",
	bpfReasonREASON_TABLE_FULL:  "table_full",
	bpfReasonREASON_CONTENDED:   "contended",
	bpfReasonREASON_MALFORMED:   "malformed",
	bpfReasonREASON_TRUNCATED:   "truncated",
	bpfReasonREASON_VLAN_DEPTH:  "vlan_depth",
	bpfReasonREASON_STRIKES:     "strikes",
	bpfReasonREASON_UNKNOWN:     "unknown",
}

// Table returns the state of the bucket table. It reads all of it: 16 MiB by
// default.
func (g *Gate) Table() (TableStats, error) {
	cpus, err := g.readCPUs()
	if err != nil {
		return TableStats{}, err
	}
	g.tableHeld.RLock()
	s := TableStats{Slots: uint64(len(g.table.lines)) * ways, Live: g.table.live(g.now())}
	g.tableHeld.RUnlock()
	for _, cpu := range cpus {
		s.EvictedLive += cpu.EvictedLive
		s.Overflowed += cpu.Overflowed
		s.Contended += cpu.Contended
		s.UndoFailed += cpu.UndoFailed
		s.Recharged += cpu.Recharged
	}
	return s, nil
}

// Sweep frees the slots whose bucket is full and returns how many.
func (g *Gate) Sweep() int {
	g.tableHeld.RLock()
	defer g.tableHeld.RUnlock()
	return g.table.Sweep(g.now())
}

func (g *Gate) readCPUs() ([]bpfCpu, error) {
	var cpus []bpfCpu
	if err := g.objects.Cpus.Lookup(uint32(0), &cpus); err != nil {
		return nil, fmt.Errorf("read the counters: %w", err)
	}
	return cpus, nil
}

// clearCounter makes a counter and its overflow bucket ready for a new rule.
func (g *Gate) clearCounter(index uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count the CPUs: %w", err)
	}
	if err := g.objects.RuleCounters.Put(index, make([]bpfRuleCounter, cpus)); err != nil {
		return fmt.Errorf("clear counter %d: %w", index, err)
	}
	// full: a TAT of 0 would look like the future once the table is 4.5 years old
	full := bpfOverflow{}
	full.Slot.Tat, full.Unknown.Tat = g.now(), g.now()
	if err := g.objects.Overflows.Put(index, &full); err != nil {
		return fmt.Errorf("clear overflow bucket %d: %w", index, err)
	}
	return nil
}

// adoptCounters finds the counters of the rules that the adopted maps hold, so
// that they can be read before rules are set.
func (g *Gate) adoptCounters() error {
	ids, err := g.openIDs()
	if err != nil {
		return err
	}
	for identity, id := range ids.ids {
		if name, ok := ruleOfIdentity(identity); ok {
			g.counters[name] = id.Counter
			g.ruleIDs[id.Id] = name
		}
	}
	g.noteCounters()
	return nil
}
