package maps

import (
	"fmt"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

// shapes are odd ways to dress a packet: none may escape what holds for its
// source. They are applied to a UDP packet of either family.
func shapes(v6 bool) map[string]func(*rig.Packet) {
	all := map[string]func(*rig.Packet){
		"plain":          func(*rig.Packet) {},
		"802.1Q":         func(p *rig.Packet) { p.Tags = []rig.Tag{{ID: 10}} },
		"priority tag":   func(p *rig.Packet) { p.Tags = []rig.Tag{{ID: 0, Priority: 5}} },
		"802.1ad":        func(p *rig.Packet) { p.Tags = []rig.Tag{{Type: 0x88a8, ID: 10}} },
		"QinQ":           func(p *rig.Packet) { p.Tags = []rig.Tag{{Type: 0x88a8, ID: 10}, {ID: 20}} },
		"four tags":      func(p *rig.Packet) { p.Tags = []rig.Tag{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}} },
		"first fragment": func(p *rig.Packet) { p.Fragment = &rig.Fragment{ID: 7, More: true}; p.Payload = make([]byte, 64) },
		"later fragment": func(p *rig.Packet) { p.Fragment = &rig.Fragment{ID: 7, Offset: 9}; p.Payload = make([]byte, 64) },
		"middle fragment": func(p *rig.Packet) {
			p.Fragment = &rig.Fragment{ID: 7, Offset: 9, More: true}
			p.Payload = make([]byte, 64)
		},
		"overlapping": func(p *rig.Packet) { p.Fragment = &rig.Fragment{ID: 7, Offset: 1}; p.Payload = make([]byte, 64) },
		"hop limit 1": func(p *rig.Packet) { p.TTL = 1 },
		"large frame": func(p *rig.Packet) { p.Length = 1514 },
	}
	for name, proto := range map[string]layers.IPProtocol{
		"TCP": 6, "ICMP": 1, "ICMPv6": 58, "SCTP": 132, "GRE": 47, "ESP": 50, "raw 253": 253, "no next header": 59,
	} {
		all[name] = func(p *rig.Packet) { p.Protocol = proto; p.Type = 128; p.Payload = make([]byte, 24) }
	}
	if !v6 {
		all["options"] = func(p *rig.Packet) { p.Options = make([]byte, 4) }
		all["all options"] = func(p *rig.Packet) { p.Options = make([]byte, 40) }
		all["tiny first fragment"] = func(p *rig.Packet) {
			p.Protocol = layers.IPProtocolTCP
			p.Fragment = &rig.Fragment{ID: 9, More: true}
		}
		return all
	}
	extensions := map[string]layers.IPProtocol{
		"hop-by-hop": 0, "routing": 43, "destination": 60, "AH": 51, "mobility": 135,
	}
	for name, number := range extensions {
		for _, n := range []int{1, 2, 5, 10} {
			all[fmt.Sprintf("%s × %d", name, n)] = func(p *rig.Packet) {
				for range n {
					p.Headers = append(p.Headers, rig.Header{Protocol: number, Body: make([]byte, 6)})
				}
			}
		}
	}
	all["odd order"] = func(p *rig.Packet) {
		for _, number := range []layers.IPProtocol{60, 43, 0, 51, 60, 135} {
			p.Headers = append(p.Headers, rig.Header{Protocol: number, Body: make([]byte, 14)})
		}
	}
	all["chain too long"] = func(p *rig.Packet) {
		for range 13 {
			p.Headers = append(p.Headers, rig.Header{Protocol: 60, Body: make([]byte, 6)})
		}
	}
	return all
}

