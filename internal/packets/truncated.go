package packets

import (
	"fmt"

	"github.com/gopacket/gopacket/layers"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

// chain is a chain of headers, and how many bytes of a frame it takes to know
// its source, and all that a verdict asks for.
type chain struct {
	name           string
	packet         rig.Packet
	source, needed int
}

const (
	ports = 4 // of TCP and UDP
	icmp  = 8
)

// chains are the kinds of headers. add takes the bytes that the headers behind the
// IP header have, and those that are needed of the last.
func chains(v6 bool) (all []chain) {
	add := func(name string, headers, last int, change func(*rig.Packet)) {
		c := chain{name: "IPv4 " + name, packet: From("203.0.113.5"), source: 14 + 20}
		if v6 {
			c = chain{name: "IPv6 " + name, packet: From("2001:db8:1::5"), source: 14 + 40}
		}
		change(&c.packet)
		c.source += 4 * len(c.packet.Tags)
		c.needed = c.source + headers + last
		all = append(all, c)
	}
	proto := func(n layers.IPProtocol) func(*rig.Packet) {
		return func(p *rig.Packet) { p.Protocol, p.Type, p.Payload = n, 128, make([]byte, 24) }
	}
	fragment := func(offset uint16) func(*rig.Packet) {
		return func(p *rig.Packet) { p.Fragment = &rig.Fragment{ID: 7, Offset: offset, More: true} }
	}
	tags := func(n int) func(*rig.Packet) {
		return func(p *rig.Packet) { p.Tags = []rig.Tag{{Type: adTag, ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}}[:n] }
	}
	add("UDP", 0, ports, func(*rig.Packet) {})
	add("TCP", 0, ports, proto(6))
	add("SCTP", 0, 0, proto(132))
	for _, n := range []int{1, 2, 4} {
		add(fmt.Sprintf("behind %d tags", n), 0, ports, tags(n))
	}
	if !v6 {
		add("ICMP", 0, icmp, proto(1))
		add("first fragment", 0, ports, fragment(0))
		add("later fragment", 0, 0, fragment(1))
		add("4 bytes of options", 4, ports, func(p *rig.Packet) { p.Options = make([]byte, 4) })
		add("40 bytes of options", 40, ports, func(p *rig.Packet) { p.Options = make([]byte, 40) })
		add("later fragment with options", 12, 0, func(p *rig.Packet) { fragment(1)(p); p.Options = make([]byte, 12) })
		return all
	}
	headers := func(bodies ...rig.Header) func(*rig.Packet) {
		return func(p *rig.Packet) { p.Headers = bodies }
	}
	eight := func(n layers.IPProtocol) rig.Header { return rig.Header{Protocol: n, Body: make([]byte, 6)} }
	add("ICMPv6", 0, icmp, proto(58))
	add("no next header", 0, 0, proto(59))
	add("first fragment", 8, ports, fragment(0))
	add("later fragment", 8, 0, fragment(1))
	for _, n := range []layers.IPProtocol{0, 43, 51, 60, 135, 139, 140} {
		add(fmt.Sprintf("extension %d", n), 8, ports, headers(eight(n)))
	}
	add("a long extension", 24, ports, headers(rig.Header{Protocol: 60, Body: make([]byte, 22)}))
	add("three extensions", 8+16+8, ports, headers(eight(0), rig.Header{Protocol: 43, Body: make([]byte, 14)}, eight(60)))
	// of the thirteenth nothing is asked but that it is one
	add("too many extensions", 12*8, 0, func(p *rig.Packet) {
		for range 13 {
			p.Headers = append(p.Headers, eight(60))
		}
	})
	return all
}

// Truncated cuts every kind of header at every length, once by ending the
// frame and once by ending its first buffer: no source escapes what holds for
// it, and the reason says what was known.
func Truncated() Table {
	t := Table{
		Name:  "truncated",
		Rules: []config.Rule{perSource(1)},
		Allow: prefixes("198.51.100.7/32", "2001:db8:bad:7::7/128"),
		Block: prefixes("198.51.100.0/24", "2001:db8:bad::/48"),
		Cases: []Case{
			packet("empty the bucket", "within_rate", From("203.0.113.5")),
			packet("empty the bucket", "within_rate", From("2001:db8:1::5")),
		},
	}
	for _, c := range append(chains(false), chains(true)...) {
		blocked, allowed := "198.51.100.9", "198.51.100.7"
		if c.packet.Src.Is6() {
			blocked, allowed = "2001:db8:bad::9", "2001:db8:bad:7::7"
		}
		t.Cases = append(t.Cases, c.cut("over_rate", "truncated")...)
		c.packet.Src = From(blocked).Src
		t.Cases = append(t.Cases, c.cut("block", "block")...)
		c.packet.Src = From(allowed).Src
		t.Cases = append(t.Cases, c.cut("allow", "truncated")...)
	}
	const arp = 14 + 28
	frame := ARP("198.51.100.9", 1)
	for n := 14; n <= len(frame); n++ {
		reason := "malformed"
		if n >= arp {
			reason = "vital"
		}
		t.Cases = append(t.Cases, Case{Name: fmt.Sprintf("ARP of %d bytes", n), Reason: reason, Frame: frame[:n]})
	}
	return t
}

// cut returns the frame cut at each length up to a little more than what is
// needed. whole is the reason of a frame with all its headers, known of one
// that ends behind its source.
func (c chain) cut(whole, known string) (cases []Case) {
	frame := c.packet.MustFrame()
	for n := 1; n <= min(c.needed+2, len(frame)); n++ {
		reason := "truncated"
		switch {
		case n >= c.needed:
			reason = whole
		case n >= c.source:
			reason = known
		}
		name := fmt.Sprintf("%s of %v", c.name, c.packet.Src)
		if n >= 14 { // no test run takes a frame shorter than Ethernet's header
			cases = append(cases, Case{Name: fmt.Sprintf("%s, %d bytes", name, n), Reason: reason, Frame: frame[:n]})
		}
		if n < len(frame) {
			cases = append(cases, Case{Name: fmt.Sprintf("%s, first buffer of %d bytes", name, n), Reason: reason, Frame: frame, Linear: n})
		}
	}
	return cases
}
