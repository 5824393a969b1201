package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/spray"
	"github.com/headgate/headgate/maps"
)

// listedCases are what blocked prefixes cost packets that meet none of them, on
// a gate with one rule.
func listedCases(ctx context.Context) ([]Result, error) {
	var all []Result
	for _, sources := range []uint64{1000, 1_000_000} {
		rule := perSource(1, 20*time.Second, 1000)
		var cases []ruleCase
		for _, n := range []int{0, 1000, 1_000_000} {
			cases = append(cases, ruleCase{fmt.Sprint(n), []config.Rule{rule}, spray.Listed(n)})
		}
		name := fmt.Sprintf("listed prefixes, %d sources", sources)
		results, err := compareRules(ctx, name, packetCase{sources: sources}, liveSlots, cases)
		if err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	return all, nil
}

// block makes the gate block prefixes.
func block(g *maps.Gate, prefixes []netip.Prefix) error {
	if err := g.Reserve(len(prefixes), 0); err != nil {
		return err
	}
	return g.SetHeld(prefixes, func(netip.Prefix) maps.Held { return maps.Held{Block: true} })
}
