package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/spray"
)

// rulesCases are what rules and limits cost a packet: each case is a gate of
// its own, all of them run in turn on 1 k sources.
func rulesCases(ctx context.Context) ([]Result, error) {
	rate := config.Rate{Amount: 1, Interval: 20 * time.Second, Unit: config.Count}
	meeting := spray.Meeting(rate, 1000)
	load := packetCase{sources: 1000}
	all, err := compareRules(ctx, "rules", load, newSlots, []ruleCase{
		{name: "1", rules: []config.Rule{meeting}},
		{name: "10 000", rules: append(spray.Mixed(10_000), meeting)},
	})
	if err != nil {
		return nil, err
	}
	// all of them admit, so that none is spared the work
	var limits []ruleCase
	for n := 1; n <= 4; n++ {
		var rules []config.Rule
		for i := range n {
			r := perSource(10_000_000, time.Second, 10_000_000)
			r.Name = fmt.Sprintf("limit-%d", i)
			rules = append(rules, r)
		}
		limits = append(limits, ruleCase{name: fmt.Sprint(n), rules: rules})
	}
	more, err := compareRules(ctx, "limits on a packet", load, newSlots, limits)
	return append(all, more...), err
}

type ruleCase struct {
	name   string
	rules  []config.Rule
	listed []netip.Prefix // blocked
}

func compareRules(ctx context.Context, name string, load packetCase, slots uint32, cases []ruleCase) ([]Result, error) {
	var runners []*runner
	var frame []byte
	for _, c := range cases {
		b, err := newListedBench(slots, c.listed, c.rules...)
		if err != nil {
			return nil, err
		}
		defer b.close()
		x := &runner{name: c.name, program: b.table.Gate, programs: b.table}
		if err := load.prepare(x, b.frame); err != nil {
			return nil, err
		}
		runners, frame = append(runners, x), b.frame
	}
	if err := interleave(ctx, runners, 1, frame); err != nil {
		return nil, err
	}
	return results(name, runners), nil
}
