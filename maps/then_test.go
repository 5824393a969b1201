package maps

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// blocking is a rule that blocks for a minute after 5 refusals in a second.
func blocking(name string) config.Rule {
	r := perSource(name, 10, time.Hour, 10, udpPorts(9000))
	r.Then = &config.Then{Block: time.Minute, After: config.Rate{Amount: 5, Interval: time.Second, Unit: config.Count}}
	return r
}

// Too many refusals block the source's whole traffic for the time said, with
// nobody there but the program, and one event tells of each block.
func TestThenBlocks(t *testing.T) {
	g := fixedGate(t)
	g.rules(blocking("r"))
	events, err := g.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	for _, source := range []string{"203.0.113.5", "2001:db8:5::5"} {
		p, other := from(source), from(source)
		other.DstPort = 80
		g.count(10, p)
		for range 6 { // five strikes have room, the sixth is one too many
			g.want("no_rule", other)
			g.want("over_rate", p)
		}
		for range 3 {
			g.want("strikes", p)
			g.want("strikes", other)
		}
		g.want("within_rate", from("203.0.113.77"))
		struck, err := events.Next(time.Now().Add(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if want := sourceOf(netip.MustParseAddr(source)).prefix(); struck.Prefix != want || struck.Rule != "r" {
			t.Errorf("event %+v, want rule r and %v", struck, want)
		}
		if left := time.Until(struck.End); left < 50*time.Second || left > time.Minute {
			t.Errorf("the event's block ends in %v, want a minute", left)
		}
		g.advance(59 * time.Second)
		g.want("strikes", other)
		g.advance(time.Second)
		g.want("no_rule", other)
		g.want("over_rate", p)
	}
}

// Slow refusals are no reason to block; an allowed source is not blocked; a
// watching rule blocks nobody; lifting the block lifts it at once.
func TestThenSpares(t *testing.T) {
	g := fixedGate(t)
	g.rules(blocking("r"))
	p := from("203.0.113.5")
	g.count(10, p)
	for range 50 {
		g.want("over_rate", p)
		g.advance(200 * time.Millisecond)
	}
	friend := from("203.0.113.6")
	g.lists(Lists{Allow: prefixes("203.0.113.6/32")})
	g.count(100, friend)
	g.want("allow", friend)
	g.count(10, p)
	g.want("strikes", p)
	if err := g.Unblock(netip.MustParsePrefix("203.0.113.5/32")); err != nil {
		t.Fatal(err)
	}
	g.want("over_rate", p)
	g.rules()
	watch := blocking("w")
	watch.Mode = config.Watch
	g.rules(watch)
	q := from("203.0.113.9")
	if passed := g.count(100, q); passed != 100 {
		t.Errorf("a watching rule with then dropped %d of 100", 100-passed)
	}
}

// A packet that meets several limits strikes for the one that refuses.
func TestThenAmongSeveralRules(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("wide", 1000, time.Second, 1000, config.Match{}), blocking("r"))
	p := from("203.0.113.5")
	g.count(16, p)
	g.want("strikes", p)
}

// RC-012 in small: what sources without a bucket take together is capped, one
// that has its bucket or is vouched for keeps its own, and the vouch map is
// asked only when the cap is reached.
func TestUnknownSourcesAreCapped(t *testing.T) {
	for _, more := range []bool{false, true} { // alone, and beside another limit
		g := fixedGate(t)
		r := perSource("r", 1, time.Second, 10, config.Match{})
		r.Unknown = &config.Rate{Amount: 50, Interval: time.Second, Unit: config.Count}
		rules := []config.Rule{r}
		if more {
			rules = append(rules, perSource("wide", 1_000_000, time.Second, 1_000_000, config.Match{}))
		}
		g.rules(rules...)
		known := from("203.0.113.5")
		g.want("within_rate", known)
		passed := 0
		for i := range 200 {
			passed += g.count(1, from(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}).String()))
		}
		if passed != 49 {
			t.Errorf("%d new sources passed, want 49 beside the one before", passed)
		}
		g.want("unknown", from("198.51.100.9"))
		g.want("within_rate", known)
		vouched := netip.MustParseAddr("198.51.100.7")
		if err := g.Vouch(vouched, time.Now().Add(5*time.Minute)); err != nil {
			t.Fatal(err)
		}
		if got := g.count(20, from("198.51.100.7")); got != 10 {
			t.Errorf("%d packets of a vouched source passed, want its burst of 10", got)
		}
		vouches, err := g.Vouches()
		if err != nil || len(vouches) != 1 || vouches[vouched].IsZero() {
			t.Errorf("vouches %v, %v", vouches, err)
		}
		if err := g.Unvouch(vouched); err != nil {
			t.Fatal(err)
		}
		six := netip.MustParseAddr("2001:db8:7:7::1")
		g.want("unknown", from("2001:db8:7:7::2"))
		if err := g.Vouch(six, time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		g.want("within_rate", from("2001:db8:7:7::2"))
		g.advance(time.Second)
		g.want("within_rate", from("198.51.100.9"))
		g.advance(2 * time.Minute)
		if vouches, err := g.Vouches(); err != nil || len(vouches) != 0 {
			t.Errorf("vouches after their end: %v, %v", vouches, err)
		}
	}
}

