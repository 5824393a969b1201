package maps

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
	"pgregory.net/rapid"
)

// rings are the nest of RC-071: a block, a limit in it, a block in that, and an
// allow in that; probes in the order of the rings, the innermost last.
type rings struct {
	block, limit, inner, allow string
	probes                     [4]string
}

var nests = []rings{
	{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", [4]string{"10.2.0.1", "10.1.9.9", "10.1.2.4", "10.1.2.3"}},
	{"2001:db8::/32", "2001:db8:1::/48", "2001:db8:1:2::/64", "2001:db8:1:2::3/128",
		[4]string{"2001:db8:2::1", "2001:db8:1:9::9", "2001:db8:1:2::4", "2001:db8:1:2::3"}},
	{"::/0", "2001:db8:1:2::/63", "2001:db8:1:2:8000::/65", "2001:db8:1:2:8000::3/127",
		[4]string{"2001:db9::1", "2001:db8:1:2::1", "2001:db8:1:2:8000::4", "2001:db8:1:2:8000::3"}},
}

// orders are all orders of 0 to n-1.
func orders(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, o := range orders(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(o), i, n-1))
		}
	}
	return all
}

// RC-071: the nest is put up and taken down in every order, one by one, in both
// nests, and each probe is judged as the rings that are up say.
func TestNestInEveryOrder(t *testing.T) {
	g := fixedGate(t)
	g.rules()
	for _, f := range nests {
		p := netip.MustParsePrefix
		limit := perSource("limit", 100, time.Second, 100, config.Match{From: config.Addresses{Prefixes: []netip.Prefix{p(f.limit)}}})
		up := []func() error{
			func() error { return g.Block(p(f.block), time.Time{}) },
			func() error { return g.SetRules([]config.Rule{limit}, config.Management{}, nil) },
			func() error { return g.Block(p(f.inner), time.Time{}) },
			func() error { return g.Allow(p(f.allow)) },
		}
		down := []func() error{
			func() error { return g.Unblock(p(f.block)) },
			func() error { return g.SetRules(nil, config.Management{}, nil) },
			func() error { return g.Unblock(p(f.inner)) },
			func() error { return g.Disallow(p(f.allow)) },
		}
		all := orders(4)
		for i, order := range all {
			var on [4]bool
			for _, ring := range order {
				if err := up[ring](); err != nil {
					t.Fatal(err)
				}
				on[ring] = true
				g.checkNest(f, on)
			}
			for _, ring := range all[len(all)-1-i] {
				if err := down[ring](); err != nil {
					t.Fatal(err)
				}
				on[ring] = false
				g.checkNest(f, on)
			}
		}
	}
}

func (g testGate) checkNest(f rings, on [4]bool) {
	g.t.Helper()
	g.advance(time.Second) // the limit has room again
	for inside, source := range f.probes {
		want := first(
			inside == 3 && on[3], "allow",
			on[0] || inside >= 2 && on[2], "block",
			inside >= 1 && on[1], "within_rate")
		if got := g.judge(frameOf(source)); got != want {
			g.t.Fatalf("with %v of %+v: %s is %s, want %s", on, f, source, got, want)
		}
	}
}

// nestPool are prefixes that nest and overlap, those of the rules among them.
func nestPool() []netip.Prefix {
	pool := slices.Clone(poolPrefixes)
	for _, a := range poolSources {
		addr := netip.MustParseAddr(a)
		for _, bits := range []int{9, 15, 31, 32, 47, 63, 65, 128} {
			if bits <= addr.BitLen() {
				p, _ := addr.Prefix(bits)
				pool = append(pool, p)
			}
		}
	}
	return pool
}

// RC-071, RC-070: blocks with ends, allows, management and rules, which share
// one trie, against the plain reading, after each of many changes by all the
// ways there are to make one. Holes in blocks, blocks in holes, ends of an inner
// block before and after that of an outer one all come of it.
func TestPrefixesAgainstPlainReading(t *testing.T) {
	g := fixedGate(t)
	pool := nestPool()
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		n := newNest()
		g.SetNow(1)
		if err := g.SetLists(Lists{}); err != nil {
			rt.Fatal(err)
		}
		if err := g.SetRules(nil, config.Management{Ports: []config.Port{{Protocol: "tcp", Number: 22}}}, nil); err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 30).Draw(rt, "changes") {
			if err := n.change(rt, g.Gate, pool); err != nil {
				rt.Fatal(err)
			}
			for range 3 {
				p := drawPacket(rt)
				p.Fragment, p.Tags = nil, nil
				if rapid.Bool().Draw(rt, "ssh") {
					p.Protocol, p.DstPort = 6, 22
				}
				reason, want := n.judge(p)
				if p.Protocol == 58 {
					continue // neighbour discovery has a say of its own
				}
				got, met := g.reasonAndRules(rt, p)
				if got != reason || !slices.Equal(met, want) {
					rt.Fatalf("%v to %v: %s by %v, the plain reading says %s by %v; %+v", p.Src, p.Dst, got, met, reason, want, n)
				}
				seen[reason]++
			}
		}
	})
	for _, reason := range []string{"management", "allow", "block", "within_rate", "no_rule"} {
		if seen[reason] == 0 {
			t.Errorf("no packet of all was judged %s: this test did not see it", reason)
		}
	}
}

// reasonAndRules judges the packet and returns the rules whose counters moved.
func (g testGate) reasonAndRules(rt *rapid.T, p rig.Packet) (reason string, names []string) {
	names = g.metBy(rt, func() { reason = g.judge(p.MustFrame()) })
	return reason, names
}

// RC-071: the same over restarts. What holds goes on while the new gate opens,
// while it is given the rules and then the lists, as the daemon does, and the
// changes after that start from what was given, not from what was inherited.
func TestPrefixesOverRestarts(t *testing.T) {
	rig.RequireRoot(t)
	pins := rig.BPFFS(t)
	pool := nestPool()
	g := openPinned(t, pins, minSlots)
	n := newNest()
	check := func(when string) {
		t.Helper()
		for _, a := range poolSources {
			p := from(a)
			p.Protocol, p.Unmarked = 17, true
			if want, _ := n.judge(p); g.judge(p.MustFrame()) != want {
				t.Fatalf("%s: %s is not judged %s; %+v", when, a, want, n)
			}
		}
	}
	load := func() {
		t.Helper()
		ssh := config.Management{Ports: []config.Port{{Protocol: "tcp", Number: 22}}}
		if err := g.SetRules(n.rules, ssh, poolLists); err != nil {
			t.Fatal(err)
		}
		check("with rules")
		if err := g.SetLists(n.lists()); err != nil {
			t.Fatal(err)
		}
		check("with lists")
	}
	for restart := range 3 {
		load()
		for i := range 25 {
			change := rapid.Custom(func(rt *rapid.T) error { return n.change(rt, g.Gate, pool) })
			if err := change.Example(100*restart + i); err != nil {
				t.Fatal(err)
			}
		}
		check("changed")
		g = openPinned(t, pins, minSlots)
		check("opened again")
	}
	load()
}
