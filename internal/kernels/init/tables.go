package main

import (
	"net/netip"
	"time"

	"github.com/headgate/headgate/internal/kernels/serial"
	"github.com/headgate/headgate/internal/packets"
	"github.com/headgate/headgate/maps"
)

// clocked makes a maps.Gate with a fixed clock a packets.Gate.
type clocked struct {
	*maps.Gate
	now time.Duration
}

func (g *clocked) SetPrefixes(management, allow, block []netip.Prefix) error {
	return g.SetLists(maps.Lists{Management: management, Allow: allow, Block: endless(block)})
}

func endless(block []netip.Prefix) map[netip.Prefix]time.Time {
	all := map[netip.Prefix]time.Time{}
	for _, p := range block {
		all[p] = time.Time{}
	}
	return all
}

func (g *clocked) Advance(d time.Duration) {
	g.now += d
	g.SetNow(uint64(g.now) * 64) // ticks are 1/64 ns
}

func (g *clocked) Counts() (all []packets.Count, err error) {
	reasons, err := g.Reasons()
	for _, r := range reasons {
		all = append(all, packets.Count(r))
	}
	return all, err
}

func runTables(g *maps.Gate) {
	on := &clocked{Gate: g}
	for _, t := range packets.All() {
		r, err := t.Run(on)
		s := serial.Step{Kind: serial.Table, Name: t.Name, Passed: r.Passed, NotRun: r.NotRun, Failed: r.Failed}
		if err != nil {
			s.Failed = append(s.Failed, err.Error())
		}
		const enough = 20
		if len(s.Failed) > enough {
			s.Failed = append(s.Failed[:enough:enough], "and more")
		}
		say(s)
	}
}
