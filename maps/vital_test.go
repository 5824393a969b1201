package maps

import (
	"encoding/binary"

	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

var routerAlert = []rig.Header{{Protocol: 0, Body: []byte{5, 2, 0, 0, 1, 0}}}

func icmp6(source string, kind, hops uint8) rig.Packet {
	return rig.Packet{
		Src: netip.MustParseAddr(source), Dst: netip.MustParseAddr("ff02::1"),
		Protocol: layers.IPProtocolICMPv6, Type: kind, TTL: hops, Payload: make([]byte, 24),
	}
}

func dhcp(source string, sport, dport uint16) rig.Packet {
	p := from(source)
	p.SrcPort, p.DstPort = sport, dport
	p.Payload = make([]byte, 240)
	return p
}

func arp(sender string, operation uint16) []byte {
	f := []byte{
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 8, 6,
		0, 1, 8, 0, 6, 4, 0, byte(operation), 2, 0, 0, 0, 0, 9,
	}
	f = append(f, netip.MustParseAddr(sender).AsSlice()...)
	f = append(f, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1)
	return append(f, make([]byte, 18)...)
}

// tooBig is an ICMP error from router that quotes a packet of quoted.
func tooBig(router, quoted string) rig.Packet {
	src, dst := netip.MustParseAddr(quoted), netip.MustParseAddr("203.0.113.77")
	p := rig.Packet{Src: netip.MustParseAddr(router), Dst: src, Protocol: layers.IPProtocolICMPv4, Type: 3, Code: 4}
	if src.Is6() {
		dst = netip.MustParseAddr("2001:db8:77::1")
		p.Protocol, p.Type, p.Code = layers.IPProtocolICMPv6, 2, 0
	}
	inner := rig.Packet{Src: src, Dst: dst, SrcPort: 443, DstPort: 50000, Unmarked: true}.MustFrame()
	if src.Is6() {
		p.Payload = []byte{0, 0, 5, 0} // the MTU
	}
	p.Payload = append(p.Payload, inner[14:]...)
	return p
}

// RC-011: ARP, neighbour and router discovery, MLD, DHCP and "too big" pass a
// block of everything; what only looks like them does not.
func TestVitalPassesABlockOfEverything(t *testing.T) {
	g := fixedGate(t)
	g.rules()
	g.lists(Lists{Block: forever("0.0.0.0/0", "::/0")})
	if err := g.SetOwnAddresses([]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:ffff::1")}); err != nil {
		t.Fatal(err)
	}
	withAlert := func(p rig.Packet) rig.Packet { p.Headers = routerAlert; return p }
	fragmented := func(p rig.Packet) rig.Packet { p.Fragment = &rig.Fragment{ID: 1, More: true}; return p }
	tagged := func(p rig.Packet) rig.Packet { p.Tags = []rig.Tag{{ID: 3}}; return p }
	for _, c := range []struct {
		name, reason string
		packet       rig.Packet
	}{
		{"router solicitation", "vital", icmp6("fe80::1", 133, 255)},
		{"router advertisement", "vital", icmp6("fe80::1", 134, 255)},
		{"neighbour solicitation", "vital", icmp6("2001:db8::9", 135, 255)},
		{"neighbour advertisement", "vital", icmp6("2001:db8::9", 136, 255)},
		{"solicitation on a VLAN", "vital", tagged(icmp6("fe80::1", 135, 255))},
		{"solicitation of hop limit 254", "block", icmp6("2001:db8::9", 135, 254)},
		{"fragmented solicitation", "block", fragmented(icmp6("2001:db8::9", 135, 255))},
		{"echo request", "block", icmp6("2001:db8::9", 128, 255)},
		{"MLD report", "vital", withAlert(icmp6("fe80::1", 143, 1))},
		{"MLD query", "vital", withAlert(icmp6("fe80::1", 130, 1))},
		{"MLD without router alert", "block", icmp6("fe80::1", 143, 1)},
		{"MLD of hop limit 2", "block", withAlert(icmp6("fe80::1", 143, 2))},
		{"MLD of a global source", "block", withAlert(icmp6("2001:db8::9", 143, 1))},
		{"DHCP offer", "vital", dhcp("192.0.2.254", 67, 68)},
		{"DHCP discover", "vital", dhcp("0.0.0.0", 68, 67)},
		{"DHCP relay", "vital", dhcp("192.0.2.254", 67, 67)},
		{"DHCP from another port", "block", dhcp("192.0.2.254", 53, 68)},
		{"DHCPv6 reply", "vital", dhcp("fe80::1", 547, 546)},
		{"DHCPv6 from another port", "block", dhcp("fe80::1", 53, 546)},
		{"fragmentation needed", "vital", tooBig("198.51.100.1", "192.0.2.1")},
		{"fragmentation needed by others", "block", tooBig("198.51.100.1", "192.0.2.2")},
		{"too big", "vital", tooBig("2001:db8:9::1", "2001:db8:ffff::1")},
		{"too big by others", "block", tooBig("2001:db8:9::1", "2001:db8:ffff::2")},
	} {
		t.Run(c.name, func(t *testing.T) { testGate{g.Gate, t}.want(c.reason, c.packet) })
	}
	g.wantFrame("vital", arp("192.0.2.9", 1))
	g.wantFrame("vital", arp("192.0.2.9", 2))
}

// Vital traffic has caps of its own, 200/s a source and 10 000/s in all;
// beyond them what holds for its source holds.
func TestVitalCaps(t *testing.T) {
	g := fixedGate(t)
	g.rules()
	g.lists(Lists{Block: forever("192.0.2.0/24", "fe80::/10")})
	solicit := icmp6("fe80::1", 135, 255)
	solicit.SrcMAC = net.HardwareAddr{2, 1, 0, 0, 0, 0}
	if got := g.count(250, solicit); got != vitalPerSource {
		t.Errorf("%d of 250 solicitations of one station passed, want %d", got, vitalPerSource)
	}
	// its link address is the source: another of the same prefix is another
	solicit.SrcMAC = net.HardwareAddr{2, 1, 0, 0, 0, 1}
	g.want("vital", solicit)
	g.advance(time.Second)
	passed := 0
	for station := range uint16(120) {
		solicit.SrcMAC = net.HardwareAddr{2, 2, 0, 0, 0, 0}
		binary.BigEndian.PutUint16(solicit.SrcMAC[4:], station)
		passed += g.count(100, solicit)
	}
	if passed != vitalTotal {
		t.Errorf("%d of 12000 solicitations of 120 stations passed, want %d", passed, vitalTotal)
	}
	g.wantFrame("block", arp("192.0.2.9", 1))
	g.wantFrame("no_rule", arp("203.0.113.9", 1))
	g.advance(time.Second)
	g.wantFrame("vital", arp("192.0.2.9", 1))
}

// RC-007 (management): source and port together pass before blocks and rules;
// one without the other does not.
func TestManagement(t *testing.T) {
	g := fixedGate(t)
	m := config.Management{Sources: prefixes("192.0.2.0/24", "2001:db8:ace::/48"), Ports: []config.Port{{Protocol: "tcp", Number: 22}}}
	if err := g.SetRules([]config.Rule{perSource("all", 1, time.Hour, 1, config.Match{})}, m, nil); err != nil {
		t.Fatal(err)
	}
	g.lists(Lists{Management: m.Sources, Block: forever("0.0.0.0/0", "::/0", "192.0.2.50/32")})
	for _, source := range []string{"192.0.2.50", "2001:db8:ace::5"} {
		ssh := from(source)
		ssh.Protocol, ssh.DstPort = layers.IPProtocolTCP, 22
		for range 3 {
			g.want("management", ssh)
		}
		ssh.DstPort = 23
		g.want("block", ssh)
		ssh.Protocol, ssh.DstPort = layers.IPProtocolUDP, 22
		g.want("block", ssh)
	}
	other := from("198.51.100.1")
	other.Protocol, other.DstPort = layers.IPProtocolTCP, 22
	g.want("block", other)
	g.lists(Lists{Management: m.Sources})
	g.want("within_rate", other)
	g.want("over_rate", other)
	g.want("within_rate", from("192.0.2.50"))
	g.want("over_rate", from("192.0.2.50"))
}