// RC-010 VLAN tags, RC-072 fragments, RC-073 extension headers: whatever a
// frame's shape, its source is blocked, allowed and limited like any other.
func TestNoShapeEscapesItsSource(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("all", 1, time.Hour, 2, config.Match{}))
	g.lists(Lists{
		Allow: prefixes("198.51.100.7/32", "2001:db8:bad:7::7/128"),
		Block: forever("198.51.100.0/24", "2001:db8:bad::/48"),
	})
	families := map[string]struct{ blocked, allowed, limited string }{
		"IPv4": {"198.51.100.9", "198.51.100.7", "203.0.113.%d"},
		"IPv6": {"2001:db8:bad::9", "2001:db8:bad:7::7", "2001:db8:1:%d::1"},
	}
	for family, s := range families {
		n := 0
		for name, dress := range shapes(family == "IPv6") {
			n++
			limited, free := fmt.Sprintf(s.limited, 2*n), fmt.Sprintf(s.limited, 2*n+1)
			t.Run(family+" "+name, func(t *testing.T) {
				g := testGate{g.Gate, t}
				dressed := func(source string) rig.Packet {
					p := from(source)
					dress(&p)
					return p
				}
				g.want("block", dressed(s.blocked))
				g.want("allow", dressed(s.allowed))
				g.want("within_rate", dressed(limited))
				g.want("within_rate", from(limited))
				g.want("over_rate", dressed(limited))
				g.want("within_rate", dressed(free))
			})
		}
	}
}

// What can't be parsed is dropped with its own reason, but its source's block
// is the better reason where the source is known.
func TestUnparsableFrames(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("all", 1, time.Hour, 1000, config.Match{}))
	g.lists(Lists{Block: forever("198.51.100.9/32")})
	edit := func(p rig.Packet, change func(f []byte) []byte) []byte {
		p.Unmarked = true
		return change(p.MustFrame())
	}
	cut := func(n int) func([]byte) []byte { return func(f []byte) []byte { return f[:n] } }
	set := func(at int, b byte) func([]byte) []byte {
		return func(f []byte) []byte { f[at] = b; return f }
	}
	five := from("203.0.113.5")
	five.Tags = []rig.Tag{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}, {ID: 5}}
	ext := from("2001:db8::1")
	ext.Headers = []rig.Header{{Protocol: 60, Body: make([]byte, 6)}}
	for _, c := range []struct {
		name, reason string
		frame        []byte
	}{
		{"five tags", "vlan_depth", edit(five, func(f []byte) []byte { return f })},
		{"IPv4 cut in its header", "truncated", edit(from("203.0.113.5"), cut(30))},
		{"IPv4 cut before the ports", "truncated", edit(from("203.0.113.5"), cut(36))},
		{"IPv6 cut in its header", "truncated", edit(from("2001:db8::1"), cut(50))},
		{"IPv6 cut in an extension", "truncated", edit(ext, cut(58))},
		{"IPv4 with version 5", "malformed", edit(from("203.0.113.5"), set(14, 0x55))},
		{"IPv4 header of 16 bytes", "malformed", edit(from("203.0.113.5"), set(14, 0x44))},
		{"IPv4 shorter than its header", "malformed", edit(from("203.0.113.5"), set(17, 8))},
		{"UDP without room for its header", "malformed", edit(from("203.0.113.5"), set(17, 24))},
		{"IPv6 with version 4", "malformed", edit(from("2001:db8::1"), set(14, 0x40))},
		{"IPv6 extension beyond its payload", "malformed", edit(ext, set(55, 200))},
		{"blocked, cut before the ports", "block", edit(from("198.51.100.9"), cut(36))},
		{"blocked, UDP without room", "block", edit(from("198.51.100.9"), set(17, 24))},
		{"LLDP", "not_ip", append([]byte{1, 0x80, 0xc2, 0, 0, 0xe, 2, 0, 0, 0, 0, 1, 0x88, 0xcc}, make([]byte, 46)...)},
		{"ARP for another hardware", "malformed", append([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6, 0, 6}, make([]byte, 44)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			testGate{g.Gate, t}.wantFrame(c.reason, c.frame)
		})
	}
}
