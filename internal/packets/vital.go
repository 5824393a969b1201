package packets

import (
	"net/netip"

	"github.com/gopacket/gopacket/layers"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

// ICMPv6 is a packet to all nodes; kind is its type.
func ICMPv6(source string, kind, hops uint8) rig.Packet {
	return rig.Packet{
		Src: netip.MustParseAddr(source), Dst: netip.MustParseAddr("ff02::1"), Unmarked: true,
		Protocol: layers.IPProtocolICMPv6, Type: kind, TTL: hops, Payload: make([]byte, 24),
	}
}

// DHCP is a UDP packet long enough for it.
func DHCP(source string, sport, dport uint16) rig.Packet {
	p := From(source)
	p.SrcPort, p.DstPort = sport, dport
	p.Payload = make([]byte, 240)
	return p
}

// ARP is a frame with the usual padding. Operation 1 asks, 2 answers.
func ARP(sender string, operation uint16) []byte {
	f := []byte{
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 8, 6,
		0, 1, 8, 0, 6, 4, 0, byte(operation), 2, 0, 0, 0, 0, 9,
	}
	f = append(f, netip.MustParseAddr(sender).AsSlice()...)
	f = append(f, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1)
	return append(f, make([]byte, 18)...)
}

// TooBig is an ICMP error from router that quotes a packet of quoted.
func TooBig(router, quoted string) rig.Packet {
	src, dst := netip.MustParseAddr(quoted), netip.MustParseAddr("203.0.113.77")
	p := rig.Packet{
		Src: netip.MustParseAddr(router), Dst: src, Unmarked: true,
		Protocol: layers.IPProtocolICMPv4, Type: 3, Code: 4,
	}
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

// Vital is RC-011: ARP, neighbour and router discovery, MLD, DHCP and "too
// big" pass a block of everything; what only looks like them does not.
func Vital() Table {
	alert := []rig.Header{{Protocol: 0, Body: []byte{5, 2, 0, 0, 1, 0}}}
	withAlert := func(p rig.Packet) rig.Packet { p.Headers = alert; return p }
	fragmented := func(p rig.Packet) rig.Packet { p.Fragment = &rig.Fragment{ID: 1, More: true}; return p }
	tagged := func(p rig.Packet) rig.Packet { p.Tags = []rig.Tag{{ID: 3}}; return p }
	return Table{
		Name:  "vital",
		Block: prefixes("0.0.0.0/0", "::/0"),
		Own:   []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:ffff::1")},
		Cases: []Case{
			packet("router solicitation", "vital", ICMPv6("fe80::1", 133, 255)),
			packet("router advertisement", "vital", ICMPv6("fe80::1", 134, 255)),
			packet("neighbour solicitation", "vital", ICMPv6("2001:db8::9", 135, 255)),
			packet("neighbour advertisement", "vital", ICMPv6("2001:db8::9", 136, 255)),
			packet("solicitation on a VLAN", "vital", tagged(ICMPv6("fe80::1", 135, 255))),
			packet("solicitation of hop limit 254", "block", ICMPv6("2001:db8::9", 135, 254)),
			packet("fragmented solicitation", "block", fragmented(ICMPv6("2001:db8::9", 135, 255))),
			packet("echo request", "block", ICMPv6("2001:db8::9", 128, 255)),
			packet("MLD report", "vital", withAlert(ICMPv6("fe80::1", 143, 1))),
			packet("MLD query", "vital", withAlert(ICMPv6("fe80::1", 130, 1))),
			packet("MLD without router alert", "block", ICMPv6("fe80::1", 143, 1)),
			packet("MLD of hop limit 2", "block", withAlert(ICMPv6("fe80::1", 143, 2))),
			packet("MLD of a global source", "block", withAlert(ICMPv6("2001:db8::9", 143, 1))),
			packet("DHCP offer", "vital", DHCP("192.0.2.254", 67, 68)),
			packet("DHCP discover", "vital", DHCP("0.0.0.0", 68, 67)),
			packet("DHCP relay", "vital", DHCP("192.0.2.254", 67, 67)),
			packet("DHCP from another port", "block", DHCP("192.0.2.254", 53, 68)),
			packet("DHCPv6 reply", "vital", DHCP("fe80::1", 547, 546)),
			packet("DHCPv6 from another port", "block", DHCP("fe80::1", 53, 546)),
			packet("fragmentation needed", "vital", TooBig("198.51.100.1", "192.0.2.1")),
			packet("fragmentation needed by others", "block", TooBig("198.51.100.1", "192.0.2.2")),
			packet("too big", "vital", TooBig("2001:db8:9::1", "2001:db8:ffff::1")),
			packet("too big by others", "block", TooBig("2001:db8:9::1", "2001:db8:ffff::2")),
			{Name: "ARP request", Reason: "vital", Frame: ARP("192.0.2.9", 1)},
			{Name: "ARP reply", Reason: "vital", Frame: ARP("192.0.2.9", 2)},
		},
	}
}

// Management is RC-007: source and port together pass before blocks and rules;
// one without the other does not.
func Management() Table {
	t := Table{
		Name:  "management",
		Rules: []config.Rule{perSource(1)},
		Block: prefixes("0.0.0.0/0", "::/0", "192.0.2.50/32"),
		Management: config.Management{
			Sources: prefixes("192.0.2.0/24", "2001:db8:ace::/48"),
			Ports:   []config.Port{{Protocol: "tcp", Number: 22}},
		},
	}
	for _, source := range []string{"192.0.2.50", "2001:db8:ace::5"} {
		ssh := From(source)
		ssh.Protocol, ssh.DstPort = layers.IPProtocolTCP, 22
		for range 3 {
			t.Cases = append(t.Cases, packet("SSH of "+source, "management", ssh))
		}
		ssh.DstPort = 23
		t.Cases = append(t.Cases, packet("another port of "+source, "block", ssh))
		ssh.Protocol, ssh.DstPort = layers.IPProtocolUDP, 22
		t.Cases = append(t.Cases, packet("UDP of "+source, "block", ssh))
	}
	other := From("198.51.100.1")
	other.Protocol, other.DstPort = layers.IPProtocolTCP, 22
	t.Cases = append(t.Cases, packet("SSH of another source", "block", other))
	return t
}
