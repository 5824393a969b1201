package maps

import (
	"fmt"

	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

func protocol(name string) config.Match { return config.Match{Protocol: name} }

// to is a packet of a protocol to a port, from one source.
func to(proto layers.IPProtocol, port uint16) rig.Packet {
	p := from("203.0.113.5")
	p.Protocol, p.DstPort, p.Payload = proto, port, make([]byte, 24)
	return p
}

// RC-079: a limit for one service leaves the source's other traffic alone.
func TestRuleOfOnePort(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("game", 100, time.Second, 100, udpPorts(9000)))
	if passed := g.count(500, to(layers.IPProtocolUDP, 9000)); passed != 100 {
		t.Errorf("%d of 500 to the limited port passed, want 100", passed)
	}
	for _, p := range []rig.Packet{
		to(layers.IPProtocolUDP, 9001), to(layers.IPProtocolUDP, 8999), to(layers.IPProtocolTCP, 9000),
		to(layers.IPProtocolTCP, 22), to(layers.IPProtocolTCP, 443), to(layers.IPProtocolICMPv4, 0),
	} {
		for range 3 {
			g.want("no_rule", p)
		}
	}
	counters, err := g.RuleCounters()
	if err != nil {
		t.Fatal(err)
	}
	if c := counters["game"]; c.PassedPackets != 100 || c.RefusedPackets != 400 || c.PassedBytes*4 != c.RefusedBytes || c.WatchedPackets != 0 {
		t.Errorf("counters of the rule: %+v", c)
	}
}

// RC-140: every protocol is limited, and a limited source is let in again once
// its bucket has refilled.
func TestRuleOfAllTrafficAndItsDecay(t *testing.T) {
	shared := fixedGate(t)
	for _, source := range []string{"203.0.113.5", "2001:db8:5::5"} {
		for _, proto := range []layers.IPProtocol{6, 17, 1, 58, 132, 47, 253} {
			t.Run(fmt.Sprint(source, " ", uint8(proto)), func(t *testing.T) {
				g := testGate{shared.Gate, t}
				g.rules() // a rule that was gone starts full
				g.rules(perSource("all", 100, time.Second, 100, config.Match{}))
				p := from(source)
				p.Protocol, p.Type, p.Payload = proto, 128, make([]byte, 24)
				passed := 0
				for range 100 { // 10 s at ten times the limit
					g.advance(100 * time.Millisecond)
					passed += g.count(100, p)
				}
				// the first step finds a full bucket; each later one refills 10
				if passed != 100+99*10 {
					t.Errorf("%d passed at ten times the limit, want %d", passed, 100+99*10)
				}
				g.advance(2 * time.Second)
				for range 50 { // at half the limit
					g.advance(20 * time.Millisecond)
					g.want("within_rate", p)
				}
			})
		}
	}
}

// Later fragments have no port: they meet the rules of their protocol and of
// all traffic, not those with ports (RC-072, the documented policy).
func TestFragmentsMeetRulesWithoutPorts(t *testing.T) {
	g := fixedGate(t)
	g.rules(
		perSource("port", 1, time.Hour, 1, udpPorts(9000)),
		perSource("udp", 1, time.Hour, 3, protocol("udp")),
	)
	later := from("203.0.113.5")
	later.Fragment = &rig.Fragment{ID: 1, Offset: 64}
	later.Payload = make([]byte, 64)
	first := from("203.0.113.5")
	g.want("within_rate", later)
	g.want("within_rate", later)
	g.want("within_rate", first)
	g.want("over_rate", later)
	g.want("over_rate", first)
	counters, _ := g.RuleCounters()
	if c := counters["port"]; c.PassedPackets != 1 || c.RefusedPackets != 1 {
		t.Errorf("rule with a port: %+v", c)
	}
}

// Refused by one rule, charged to none.
func TestAllOrNothing(t *testing.T) {
	g := fixedGate(t)
	g.rules(
		perSource("slow", 1, time.Second, 1, config.Match{}),
		perSource("fast", 1, time.Hour, 20, config.Match{}),
	)
	passed := 0
	for range 200 { // 10/s for 20 s
		passed += g.count(1, from("203.0.113.5"))
		g.advance(100 * time.Millisecond)
	}
	if passed != 20 {
		t.Errorf("%d passed, want 20: the slow rule's refusals must cost the fast one nothing", passed)
	}
	counters, _ := g.RuleCounters()
	if c := counters["fast"]; c.PassedPackets != 20 || c.RefusedPackets != 0 {
		t.Errorf("fast rule: %+v", c)
	}
	if c := counters["slow"]; c.PassedPackets != 20 || c.RefusedPackets != 180 {
		t.Errorf("slow rule: %+v", c)
	}
}