// RC-078: a source that is vouched for and finds no slot is not passed without
// being counted: it shares the overflow bucket.
func TestVouchedWithoutSlot(t *testing.T) {
	g := fixedGate(t)
	r := perSource("r", 1, time.Hour, 4, config.Match{})
	r.Unknown = &config.Rate{Amount: 10, Interval: time.Second, Unit: config.Count}
	g.rules(r)
	s := g.neighbours("r", 6)
	for _, source := range s[:4] {
		for g.judge(frameOf(source)) != "over_rate" {
		}
	}
	g.count(20, from(s[4])) // what unknown sources have is spent
	g.want("unknown", from(s[4]))
	if err := g.Vouch(netip.MustParseAddr(s[5]), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if passed := g.count(1000, from(s[5])); passed != overflowFactor*4 {
		t.Errorf("%d packets of a vouched source without a slot passed, want ten times the burst of 4", passed)
	}
}

// What a packet took of the unknown sources' together is given back when any
// rule refuses it: all or nothing.
func TestUnknownIsGivenBack(t *testing.T) {
	g := fixedGate(t)
	capped := perSource("capped", 1, time.Hour, 4, config.Match{})
	capped.Unknown = &config.Rate{Amount: 10, Interval: time.Second, Unit: config.Count}
	first := perSource("first", 1, time.Hour, 3, udpPorts(53))
	last := perSource("last", 1, time.Hour, 3, udpPorts(54))
	watching := perSource("watching", 1, time.Hour, 2, udpPorts(55))
	watching.Unknown, watching.Mode = &config.Rate{Amount: 5, Interval: time.Second, Unit: config.Count}, config.Watch
	first.Per, last.Per = []config.Per{config.PerTotal}, []config.Per{config.PerTotal}
	g.rules(first, capped, last, watching)
	send := func(source int, port uint16) string {
		p := from(fmt.Sprintf("203.0.113.%d", source))
		p.DstPort, p.Unmarked = port, true
		return g.judge(p.MustFrame())
	}
	source, passed := 0, 0
	for _, port := range []uint16{53, 54, 55} {
		for range 40 {
			source++
			if send(source, port) == "within_rate" {
				passed++
			}
		}
	}
	if passed != 10 {
		t.Errorf("%d new sources passed, want the 10 of unknown: refusals by others cost them", passed)
	}
	if c, err := g.RuleCounters(); err != nil || c["watching"].PassedPackets != 4 {
		t.Errorf("the watching rule: %+v, %v; want the 4 that were left to pass", c["watching"], err)
	}
}
