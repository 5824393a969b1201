package maps

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
	"pgregory.net/rapid"
)

// matches is the plain reading of a rule: no classes, no tables, every
// condition asked of the packet as it was built.
func matches(m config.Match, p rig.Packet, lists map[string][]netip.Prefix, index uint32) bool {
	in := func(a config.Addresses, address netip.Addr) bool {
		all := slices.Clone(a.Prefixes)
		for _, name := range a.Lists {
			all = append(all, lists[name]...)
		}
		return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(address) })
	}
	empty := func(a config.Addresses) bool { return len(a.Prefixes)+len(a.Lists) == 0 }
	if !empty(m.From) && !in(m.From, p.Src) || in(m.Except, p.Src) || !empty(m.To) && !in(m.To, p.Dst) {
		return false
	}
	if m.Protocol != "" {
		number, _ := config.ProtocolNumber(m.Protocol)
		if number != uint8(p.Protocol) {
			return false
		}
	}
	later := p.Fragment != nil && p.Fragment.Offset > 0
	hasPorts := !later && (p.Protocol == layers.IPProtocolTCP || p.Protocol == layers.IPProtocolUDP)
	hasType := !later && (p.Protocol == layers.IPProtocolICMPv4 && p.Src.Is4() || p.Protocol == layers.IPProtocolICMPv6 && p.Src.Is6())
	within := func(ranges []config.PortRange, port uint16) bool {
		return len(ranges) == 0 || hasPorts && slices.ContainsFunc(ranges, func(r config.PortRange) bool { return r.First <= port && port <= r.Last })
	}
	if !within(m.Ports, p.DstPort) || !within(m.SourcePorts, p.SrcPort) {
		return false
	}
	if len(m.ICMPTypes) > 0 && (!hasType || !slices.Contains(m.ICMPTypes, p.Type)) {
		return false
	}
	if m.Flags != nil {
		flags := flagBits(p.Flags)
		if later || p.Protocol != layers.IPProtocolTCP || flags&m.Flags.Set != m.Flags.Set || flags&m.Flags.Clear != 0 {
			return false
		}
	}
	if len(m.VLANs) > 0 && (len(p.Tags) == 0 || !slices.Contains(m.VLANs, p.Tags[0].ID)) {
		return false
	}
	return len(m.Interfaces) == 0 || slices.ContainsFunc(m.Interfaces, func(name string) bool {
		return slices.ContainsFunc(poolInlets[name], func(in Inlet) bool {
			return in.Index == index && (in.VLAN == AnyVLAN || len(p.Tags) > 0 && int(p.Tags[0].ID) == in.VLAN)
		})
	})
}

// poolInlets are interfaces as the program, which is on lo in tests, knows them:
// lo is a member of bond0, which carries a VLAN device.
var poolInlets = map[string][]Inlet{
	"lo": {{1, AnyVLAN}}, "other0": {{7, AnyVLAN}}, "bond0": {{8, AnyVLAN}, {7, AnyVLAN}, {1, AnyVLAN}},
	"bond0.10": {{9, AnyVLAN}, {8, 10}, {7, 10}, {1, 10}}, "bond0.20": {{11, AnyVLAN}, {1, 20}}, "other0.10": {{10, AnyVLAN}, {7, 10}},
}

func flagBits(f rig.Flags) (bits uint8) {
	for i, set := range []bool{f.FIN, f.SYN, f.RST, f.PSH, f.ACK} {
		if set {
			bits |= 1 << i
		}
	}
	return bits
}

var (
	poolPrefixes = prefixes("10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "192.0.2.0/24", "192.0.2.1/32", "0.0.0.0/0",
		"2001:db8::/32", "2001:db8:1::/48", "2001:db8:1:2::/64", "2001:db8:1:2::3/128", "::/0")
	poolSources = []string{"10.1.2.3", "10.1.2.4", "10.1.9.9", "10.2.0.1", "192.0.2.1", "198.51.100.1",
		"2001:db8:1:2::3", "2001:db8:1:3::3", "2001:db8:2::1", "2001:db9::1"}
	poolLists = map[string][]netip.Prefix{
		"bad":  prefixes("10.1.2.0/25", "2001:db8:1:2::/64"),
		"good": prefixes("10.1.2.4/32", "2001:db8:1:3::3/128", "198.51.100.0/24"),
	}
)

