package maps

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/config"
	"pgregory.net/rapid"
)

// clean demands that an audit finds nothing.
func (g testGate) clean(when string) {
	g.t.Helper()
	a, err := g.Audit(false)
	if err != nil || a.Control || a.Rules || len(a.Prefixes) > 0 {
		g.t.Fatalf("%s: audit finds %+v, %v", when, a, err)
	}
}

// What this process writes is never taken for the work of others, in whatever
// order rules, blocks and allows come and go.
func TestAuditFindsNothingOfItsOwn(t *testing.T) {
	g := fixedGate(t)
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 2).Draw(rt, "steps") {
			switch rapid.IntRange(0, 2).Draw(rt, "step") {
			case 0:
				var rules []config.Rule
				for i := range rapid.IntRange(0, 6).Draw(rt, "rules") {
					rules = append(rules, perSource(fmt.Sprintf("r%d", i), 1000, time.Second, 1000, drawMatch(rt)))
				}
				_ = g.setRules(rules, config.Management{}, poolLists, func(string) ([]Inlet, error) { return []Inlet{{1, AnyVLAN}}, nil })
			case 1:
				prefix := rapid.SampledFrom(poolPrefixes).Draw(rt, "prefix")
				h := Held{Allow: rapid.Bool().Draw(rt, "allow"), Block: rapid.Bool().Draw(rt, "block")}
				if rapid.Bool().Draw(rt, "ends") {
					h.End = time.Now().Add(time.Duration(rapid.IntRange(1, 1000).Draw(rt, "end")) * time.Minute)
				}
				if err := g.SetHeld([]netip.Prefix{prefix}, func(netip.Prefix) Held { return h }); err != nil {
					rt.Fatal(err)
				}
			case 2:
				g.advance(time.Duration(rapid.IntRange(1, 500).Draw(rt, "later")) * time.Minute)
			}
			a, err := g.Audit(rapid.Bool().Draw(rt, "hold"))
			if err != nil || a.Control || a.Rules || len(a.Prefixes) > 0 {
				rt.Fatalf("audit finds %+v, %v", a, err)
			}
		}
	})
}

// RC-134: whatever others do to the pinned maps is found, named and put right.
func TestAuditPutsRight(t *testing.T) {
	g := fixedGate(t)
	other := netip.MustParsePrefix("192.0.2.77/32")
	to := perSource("to", 1, time.Hour, 1, config.Match{To: config.Addresses{Prefixes: prefixes("10.1.2.0/24")}})
	g.rules(perSource("all", 1, time.Hour, 1, config.Match{}), to)
	g.lists(Lists{
		Allow: prefixes("203.0.113.7/32"),
		Block: map[netip.Prefix]time.Time{netip.MustParsePrefix("198.51.100.0/24"): {}, netip.MustParsePrefix("2001:db8::/32"): {}},
	})
	o := &g.objects
	fault := func(p, what string) Audit { return Audit{Prefixes: []Fault{{netip.MustParsePrefix(p), what}}} }
	// line changes the line of a table in which p is, as a map update does
	line := func(p string, change func(keys *[prefixWays]uint64, records *[prefixWays]bpfPrefix, w int)) func() error {
		return func() error {
			s := g.Gate.lists.prefixes
			prefix := netip.MustParsePrefix(p)
			place, ok := s.tables[family(prefix)].find(prefix)
			if !ok {
				return fmt.Errorf("%s is in no table", p)
			}
			keys, records := s.tables[family(prefix)].line(place / prefixWays)
			change(keys, records, int(place%prefixWays))
			return nil
		}
	}
	remove := func(keys *[prefixWays]uint64, _ *[prefixWays]bpfPrefix, w int) { keys[w] = 0 }
	half := func(m *ebpf.Map) uint32 { return g.control.generation() * m.MaxEntries() / 2 }
	for _, c := range []struct {
		name string
		do   func() error
		want Audit
	}{
		{"a block removed", line("198.51.100.0/24", remove), fault("198.51.100.0/24", "missing")},
		{"an IPv6 block removed", line("2001:db8::/32", remove), fault("2001:db8::/32", "missing")},
		{"an IPv6 name changed", line("2001:db8::/32", func(*[prefixWays]uint64, *[prefixWays]bpfPrefix, int) {
			t := g.Gate.lists.prefixes.tables[1]
			place, _ := t.find(netip.MustParsePrefix("2001:db8::/32"))
			t.lines6[place/prefixWays].Bits[place%prefixWays] = 200
		}), Audit{Prefixes: []Fault{{netip.PrefixFrom(netip.MustParseAddr("2001:db8::"), 200), "foreign"}, {netip.MustParsePrefix("2001:db8::/32"), "missing"}}}},
		{"a block ended", line("198.51.100.0/24", func(_ *[prefixWays]uint64, records *[prefixWays]bpfPrefix, w int) { records[w].End = 0 }), fault("198.51.100.0/24", "changed")},
		{"a block added", func() error {
			g.Gate.lists.prefixes.tables[0].insert(other, bpfPrefix{End: blockForever})
			g.Gate.lists.prefixes.tables[0].held--
			return nil
		}, fault(other.String(), "foreign")},
		{"a destination removed", line("10.1.2.0/24", remove), fault("10.1.2.0/24", "missing")},
		{"the roots emptied", func() error {
			for i := range o.Roots4.MaxEntries() {
				if err := o.Roots4.Put(i, &bpfRootGroup{}); err != nil {
					return err
				}
			}
			return nil
		}, Audit{Control: true}},
		{"the control entry emptied", func() error { return o.Controls.Put(uint32(0), &bpfControl{Now: g.control.fields.Now}) }, Audit{Control: true}},
		{"a limit changed", func() error {
			var l bpfLimit
			if err := o.Limits.Lookup(half(o.Limits), &l); err != nil {
				return err
			}
			l.Mult++
			return o.Limits.Put(half(o.Limits), &l)
		}, Audit{Rules: true}},
		{"a plan emptied", func() error { return o.Plans.Put(half(o.Plans), &bpfPlan{}) }, Audit{Rules: true}},
		{"a class changed", func() error {
			var c bpfClassGroup
			for i := range c.Class {
				c.Class[i] = 7
			}
			return o.Classes.Put(half(o.Classes)+1, &c)
		}, Audit{Rules: true}},
	} {
		g.clean("before " + c.name)
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		a, err := g.Audit(false)
		if err != nil || fmt.Sprint(a) != fmt.Sprint(c.want) {
			t.Errorf("%s: audit finds %+v, want %+v; %v", c.name, a, c.want, err)
		}
		if a.Rules {
			g.rules(perSource("all", 1, time.Hour, 1, config.Match{}), to)
		}
		g.clean("after " + c.name)
		g.want("block", from("198.51.100.9"))
		g.want("allow", from("203.0.113.7"))
		g.want("block", from("2001:db8::9"))
		if got := g.judge(from(other.Addr().String()).MustFrame()); got == "block" {
			t.Errorf("after %s: another is blocked", c.name)
		}
	}
}