// A watching rule refuses nothing, counts what it would refuse, and is not
// charged when an enforcing rule refuses.
func TestWatch(t *testing.T) {
	g := fixedGate(t)
	watch := perSource("watch", 10, time.Hour, 10, config.Match{})
	watch.Mode = config.Watch
	g.rules(watch)
	if passed := g.count(30, from("203.0.113.5")); passed != 30 {
		t.Errorf("%d of 30 passed a watching rule", passed)
	}
	counters, _ := g.RuleCounters()
	if c := counters["watch"]; c.PassedPackets != 10 || c.WatchedPackets != 20 || c.RefusedPackets != 0 {
		t.Errorf("watching alone: %+v, want 10 passed and 20 watched", c)
	}
	g.rules(watch, perSource("enforce", 5, time.Hour, 5, config.Match{}))
	g.count(30, from("203.0.113.6"))
	after, _ := g.RuleCounters()
	if c := after["watch"]; c.PassedPackets != 15 || c.WatchedPackets != 20 {
		t.Errorf("beside an enforcing rule: %+v, want 15 passed and 20 watched", c)
	}
}

// per: total is one bucket for all sources.
func TestPerTotal(t *testing.T) {
	g := fixedGate(t)
	total := perSource("cap", 1, time.Hour, 5, protocol("udp"))
	total.Per = []config.Per{config.PerTotal}
	g.rules(total)
	passed := 0
	for i := range 10 {
		passed += g.count(1, from(fmt.Sprintf("203.0.113.%d", i)))
		passed += g.count(1, from(fmt.Sprintf("2001:db8:%d::1", i)))
	}
	if passed != 5 {
		t.Errorf("%d passed, want 5", passed)
	}
}

// IPv6 sources share the bucket of their /64.
func TestIPv6SourceIsItsPrefix(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("all", 1, time.Hour, 10, config.Match{}))
	passed := 0
	for i := range 30 {
		passed += g.count(1, from(fmt.Sprintf("2001:db8:5:6::%x", i+1)))
	}
	if passed != 10 {
		t.Errorf("%d passed from one /64, want 10", passed)
	}
	g.want("within_rate", from("2001:db8:5:7::1"))
}

// A limit in bytes charges the whole frame.
func TestByteLimit(t *testing.T) {
	g := fixedGate(t)
	r := perSource("bytes", 1000, time.Second, 10_000, config.Match{})
	r.Rate.Unit = config.Bytes
	g.rules(r)
	p := from("203.0.113.5")
	p.Length = 1000
	if passed := g.count(30, p); passed != 10 {
		t.Errorf("%d frames of 1000 bytes passed a burst of 10000, want 10", passed)
	}
	p.Length = 100
	g.advance(time.Second)
	if passed := g.count(30, p); passed != 10 {
		t.Errorf("%d frames of 100 bytes passed after a second at 1000 bytes/s, want 10", passed)
	}
}

// More than four limits on a packet are refused, naming rules and packet, and
// what was in force stays.
func TestTooManyRulesOnAPacket(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("stays", 1, time.Hour, 1, config.Match{}))
	var five []config.Rule
	for i := range 5 {
		five = append(five, perSource(fmt.Sprintf("r%d", i), 1, time.Hour, 9, udpPorts(53)))
	}
	err := g.SetRules(five, config.Management{}, nil)
	if err == nil || !strings.Contains(err.Error(), "udp/53") || !strings.Contains(err.Error(), "r0, r1, r2, r3, r4") {
		t.Fatalf("error %v: want one that names the rules and udp/53", err)
	}
	g.want("within_rate", from("203.0.113.5"))
	g.want("over_rate", from("203.0.113.5"))
	if ids, err := g.openIDs(); err != nil || len(ids.ids) != 3 {
		t.Errorf("limits known after a refusal: %v, %v; want the one in force and the vital ones", ids.ids, err)
	}
}