func drawAddresses(t *rapid.T, what string) (a config.Addresses) {
	switch rapid.IntRange(0, 3).Draw(t, what) {
	case 0:
		a.Prefixes = rapid.SliceOfN(rapid.SampledFrom(poolPrefixes), 1, 3).Draw(t, what+" prefixes")
	case 1:
		a.Lists = []string{rapid.SampledFrom([]string{"bad", "good"}).Draw(t, what+" list")}
	}
	return a
}

func drawMatch(t *rapid.T) (m config.Match) {
	m.From, m.To = drawAddresses(t, "from"), drawAddresses(t, "to")
	if rapid.IntRange(0, 3).Draw(t, "except?") == 0 {
		m.Except = drawAddresses(t, "except")
	}
	m.Protocol = rapid.SampledFrom([]string{"", "", "tcp", "tcp", "udp", "icmp", "icmpv6", "gre", "17"}).Draw(t, "protocol")
	ports := rapid.SampledFrom([][]config.PortRange{nil, {{First: 53, Last: 53}}, {{First: 80, Last: 80}, {First: 443, Last: 443}}, {{First: 1, Last: 1023}}, {{First: 1024, Last: 65535}}})
	if m.Protocol == "tcp" || m.Protocol == "udp" {
		m.Ports, m.SourcePorts = ports.Draw(t, "ports"), ports.Draw(t, "source ports")
	}
	if m.Protocol == "tcp" {
		m.Flags = rapid.SampledFrom([]*config.TCPFlags{nil, {Set: 2, Clear: 16}, {Set: 18}, {Clear: 2}}).Draw(t, "flags")
	}
	if m.Protocol == "icmp" || m.Protocol == "icmpv6" {
		m.ICMPTypes = rapid.SampledFrom([][]uint8{nil, {8}, {128, 129}, {0, 3, 8}}).Draw(t, "types")
	}
	m.VLANs = rapid.SampledFrom([][]uint16{nil, nil, nil, {10}, {0, 20}}).Draw(t, "vlan")
	m.Interfaces = rapid.SampledFrom([][]string{nil, nil, nil, {"lo"}, {"other0"}, {"bond0"}, {"bond0.10"}, {"bond0.10", "bond0"}, {"other0.10", "bond0.10"}, {"gone0"}}).Draw(t, "interface")
	return m
}

func drawPacket(t *rapid.T) rig.Packet {
	addresses := slices.Clone(poolSources)
	src := netip.MustParseAddr(rapid.SampledFrom(addresses).Draw(t, "src"))
	addresses = slices.DeleteFunc(addresses, func(a string) bool { return strings.Contains(a, ":") != src.Is6() })
	port := rapid.SampledFrom([]uint16{53, 80, 443, 1023, 1024, 9000})
	p := rig.Packet{
		Src: src, Dst: netip.MustParseAddr(rapid.SampledFrom(addresses).Draw(t, "dst")),
		Protocol: rapid.SampledFrom([]layers.IPProtocol{6, 17, 1, 58, 47}).Draw(t, "protocol"),
		SrcPort:  port.Draw(t, "sport"), DstPort: port.Draw(t, "dport"),
		Type:    rapid.SampledFrom([]uint8{0, 3, 8, 128, 129}).Draw(t, "type"),
		Flags:   rapid.SampledFrom([]rig.Flags{{}, {SYN: true}, {SYN: true, ACK: true}, {ACK: true}, {RST: true}}).Draw(t, "flags"),
		Payload: make([]byte, 24), Unmarked: true,
	}
	if tags := rapid.SampledFrom([][]rig.Tag{nil, nil, {{ID: 10}}, {{ID: 0}}, {{ID: 20}, {ID: 10}}}).Draw(t, "tags"); tags != nil {
		p.Tags = tags
	}
	if rapid.IntRange(0, 4).Draw(t, "fragment") == 0 {
		p.Fragment = &rig.Fragment{ID: 1, Offset: 4}
	}
	return p
}

