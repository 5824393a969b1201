package maps

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
	"pgregory.net/rapid"
)

// nest is a model of all that holds by prefix: it asks every prefix each time.
type nest struct {
	manage, allow map[netip.Prefix]bool
	block         map[netip.Prefix]time.Duration // its end since the start; 0: never
	rules         []config.Rule
	now           time.Duration
}

func newNest() *nest {
	return &nest{map[netip.Prefix]bool{}, map[netip.Prefix]bool{}, map[netip.Prefix]time.Duration{}, nil, 0}
}

// judge is the reason that the plain reading gives a packet, and the rules that
// it meets.
func (n *nest) judge(p rig.Packet) (reason string, met []string) {
	for prefix := range n.manage {
		if prefix.Contains(p.Src) && p.Protocol == 6 && p.DstPort == 22 {
			return "management", nil
		}
	}
	for prefix := range n.allow {
		if prefix.Contains(p.Src) {
			return "allow", nil
		}
	}
	for prefix, end := range n.block {
		if prefix.Contains(p.Src) && (end == 0 || end > n.now) {
			return "block", nil
		}
	}
	for _, r := range n.rules {
		if matches(r.Match, p, poolLists, 1) {
			met = append(met, r.Name)
		}
	}
	if met == nil {
		return "no_rule", nil
	}
	slices.Sort(met)
	return "within_rate", met
}

// lists are the model's as SetLists takes them.
func (n *nest) lists() Lists {
	l := Lists{Block: map[netip.Prefix]time.Time{}}
	for p := range n.manage {
		l.Management = append(l.Management, p)
	}
	for p := range n.allow {
		l.Allow = append(l.Allow, p)
	}
	for p, end := range n.block {
		l.Block[p] = n.at(end)
	}
	return l
}

// at is an end of the model as a time.
func (n *nest) at(end time.Duration) time.Time {
	if end == 0 {
		return time.Time{}
	}
	return time.Now().Add(end - n.now)
}

// drawEnd is an end from now on, or never.
func (n *nest) drawEnd(rt *rapid.T) time.Duration {
	if rapid.IntRange(0, 3).Draw(rt, "for ever?") == 0 {
		return 0
	}
	return n.now + time.Duration(rapid.IntRange(1, 90).Draw(rt, "minutes"))*time.Minute
}

// drawRules are at most four, so that any number may meet.
func drawRules(rt *rapid.T) (rules []config.Rule) {
	for i := range rapid.IntRange(0, 4).Draw(rt, "rules") {
		m := config.Match{From: drawAddresses(rt, "from")}
		if rapid.Bool().Draw(rt, "except?") {
			m.Except = drawAddresses(rt, "except")
		}
		if rapid.IntRange(0, 3).Draw(rt, "to?") == 0 {
			m.To = drawAddresses(rt, "to")
		}
		rules = append(rules, perSource(fmt.Sprintf("r%d", i), 1_000_000, time.Second, 1_000_000, m))
	}
	return rules
}

// change draws one change and makes it, in the gate and in the model.
func (n *nest) change(rt *rapid.T, g *Gate, pool []netip.Prefix) error {
	prefix := rapid.SampledFrom(pool).Draw(rt, "prefix")
	switch rapid.IntRange(0, 10).Draw(rt, "change") {
	case 0, 1:
		n.allow[prefix] = true
		return g.Allow(prefix)
	case 2:
		delete(n.allow, prefix)
		return g.Disallow(prefix)
	case 3, 4:
		n.block[prefix] = n.drawEnd(rt)
		return g.Block(prefix, n.at(n.block[prefix]))
	case 5:
		delete(n.block, prefix)
		return g.Unblock(prefix)
	case 6, 7:
		if _, fixed := g.control.fixed(); !fixed {
			return nil // no time passes
		}
		d := time.Duration(rapid.IntRange(1, 45).Draw(rt, "wait")) * time.Minute
		n.now += d
		g.SetNow(g.now() + uint64(d)*ticksPerNano)
	case 8:
		n.rules = drawRules(rt)
		return g.SetRules(n.rules, config.Management{Ports: []config.Port{{Protocol: "tcp", Number: 22}}}, poolLists)
	case 9:
		return n.hold(rt, g, rapid.SliceOfNDistinct(rapid.SampledFrom(pool), 1, 4, rapid.ID).Draw(rt, "some"))
	case 10:
		clear(n.manage)
		for _, p := range rapid.SliceOfN(rapid.SampledFrom(pool), 0, 2).Draw(rt, "management") {
			n.manage[p] = true
		}
		return g.SetLists(n.lists())
	}
	return nil
}

// hold gives some prefixes something else than they had.
func (n *nest) hold(rt *rapid.T, g *Gate, some []netip.Prefix) error {
	held := map[netip.Prefix]Held{}
	for _, p := range some {
		delete(n.allow, p)
		delete(n.block, p)
		h := Held{Allow: rapid.Bool().Draw(rt, "allow"), Block: rapid.Bool().Draw(rt, "block")}
		if h.Allow {
			n.allow[p] = true
		}
		if h.Block {
			n.block[p] = n.drawEnd(rt)
			h.End = n.at(n.block[p])
		}
		held[p] = h
	}
	return g.SetHeld(some, func(p netip.Prefix) Held { return held[p] })
}