// Figures, mode and match may change and the debt stays; a rule that was gone
// starts full.
func TestReloadKeepsDebt(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("r", 100, time.Hour, 100, config.Match{}))
	g.count(100, from("203.0.113.5"))
	for range 20 {
		g.rules(perSource("r", 100, time.Hour, 100, config.Match{}), perSource("other", 1, time.Hour, 9, udpPorts(1)))
		g.want("over_rate", from("203.0.113.5"))
		g.rules(perSource("r", 100, time.Hour, 100, config.Match{}))
		g.want("over_rate", from("203.0.113.5"))
	}
	// twice the rate: the hour of debt is 200 packets, the burst of 200 is full
	g.rules(perSource("r", 200, time.Hour, 200, config.Match{}))
	g.want("over_rate", from("203.0.113.5"))
	before, _ := g.RuleCounters()
	g.rules()
	g.rules(perSource("r", 100, time.Hour, 100, config.Match{}))
	g.want("within_rate", from("203.0.113.5"))
	if c, _ := g.RuleCounters(); c["r"].PassedPackets != 1 || before["r"].PassedPackets != 100 {
		t.Errorf("counters before %+v and after %+v the rule was gone", before["r"], c["r"])
	}
}

// RC-055: the fastest rate that is taken neither drops what is within it nor
// passes what is not.
func TestVeryHighRate(t *testing.T) {
	g := fixedGate(t)
	for _, rate := range []int64{999_999, 1_000_001, 5_000_000, 10_000_000, 100_000_000} {
		g.rules() // a rule that was gone starts full
		g.rules(perSource("fast", rate, time.Second, 10, config.Match{}))
		if passed := g.count(1000, from("203.0.113.5")); passed != 10 {
			t.Errorf("rate %d/s, burst 10: %d passed with no time passing", rate, passed)
		}
		for range 100 { // 100 kpps
			g.advance(10 * time.Microsecond)
			g.want("within_rate", from("203.0.113.5"))
		}
	}
	for _, rate := range []int64{100_000_001, 1_000_000_001} {
		if err := g.SetRules([]config.Rule{perSource("r", rate, time.Second, 10, config.Match{})}, config.Management{}, nil); err == nil {
			t.Errorf("rate %d/s was taken", rate)
		}
	}
}

// RC-057: after any idle time the bucket is full, not fuller, and not broken.
func TestLongIdle(t *testing.T) {
	g := fixedGate(t)
	for _, rate := range []config.Rate{{Amount: 1, Interval: time.Hour}, {Amount: 1_000_000, Interval: time.Second}} {
		for _, idle := range []time.Duration{time.Hour, 6 * 24 * time.Hour, 49*24*time.Hour + 17*time.Hour, 365 * 24 * time.Hour} {
			g.rules() // a rule that was gone starts full
			g.rules(perSource("r", rate.Amount, rate.Interval, 5, config.Match{}))
			g.want("within_rate", from("203.0.113.5"))
			g.advance(idle)
			if passed := g.count(20, from("203.0.113.5")); passed != 5 {
				t.Errorf("%v, idle %v: %d passed, want the burst of 5", rate, idle, passed)
			}
		}
	}
}

// RC-057: a rule that comes when the table is five years old starts full, with
// what unknown sources and those without a slot take together.
func TestOldTable(t *testing.T) {
	g := fixedGate(t)
	g.SetNow(uint64(5*365*24*time.Hour) * ticksPerNano)
	r := perSource("r", 1, time.Hour, 4, config.Match{})
	r.Unknown = &config.Rate{Amount: 10, Interval: time.Second, Unit: config.Count}
	g.rules(r)
	g.want("within_rate", from("203.0.113.5"))
	r.Unknown = nil
	g.rules(r)
	s := g.neighbours("r", 5)
	for _, source := range s[:4] {
		for g.judge(frameOf(source)) != "over_rate" {
		}
	}
	g.want("within_rate", from(s[4]))
	if st := g.stats(); st.Overflowed != 1 {
		t.Errorf("%d packets by the overflow bucket, want 1", st.Overflowed)
	}
}

// Every reason that the program knows has a name.
func TestReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for r, name := range reasonNames {
		if name == "" || seen[name] {
			t.Errorf("reason %d has the name %q", r, name)
		}
		seen[name] = true
	}
}
