package maps

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

// between is a packet from one address to another.
func between(source, destination string) rig.Packet {
	p := from(source)
	p.Dst = netip.MustParseAddr(destination)
	return p
}

// Sources share a bucket by the prefix that the rule says.
func TestPerSourcePrefix(t *testing.T) {
	g := fixedGate(t)
	for _, c := range []struct {
		bits4, bits6 uint8
		same, other  [2]string
	}{
		{24, 56, [2]string{"203.0.113.1", "203.0.113.200"}, [2]string{"203.0.113.1", "203.0.112.1"}},
		{24, 56, [2]string{"2001:db8:1:100::1", "2001:db8:1:1ff::9"}, [2]string{"2001:db8:1:100::1", "2001:db8:1:200::1"}},
		{16, 48, [2]string{"203.0.1.1", "203.0.2.2"}, [2]string{"203.0.1.1", "203.1.1.1"}},
		{16, 48, [2]string{"2001:db8:1:100::1", "2001:db8:1:200::9"}, [2]string{"2001:db8:1::1", "2001:db8:2::1"}},
		{32, 128, [2]string{"203.0.113.1", "203.0.113.1"}, [2]string{"203.0.113.1", "203.0.113.2"}},
		{32, 128, [2]string{"2001:db8::1", "2001:db8::1"}, [2]string{"2001:db8::1", "2001:db8::2"}},
		{1, 1, [2]string{"1.0.0.0", "127.0.0.1"}, [2]string{"1.0.0.0", "128.0.0.1"}},
	} {
		r := perSource("r", 1, time.Hour, 1, config.Match{})
		r.SourceBits4, r.SourceBits6 = c.bits4, c.bits6
		t.Run(fmt.Sprintf("%d,%d %s", c.bits4, c.bits6, c.same[0]), func(t *testing.T) {
			g := testGate{g.Gate, t}
			g.rules()
			g.rules(r)
			g.want("within_rate", from(c.same[0]))
			g.want("over_rate", from(c.same[1]))
			g.want("within_rate", from(c.other[1]))
		})
	}
}

// per: destination, and per: [source, destination], have a bucket for each.
func TestPerDestination(t *testing.T) {
	g := fixedGate(t)
	r := perSource("to", 1, time.Hour, 1, config.Match{})
	r.Per = []config.Per{config.PerDestination}
	g.rules(r)
	for _, net := range []string{"192.0.2.%d", "2001:db8:ffff::%d"} {
		source := map[bool]string{true: "2001:db8::%d", false: "203.0.113.%d"}[strings.Contains(net, ":")]
		g.want("within_rate", between(fmt.Sprintf(source, 1), fmt.Sprintf(net, 1)))
		g.want("over_rate", between(fmt.Sprintf(source, 2), fmt.Sprintf(net, 1)))
		g.want("within_rate", between(fmt.Sprintf(source, 2), fmt.Sprintf(net, 2)))
	}
	g.rules()
	r.Per = []config.Per{config.PerSource, config.PerDestination}
	g.rules(r)
	g.want("within_rate", between("203.0.113.1", "192.0.2.1"))
	g.want("over_rate", between("203.0.113.1", "192.0.2.1"))
	g.want("within_rate", between("203.0.113.1", "192.0.2.2"))
	g.want("within_rate", between("203.0.113.2", "192.0.2.1"))
	g.want("over_rate", between("203.0.113.2", "192.0.2.1"))
	// and the pair is no swap of itself
	g.want("within_rate", between("192.0.2.9", "203.0.113.9"))
	g.want("within_rate", between("203.0.113.9", "192.0.2.9"))
}

