package packets

import (
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

// Unparsable are frames that contradict themselves: they are dropped with a
// reason of their own, but their source's block is the better reason where the
// source is known.
func Unparsable() Table {
	edit := func(p rig.Packet, at int, b byte) []byte {
		p.Unmarked = true
		f := p.MustFrame()
		f[at] = b
		return f
	}
	v4, v6, blocked := From("203.0.113.5"), From("2001:db8::1"), From("198.51.100.9")
	ext := From("2001:db8::1")
	ext.Headers = []rig.Header{{Protocol: 60, Body: make([]byte, 6)}}
	return Table{
		Name:  "unparsable",
		Rules: []config.Rule{perSource(1000)},
		Block: prefixes("198.51.100.9/32"),
		Cases: []Case{
			{Name: "IPv4 with version 5", Reason: "malformed", Frame: edit(v4, 14, 0x55)},
			{Name: "IPv4 header of 16 bytes", Reason: "malformed", Frame: edit(v4, 14, 0x44)},
			{Name: "IPv4 shorter than its header", Reason: "malformed", Frame: edit(v4, 17, 8)},
			{Name: "UDP without room for its header", Reason: "malformed", Frame: edit(v4, 17, 24)},
			{Name: "IPv6 with version 4", Reason: "malformed", Frame: edit(v6, 14, 0x40)},
			{Name: "IPv6 extension beyond its payload", Reason: "malformed", Frame: edit(ext, 55, 200)},
			{Name: "blocked, UDP without room", Reason: "block", Frame: edit(blocked, 17, 24)},
			{Name: "ARP for another hardware", Reason: "malformed", Frame: editARP(15, 6)},
			{Name: "ARP for another protocol", Reason: "malformed", Frame: editARP(16, 0x86)},
			{Name: "ARP with long link addresses", Reason: "malformed", Frame: editARP(18, 8)},
			{Name: "LLDP", Reason: "not_ip", Frame: append(
				[]byte{1, 0x80, 0xc2, 0, 0, 0xe, 2, 0, 0, 0, 0, 1, 0x88, 0xcc}, make([]byte, 46)...)},
		},
	}
}

func editARP(at int, b byte) []byte {
	f := ARP("203.0.113.5", 1)
	f[at] = b
	return f
}
