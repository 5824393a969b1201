package packets

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gopacket/gopacket/layers"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

// Dress are odd ways to dress a packet, by name: none may escape what holds
// for its source. They are applied to a UDP packet of either family.
func Dress(v6 bool) map[string]func(*rig.Packet) {
	all := map[string]func(*rig.Packet){
		"plain": func(*rig.Packet) {},
		"first fragment": func(p *rig.Packet) {
			p.Fragment = &rig.Fragment{ID: 7, More: true}
			p.Payload = make([]byte, 64)
		},
		"later fragment": func(p *rig.Packet) {
			p.Fragment = &rig.Fragment{ID: 7, Offset: 9}
			p.Payload = make([]byte, 64)
		},
		"middle fragment": func(p *rig.Packet) {
			p.Fragment = &rig.Fragment{ID: 7, Offset: 9, More: true}
			p.Payload = make([]byte, 64)
		},
		"overlapping": func(p *rig.Packet) {
			p.Fragment = &rig.Fragment{ID: 7, Offset: 1}
			p.Payload = make([]byte, 64)
		},
		"hop limit 1": func(p *rig.Packet) { p.TTL = 1 },
		"large frame": func(p *rig.Packet) { p.Length = 1514 },
	}
	for name, tags := range Stacks() {
		all[name] = func(p *rig.Packet) { p.Tags = tags }
	}
	for name, proto := range map[string]layers.IPProtocol{
		"TCP": 6, "ICMP": 1, "ICMPv6": 58, "SCTP": 132, "GRE": 47, "ESP": 50, "raw 253": 253, "no next header": 59,
	} {
		all[name] = func(p *rig.Packet) { p.Protocol = proto; p.Type = 128; p.Payload = make([]byte, 24) }
	}
	if v6 {
		dressExtensions(all)
		return all
	}
	all["options"] = func(p *rig.Packet) { p.Options = make([]byte, 4) }
	all["all options"] = func(p *rig.Packet) { p.Options = make([]byte, 40) }
	all["tiny first fragment"] = func(p *rig.Packet) {
		p.Protocol = layers.IPProtocolTCP
		p.Fragment = &rig.Fragment{ID: 9, More: true}
	}
	return all
}

func dressExtensions(all map[string]func(*rig.Packet)) {
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
}

// Shapes is RC-010 (VLAN tags), RC-072 (fragments) and RC-073 (extension
// headers): whatever a frame's shape, its source is blocked, allowed and
// limited like any other.
func Shapes() Table {
	t := Table{
		Name:  "shapes",
		Rules: []config.Rule{perSource(2)},
		Allow: prefixes("198.51.100.7/32", "2001:db8:bad:7::7/128"),
		Block: prefixes("198.51.100.0/24", "2001:db8:bad::/48"),
	}
	for _, f := range []struct {
		name, blocked, allowed, limited string
		v6                              bool
	}{
		{"IPv4", "198.51.100.9", "198.51.100.7", "203.0.113.%d", false},
		{"IPv6", "2001:db8:bad::9", "2001:db8:bad:7::7", "2001:db8:1:%d::1", true},
	} {
		all := Dress(f.v6)
		for n, name := range slices.Sorted(maps.Keys(all)) {
			dressed := func(source string) rig.Packet {
				p := From(source)
				all[name](&p)
				return p
			}
			limited := fmt.Sprintf(f.limited, 2*n)
			free := fmt.Sprintf(f.limited, 2*n+1)
			t.Cases = append(t.Cases,
				packet(f.name+" "+name+", blocked", "block", dressed(f.blocked)),
				packet(f.name+" "+name+", allowed", "allow", dressed(f.allowed)),
				packet(f.name+" "+name+", first", "within_rate", dressed(limited)),
				packet(f.name+" after "+name, "within_rate", From(limited)),
				packet(f.name+" "+name+", third", "over_rate", dressed(limited)),
				packet(f.name+" "+name+", another source", "within_rate", dressed(free)),
			)
		}
	}
	return t
}

func packet(name, reason string, p rig.Packet) Case {
	p.Unmarked = true
	return Case{Name: name, Reason: reason, Frame: p.MustFrame()}
}