// RC-071, RC-111: the compiled rules against the plain reading, over
// random rules and packets, both families, bonds and VLAN devices, rules coming
// and going in any order. Which rules a packet meets is seen in their counters.
func TestCompiledRulesAgainstPlainReading(t *testing.T) {
	g := fixedGate(t)
	rapid.Check(t, func(rt *rapid.T) {
		var rules []config.Rule
		for i := range rapid.IntRange(1, 12).Draw(rt, "rules") {
			rules = append(rules, perSource(fmt.Sprintf("r%d", i), 1_000_000, time.Second, 1_000_000, drawMatch(rt)))
		}
		rules = rapid.Permutation(rules).Draw(rt, "order")[:rapid.IntRange(1, len(rules)).Draw(rt, "kept")]
		err := g.setRules(rules, config.Management{}, poolLists, func(name string) ([]Inlet, error) { return poolInlets[name], nil })
		if err != nil {
			if !strings.Contains(err.Error(), "rules meet on a packet") {
				rt.Fatal(err)
			}
			rt.Skip("more than four limits on a packet")
		}
		for range 8 {
			p := drawPacket(rt)
			var want []string
			for _, r := range rules {
				if matches(r.Match, p, poolLists, 1) {
					want = append(want, r.Name)
				}
			}
			got := g.met(rt, p)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				rt.Fatalf("packet %+v meets %v, the plain reading says %v", p, got, want)
			}
		}
	})
}

// met sends the packet and returns the rules whose counters moved.
func (g testGate) met(rt *rapid.T, p rig.Packet) []string {
	return g.metBy(rt, func() { g.judge(p.MustFrame()) })
}

// metBy returns the rules whose counters send moves.
func (g testGate) metBy(rt *rapid.T, send func()) (names []string) {
	before, err := g.RuleCounters()
	if err != nil {
		rt.Fatal(err)
	}
	send()
	after, err := g.RuleCounters()
	if err != nil {
		rt.Fatal(err)
	}
	for name, c := range after {
		if c != before[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A set of rules is refused if and only if some packet meets more than four,
// and the message names such a packet's rules.
func TestTooManyIsExact(t *testing.T) {
	g := fixedGate(t)
	sources := slices.Concat(poolSources, []string{"10.1.2.0", "10.1.2.5", "10.1.2.128", "10.1.0.0", "10.0.0.0", "192.0.2.0", "0.0.0.0", "2001:db8::", "2001:db8:1::", "2001:db8:1:2::", "::"})
	ports := []uint16{53, 80, 443, 1, 1024}
	refused, taken := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		var rules []config.Rule
		for i := range rapid.IntRange(4, 9).Draw(rt, "rules") {
			m := config.Match{From: drawAddresses(rt, "from"), To: drawAddresses(rt, "to")}
			m.Protocol = rapid.SampledFrom([]string{"", "tcp", "udp"}).Draw(rt, "protocol")
			if m.Protocol != "" {
				m.Ports = rapid.SampledFrom([][]config.PortRange{nil, {{First: 53, Last: 53}}, {{First: 80, Last: 443}}}).Draw(rt, "ports")
				m.SourcePorts = rapid.SampledFrom([][]config.PortRange{nil, nil, {{First: 1024, Last: 65535}}}).Draw(rt, "source ports")
			}
			rules = append(rules, perSource(fmt.Sprintf("r%d", i), 1000, time.Second, 1000, m))
		}
		most := 0
		for _, src := range sources {
			for _, dst := range sources {
				if strings.Contains(src, ":") != strings.Contains(dst, ":") {
					continue
				}
				p := rig.Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst)}
				for _, p.Protocol = range []layers.IPProtocol{6, 17, 47} {
					for _, p.SrcPort = range []uint16{53, 1024} {
						for _, p.DstPort = range ports {
							most = max(most, countMatches(rules, p))
						}
					}
				}
			}
		}
		err := g.SetRules(rules, config.Management{}, poolLists)
		if most > ruleLimits {
			refused++
			if err == nil {
				rt.Fatalf("a packet meets %d rules, and they were taken", most)
			}
			return
		}
		taken++
		if err != nil {
			rt.Fatalf("no packet meets more than %d rules: %v", most, err)
		}
	})
	if refused == 0 || taken == 0 {
		t.Errorf("%d sets were refused and %d taken: this test saw one side only", refused, taken)
	}
}

func countMatches(rules []config.Rule, p rig.Packet) (n int) {
	for _, r := range rules {
		if matches(r.Match, p, poolLists, 1) {
			n++
		}
	}
	return n
}
