package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// probe is a packet as rules see it.
type probe struct {
	source, destination netip.Addr
	protocol            string
	port, sourcePort    uint16
	kind, flags         uint8
	vlan                uint16
	iface               string
}

// meets is a plain reading of a match whose lists are not known: what only they
// could admit is not met.
func (p probe) meets(m *Match) bool {
	in := func(a netip.Addr, prefixes []netip.Prefix) bool {
		return slices.ContainsFunc(prefixes, func(x netip.Prefix) bool { return x.Contains(a) })
	}
	within := func(port uint16, ranges []PortRange) bool {
		return len(ranges) == 0 || slices.ContainsFunc(ranges, func(r PortRange) bool { return r.First <= port && port <= r.Last })
	}
	return (m.From.empty() || in(p.source, m.From.Prefixes)) &&
		len(m.Except.Lists) == 0 && !in(p.source, m.Except.Prefixes) &&
		(m.To.empty() || in(p.destination, m.To.Prefixes)) &&
		(m.Protocol == "" || m.Protocol == p.protocol) &&
		within(p.port, m.Ports) && within(p.sourcePort, m.SourcePorts) &&
		(m.Flags == nil || p.flags&m.Flags.Set == m.Flags.Set && p.flags&m.Flags.Clear == 0) &&
		(len(m.ICMPTypes) == 0 || slices.Contains(m.ICMPTypes, p.kind)) &&
		(len(m.VLANs) == 0 || slices.Contains(m.VLANs, p.vlan)) &&
		(len(m.Interfaces) == 0 || slices.Contains(m.Interfaces, p.iface))
}

// The edges of what drawMatch draws: a packet that meets most rules is among
// their combinations.
var (
	probeAddresses = [][]netip.Addr{
		addrs("0.0.0.0", "192.0.3.0", "192.0.2.0", "192.0.2.64", "192.0.2.128", "192.0.2.255", "255.255.255.255"),
		addrs("::", "2001:db8:0:2::", "2001:db8:2::", "2001:db9::", "2001:db8::", "2001:db8:0:1::", "2001:db8:0:1:8000::", "2001:db8:1::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
	}
	probePrefixes = []string{
		"192.0.2.0/24", "192.0.2.0/25", "192.0.2.64/26", "192.0.2.128/25", "192.0.2.255/32", "0.0.0.0/0", "255.255.255.255/32",
		"2001:db8::/32", "2001:db8:0:1::/64", "2001:db8:0:1:8000::/65", "2001:db8:1::/48", "::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128",
	}
	probeFlags = []TCPFlags{{Set: 2, Clear: 16}, {Set: 18}, {Set: 4}, {Clear: 16}}
)

func addrs(all ...string) (out []netip.Addr) {
	for _, s := range all {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func drawAddresses(t *rapid.T, what string, prefixes []string) (a Addresses) {
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2}).Draw(t, what) {
		a.Prefixes = append(a.Prefixes, netip.MustParsePrefix(rapid.SampledFrom(prefixes).Draw(t, "prefix")))
	}
	if rapid.IntRange(0, 15).Draw(t, "list") == 0 {
		a.Lists = []string{"somewhere"}
	}
	return a
}

func drawSmallMatch(t *rapid.T) (m Match) {
	m.From, m.Except = drawAddresses(t, "from", probePrefixes), drawAddresses(t, "except", probePrefixes)
	m.To = drawAddresses(t, "to", []string{"192.0.2.128/25", "192.0.2.255/32", "0.0.0.0/0", "2001:db8:0:1:8000::/65", "2001:db8:1::/48"})
	ports := func() (r []PortRange) {
		for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "ports") {
			a, b := rapid.Uint16Range(1, 3).Draw(t, "a"), rapid.Uint16Range(1, 3).Draw(t, "b")
			r = append(r, PortRange{min(a, b), max(a, b)})
		}
		return r
	}
	switch m.Protocol = rapid.SampledFrom([]string{"", "tcp", "icmp"}).Draw(t, "protocol"); m.Protocol {
	case "tcp":
		m.Ports, m.SourcePorts = ports(), ports()
		if rapid.Bool().Draw(t, "flags") {
			f := rapid.SampledFrom(probeFlags).Draw(t, "flags")
			m.Flags = &f
		}
	case "icmp":
		m.ICMPTypes = rapid.SampledFrom([][]uint8{nil, {8}, {0, 8}}).Draw(t, "types")
	}
	m.VLANs = rapid.SampledFrom([][]uint16{nil, nil, nil, {1}, {1, 2}}).Draw(t, "vlan")
	m.Interfaces = rapid.SampledFrom([][]string{nil, nil, nil, {"eth0"}, {"eth1", "eth0"}}).Draw(t, "interfaces")
	return m
}