// Overrides replace the figures for a source, the first that fits, and neither
// its bucket nor what it has spent.
func TestOverrides(t *testing.T) {
	g := fixedGate(t)
	r := perSource("r", 1, time.Hour, 10, config.Match{Protocol: "udp"})
	of := func(burst int64, prefix ...string) config.Override {
		return config.Override{From: config.Addresses{Prefixes: prefixes(prefix...)}, Rate: r.Rate, Burst: burst}
	}
	r.Overrides = []config.Override{
		of(3, "203.0.113.7/32", "2001:db8:7::/48"), of(20, "203.0.113.0/24"), of(30, "203.0.113.128/25"),
		{From: config.Addresses{Lists: []string{"partners"}}, Rate: r.Rate, Burst: 40},
	}
	lists := map[string][]netip.Prefix{"partners": prefixes("198.51.100.0/24")}
	if err := g.SetRules([]config.Rule{r}, config.Management{}, lists); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]int{
		"203.0.113.7": 3, "203.0.113.8": 20, "203.0.113.200": 20, "192.0.2.1": 10, "198.51.100.1": 40,
		"2001:db8:7:1::1": 3, "2001:db8:8::1": 10,
	} {
		if passed := g.count(50, from(source)); passed != want {
			t.Errorf("%s: %d passed, want %d", source, passed, want)
		}
	}
	tcp := from("203.0.113.7")
	tcp.Protocol, tcp.Payload = 6, make([]byte, 24)
	g.want("no_rule", tcp)
	counters, err := g.RuleCounters()
	if err != nil {
		t.Fatal(err)
	}
	if c := counters["r"]; c.PassedPackets != 3+20+20+10+40+3+10 {
		t.Errorf("the rule and its overrides count together: %+v", c)
	}
	// the override goes, the debt stays: 3 of 10 are spent
	r.Overrides = nil
	g.rules(r)
	if passed := g.count(50, from("203.0.113.7")); passed != 7 {
		t.Errorf("%d passed after the override went, want the rest of 10", passed)
	}
}

// A named list that does not exist is refused, and what was in force stays.
func TestUnknownList(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("stays", 1, time.Hour, 1, config.Match{}))
	m := config.Match{From: config.Addresses{Lists: []string{"nosuch"}}}
	err := g.SetRules([]config.Rule{perSource("r", 1, time.Hour, 1, m)}, config.Management{}, nil)
	if err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("error %v, want one that names the list", err)
	}
	g.want("within_rate", from("203.0.113.1"))
	g.want("over_rate", from("203.0.113.1"))
}

// RC-071: a block around a limit around a block around an allow, in every
// order of taking them away.
func TestNestedPrefixes(t *testing.T) {
	g := fixedGate(t)
	limited := perSource("limit", 100, time.Second, 100, config.Match{From: config.Addresses{Prefixes: prefixes("10.1.0.0/16", "2001:db8:1::/48")}})
	names := []string{"block /8", "limit /16", "allow /32", "block /24"}
	probes := map[string]func(on [4]bool) string{
		"10.2.0.1": func(on [4]bool) string { return map[bool]string{true: "block", false: "no_rule"}[on[0]] },
		"10.1.9.9": func(on [4]bool) string { return first(on[0], "block", on[1], "within_rate") },
		"10.1.2.3": func(on [4]bool) string { return first(on[2], "allow", on[0] || on[3], "block", on[1], "within_rate") },
		"10.1.2.4": func(on [4]bool) string { return first(on[0] || on[3], "block", on[1], "within_rate") },
	}
	for mask := range 16 {
		var on [4]bool
		for i := range on {
			on[i] = mask>>i&1 == 1
		}
		l := Lists{Block: map[netip.Prefix]time.Time{}}
		if on[0] {
			l.Block[netip.MustParsePrefix("10.0.0.0/8")] = time.Time{}
			l.Block[netip.MustParsePrefix("2001:db8::/32")] = time.Time{}
		}
		if on[2] {
			l.Allow = prefixes("10.1.2.3/32")
		}
		if on[3] {
			l.Block[netip.MustParsePrefix("10.1.2.0/24")] = time.Time{}
		}
		g.lists(l)
		if on[1] {
			g.rules(limited)
		} else {
			g.rules()
		}
		for source, want := range probes {
			if got := g.judge(frameOf(source)); got != want(on) {
				t.Errorf("%v of %v: %s is %s, want %s", on, names, source, got, want(on))
			}
		}
	}
}

// first is the word behind the first true of pairs, else no_rule.
func first(pairs ...any) string {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i].(bool) {
			return pairs[i+1].(string)
		}
	}
	return "no_rule"
}
