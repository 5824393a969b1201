package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

const (
	packetRounds = 7
	packetRuns   = 400_000
	lruEntries   = 1 << 20 // of internal/spray
	newSlots     = 1 << 20 // the default
	liveSlots    = 1 << 22 // 1 M live sources at a quarter of the table
	wideSlots    = 1 << 25 // 10 M live sources at a third of the table: 512 MiB

	// benchPort is where packets go, and in a flood nobody listens.
	benchPort = 9000
)

// packetGroup is cases on one set of rules and one size of table.
type packetGroup struct {
	slots uint32
	rules []config.Rule
	cases []packetCase
}

// packetCase is one load on every contender.
type packetCase struct {
	name    string
	sources uint64 // 0: every packet a new source
	cpus    int
}

// packetGroups are in the order of the table. Where sources are to stay live
// the rate is so slow that they do over the whole run.
var packetGroups = []packetGroup{
	{liveSlots, []config.Rule{perSource(1, 20*time.Second, 1000)}, []packetCase{
		{"1k sources", 1_000, 1},
		{"100k sources", 100_000, 1},
		{"1M sources", 1_000_000, 1},
	}},
	{wideSlots, []config.Rule{perSource(1, time.Minute, 1000)}, []packetCase{
		{"10M sources", 10_000_000, 1},
	}},
	{newSlots, []config.Rule{perSource(100, time.Second, 100)}, []packetCase{
		{"new sources", 0, 1},
		{"new sources, 2 CPUs", 0, 2},
	}},
}

// perSource is a rule for the frame that the bench sends.
func perSource(amount int64, interval time.Duration, burst int64) config.Rule {
	return config.Rule{
		Name: "bench", Gate: config.GateNetwork, Per: []config.Per{config.PerSource},
		Algorithm: config.TokenBucket, Mode: config.Enforce,
		Match: config.Match{Protocol: "udp", Ports: []config.PortRange{{First: benchPort, Last: benchPort}}},
		Rate:  config.Rate{Amount: amount, Interval: interval, Unit: config.Count}, Burst: burst,
	}
}

// packetPart measures what the whole path costs a packet, in test runs: the
// network gate with one rule, the same with its buckets in an LRU hash, and
// programs that only drop. All but the first write a source into the frame
// before; what that costs is the bare program's.
func packetPart(ctx context.Context, _ options) ([]Result, error) {
	if err := rig.Privileged(); err != nil {
		return nil, err
	}
	all, err := packetSingle(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range packetGroups {
		results, err := g.measure(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	for _, cases := range []func(context.Context) ([]Result, error){rulesCases, listedCases} {
		results, err := cases(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	return all, nil
}

// packetSingle measures the program that is attached, on one source, and how
// large it is.
func packetSingle(ctx context.Context) ([]Result, error) {
	b, err := newPacketBench(newSlots, perSource(100, time.Second, 100))
	if err != nil {
		return nil, err
	}
	defer b.close()
	all, err := b.single(ctx)
	if err != nil {
		return nil, err
	}
	verified, err := b.verified()
	return append(all, verified), err
}

func (g packetGroup) measure(ctx context.Context) ([]Result, error) {
	b, err := newPacketBench(g.slots, g.rules...)
	if err != nil {
		return nil, err
	}
	defer b.close()
	var all []Result
	for _, c := range g.cases {
		results, err := b.measure(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		all = append(all, results...)
	}
	return all, nil
}