// everyProbe calls with every packet that the edges make.
func everyProbe(call func(probe)) {
	for _, family := range probeAddresses {
		for _, source := range family {
			for _, destination := range family[4:] {
				p := probe{source: source, destination: destination}
				for _, p.vlan = range []uint16{0, 1, 2} {
					for _, p.iface = range []string{"eth0", "eth1"} {
						services(p, call)
					}
				}
			}
		}
	}
}

func services(p probe, call func(probe)) {
	call(p) // of a protocol that no rule names
	for _, kind := range []uint8{0, 8} {
		icmp := p
		icmp.protocol, icmp.kind = "icmp", kind
		call(icmp)
	}
	p.protocol = "tcp"
	for p.port = 1; p.port <= 3; p.port++ {
		for p.sourcePort = 1; p.sourcePort <= 3; p.sourcePort++ {
			for _, p.flags = range []uint8{0, 2, 4, 6, 16, 18, 20, 22} {
				call(p)
			}
		}
	}
}

// TestCrowdsAgainstEveryPacket: a set is refused when, and only when, a packet
// meets more than 4 of its rules (RC-071 counts on nothing being refused that
// is fine); and the rules that are named do meet on one packet.
func TestCrowdsAgainstEveryPacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []placed
		for i := range rapid.IntRange(5, 12).Draw(t, "rules") {
			all = append(all, placed{Rule: Rule{Name: fmt.Sprint("r", i), Gate: GateNetwork, Match: drawSmallMatch(t)}, ok: true})
		}
		most := 0
		everyProbe(func(p probe) {
			n := 0
			for i := range all {
				if p.meets(&all[i].Match) {
					n++
				}
			}
			most = max(most, n)
		})
		found := crowds(all)
		deepest := 0
		for _, f := range found {
			n := 0
			fmt.Sscan(f.msg, &n)
			deepest = max(deepest, n)
		}
		if (most > mostLimits) != (len(found) > 0) || most > mostLimits && deepest > most {
			t.Fatalf("%d rules meet, found %+v", most, found)
		}
		if most > mostLimits && deepest != most && !strings.Contains(found[0].msg, "any packet") && !strings.Contains(found[0].msg, "a packet ") {
			t.Fatalf("%d rules meet, found %+v", most, found)
		}
	})
}

// many returns n rules made by match.
func many(n int, match func(i int) Match) []Rule {
	rules := make([]Rule, n)
	for i := range rules {
		rules[i] = Rule{Name: fmt.Sprint("r", i), Gate: GateNetwork, Match: match(i)}
	}
	return rules
}

func someAddresses(i int) Addresses {
	return Addresses{Prefixes: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)}}
}

func prefixesOf(s string) Addresses {
	return Addresses{Prefixes: []netip.Prefix{netip.MustParsePrefix(s)}}
}

func somePorts(i int) []PortRange { return []PortRange{{uint16(i + 1), uint16(i + 1)}} }

