package maps

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"pgregory.net/rapid"
)

// RC-020: allow wins over blocks and rules, in whatever order they came.
func TestAllowWins(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("all", 1, time.Hour, 1, config.Match{}))
	steps := []func() error{
		func() error { return g.Block(netip.MustParsePrefix("198.51.100.0/24"), time.Time{}) },
		func() error { return g.Allow(netip.MustParsePrefix("198.51.100.7/32")) },
		func() error { return g.Block(netip.MustParsePrefix("198.51.100.7/32"), time.Time{}) },
	}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		g.lists(Lists{})
		for _, i := range order {
			if err := steps[i](); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			g.want("allow", from("198.51.100.7"))
		}
		g.want("block", from("198.51.100.8"))
	}
}

// RC-070: of overlapping blocks the latest end counts, and ending one leaves
// the others.
func TestBlocksOverlap(t *testing.T) {
	g := fixedGate(t)
	g.rules()
	wide, one := netip.MustParsePrefix("198.51.0.0/16"), netip.MustParsePrefix("198.51.0.7/32")
	block := func(p netip.Prefix, d time.Duration) {
		t.Helper()
		if err := g.Block(p, time.Now().Add(d)); err != nil {
			t.Fatal(err)
		}
	}
	block(wide, time.Hour)
	block(one, 5*time.Minute)
	g.advance(6 * time.Minute)
	g.want("block", from("198.51.0.7"))
	block(one, 2*time.Hour)
	if err := g.Unblock(wide); err != nil {
		t.Fatal(err)
	}
	g.want("block", from("198.51.0.7"))
	g.want("no_rule", from("198.51.0.8"))
	g.advance(119 * time.Minute)
	g.want("block", from("198.51.0.7"))
	g.advance(2 * time.Minute)
	g.want("no_rule", from("198.51.0.7"))
	block(wide, time.Minute)
	if err := g.Unblock(one); err != nil {
		t.Fatal(err)
	}
	g.want("block", from("198.51.0.7"))
}

// A block ends in the data path, to the packet, with nobody there to lift it.
func TestBlockEndsByItself(t *testing.T) {
	g := fixedGate(t)
	g.rules()
	for _, source := range []string{"203.0.113.4", "2001:db8::4"} {
		p := netip.PrefixFrom(netip.MustParseAddr(source), netip.MustParseAddr(source).BitLen())
		if err := g.Block(p, time.Now().Add(30*time.Second)); err != nil {
			t.Fatal(err)
		}
		g.advance(29 * time.Second)
		g.want("block", from(source))
		g.advance(time.Second)
		g.want("no_rule", from(source))
	}
	if left, err := g.Blocks(); err != nil || len(left) != 0 {
		t.Errorf("blocks after their end: %v, %v", left, err)
	}
}

// The tries with their inherited ends against a model that asks every prefix,
// over random lists, changes and times (RC-071, the part of lists).
func TestListsAgainstModel(t *testing.T) {
	g := fixedGate(t)
	g.rules()
	addresses := []string{"10.1.2.3", "10.1.2.4", "10.1.9.9", "10.2.0.1", "11.0.0.1", "2001:db8:1:2::3", "2001:db8:1:3::3", "2001:db9::1"}
	var pool []netip.Prefix
	for _, a := range addresses {
		addr := netip.MustParseAddr(a)
		for _, bits := range []int{0, 8, 15, 16, 24, 31, 32, 47, 48, 64, 128} {
			if bits <= addr.BitLen() {
				p, _ := addr.Prefix(bits)
				pool = append(pool, p)
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		if err := g.SetLists(Lists{}); err != nil {
			rt.Fatal(err)
		}
		g.SetNow(1)
		allow, block := map[netip.Prefix]bool{}, map[netip.Prefix]time.Duration{} // ends since start
		now := time.Duration(0)
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			p := rapid.SampledFrom(pool).Draw(rt, "prefix")
			var err error
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				allow[p], err = true, g.Allow(p)
			case 1:
				delete(allow, p)
				err = g.Disallow(p)
			case 2, 3:
				d := time.Duration(rapid.IntRange(1, 100).Draw(rt, "minutes")) * time.Minute
				block[p], err = now+d, g.Block(p, time.Now().Add(d))
			case 4:
				delete(block, p)
				err = g.Unblock(p)
			case 5:
				d := time.Duration(rapid.IntRange(1, 50).Draw(rt, "wait")) * time.Minute
				now += d
				g.advance(d)
			}
			if err != nil {
				rt.Fatal(err)
			}
		}
		for _, a := range addresses {
			want := "no_rule"
			addr := netip.MustParseAddr(a)
			for p, end := range block {
				// a block set in this run is late by what the test itself took
				if p.Contains(addr) && end > now {
					want = "block"
				}
			}
			if slices.ContainsFunc(slices.Collect(maps.Keys(allow)), func(p netip.Prefix) bool { return p.Contains(addr) }) {
				want = "allow"
			}
			p := from(a)
			p.Unmarked = true
			if got := (testGate{g.Gate, t}).judge(p.MustFrame()); got != want {
				rt.Fatalf("%s: %s, want %s; allow %v block %v now %v", a, got, want, allow, block, now)
			}
		}
	})
}

// SetLists touches what differs only and keeps an end that is the same.
func TestSetListsKeepsEnds(t *testing.T) {
	g := fixedGate(t)
	g.rules()
	p := netip.MustParsePrefix("203.0.113.9/32")
	g.lists(Lists{Block: map[netip.Prefix]time.Time{p: time.Now().Add(time.Hour)}})
	before, _ := g.Gate.lists.own.Get(p)
	g.lists(Lists{Block: map[netip.Prefix]time.Time{p: time.Now().Add(time.Hour + 500*time.Millisecond)}})
	if after, _ := g.Gate.lists.own.Get(p); after != before {
		t.Errorf("the end moved from %d to %d", before.end, after.end)
	}
	g.lists(Lists{Block: map[netip.Prefix]time.Time{p: time.Now().Add(2 * time.Hour)}})
	if after, _ := g.Gate.lists.own.Get(p); after == before {
		t.Error("an end that is an hour later was not taken")
	}
	g.lists(Lists{})
	g.want("no_rule", from("203.0.113.9"))
	if n := fmt.Sprint(g.Gate.lists.own.Size()); n != "0" {
		t.Errorf("%s prefixes are left", n)
	}
}