// 10 000 rules of the kinds that people have many of are decided for certain,
// within the steps of the search.
func TestManyRules(t *testing.T) {
	const n = 10_000
	for _, tc := range []struct {
		name  string
		match func(i int) Match
	}{
		{"sources", func(i int) Match { return Match{From: someAddresses(i)} }},
		{"sources with a port each", func(i int) Match {
			return Match{From: someAddresses(i), Protocol: "tcp", Ports: somePorts(i % 100)}
		}},
		{"sources, ports, flags and destinations apart", func(i int) Match {
			switch i % 4 {
			case 0:
				return Match{From: someAddresses(i)}
			case 1:
				return Match{Protocol: "tcp", Ports: somePorts(i)}
			case 2:
				return Match{Protocol: "tcp", Ports: somePorts(i), Flags: &TCPFlags{Set: flagSYN, Clear: flagACK}}
			}
			return Match{To: someAddresses(i)}
		}},
		{"one source each, and none of a VLAN", func(i int) Match {
			return Match{Except: someAddresses(i), VLANs: []uint16{uint16(i % 4095)}, From: someAddresses(i + 1)}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rules := many(n, tc.match)
			if err := CheckRules(rules); err != nil {
				t.Fatalf("refused: %v", err)
			}
			// Five more that meet nobody else but each other are found among them.
			for i := range 5 {
				rules = append(rules, Rule{Name: fmt.Sprint("five", i), Gate: GateNetwork, Match: Match{
					From: prefixesOf("198.51.100.0/24"), To: prefixesOf("203.0.113.7/32"), Protocol: "tcp",
					Ports: []PortRange{{60_000 + uint16(i), 60_010}},
				}})
			}
			err := CheckRules(rules)
			want := "5 limits meet on a tcp packet from 198.51.100.0 to 203.0.113.7 to port 60004…remove or narrow one of five0, five1, five2, five3 or five4"
			if err == nil || !hasParts(err.Error(), want) {
				t.Errorf("\n got: %v\nwant: %s", err, want)
			}
		})
	}
}

// A set that would take too long is left to the network gate, not refused.
func TestTooManyStepsIsNoFault(t *testing.T) {
	all := make([]placed, 4000)
	for i, r := range many(len(all), func(i int) Match {
		return Match{From: someAddresses(i / 4000), Protocol: "tcp", Ports: []PortRange{{1 + uint16(i), 40_000 + uint16(i)}}, VLANs: []uint16{uint16(i)}}
	}) {
		all[i] = placed{Rule: r, ok: true}
	}
	steps := 1000
	if f, found := crowdOf(all, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, "tcp", &steps); found {
		t.Errorf("ten rules of ten VLANs: %s", f.msg)
	}
	if f, found := crowdOf(all, every(len(all)), "tcp", &steps); found || steps >= 0 {
		t.Errorf("%d steps left, found %+v", steps, f)
	}
}

func every(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func TestWithout(t *testing.T) {
	one := func(first, last uint64) stretch { return stretch{point{lo: first}, point{lo: last}} }
	for _, tc := range []struct{ in, holes, want []stretch }{
		{[]stretch{one(0, 9)}, nil, []stretch{one(0, 9)}},
		{[]stretch{one(0, 9)}, []stretch{one(0, 9)}, nil},
		{[]stretch{one(0, 9)}, []stretch{one(0, 3)}, []stretch{one(4, 9)}},
		{[]stretch{one(0, 9)}, []stretch{one(5, 20)}, []stretch{one(0, 4)}},
		{[]stretch{one(0, 9), one(20, 29)}, []stretch{one(3, 4), one(8, 22), one(29, 40)}, []stretch{one(0, 2), one(5, 7), one(23, 28)}},
		{[]stretch{wholeLine(addressBits6)}, []stretch{wholeLine(addressBits6)}, nil},
	} {
		if got := without(tc.in, tc.holes); !slices.Equal(got, tc.want) {
			t.Errorf("%v without %v: %v, want %v", tc.in, tc.holes, got, tc.want)
		}
	}
}
