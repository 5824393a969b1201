package packets

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gopacket/gopacket/layers"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

const (
	qTag  = layers.EthernetTypeDot1Q // IEEE 802.1Q
	adTag = layers.EthernetTypeQinQ  // IEEE 802.1ad
)

// Stacks are stacks of VLAN tags that are looked through, by name.
func Stacks() map[string][]rig.Tag {
	return map[string][]rig.Tag{
		"802.1Q":              {{ID: 10}},
		"802.1ad":             {{Type: adTag, ID: 10}},
		"QinQ":                {{Type: adTag, ID: 10}, {ID: 20}},
		"802.1Q twice":        {{ID: 10}, {ID: 20}},
		"802.1ad twice":       {{Type: adTag, ID: 10}, {Type: adTag, ID: 20}},
		"QinQ inside out":     {{ID: 10}, {Type: adTag, ID: 20}},
		"priority tag":        {{ID: 0, Priority: 5}},
		"802.1ad priority":    {{Type: adTag, ID: 0, Priority: 7}},
		"priority tag in tag": {{ID: 10}, {ID: 0, Priority: 3}},
		"highest id":          {{ID: 4095, Priority: 7}},
		"three tags":          {{ID: 1}, {ID: 2}, {ID: 3}},
		"four tags":           {{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}},
		"four 802.1ad tags":   {{Type: adTag, ID: 1}, {Type: adTag, ID: 2}, {Type: adTag, ID: 3}, {Type: adTag, ID: 4}},
	}
}

// VLAN is RC-010: in every stack of tags a blocked source is blocked, an
// allowed one allowed, and a limited one has the one bucket that it has
// without tags. What lies behind more tags than are looked through is dropped,
// whoever sent it.
func VLAN() Table {
	t := Table{
		Name:  "vlan",
		Rules: []config.Rule{perSource(2)},
		Allow: prefixes("198.51.100.7/32", "2001:db8:bad:7::7/128"),
		Block: prefixes("198.51.100.0/24", "2001:db8:bad::/48"),
	}
	all := Stacks()
	names := slices.Sorted(maps.Keys(all))
	for _, sources := range [][3]string{
		{"198.51.100.9", "198.51.100.7", "203.0.113.5"},
		{"2001:db8:bad::9", "2001:db8:bad:7::7", "2001:db8:1::5"},
	} {
		blocked, allowed, limited := sources[0], sources[1], sources[2]
		t.Cases = append(t.Cases, packet("untagged, first of two", "within_rate", From(limited)))
		reason := "within_rate"
		for _, name := range names {
			t.Cases = append(t.Cases,
				packet(name+", blocked "+blocked, "block", tagged(From(blocked), all[name])),
				packet(name+", allowed "+allowed, "allow", tagged(From(allowed), all[name])),
				packet(name+", limited "+limited, reason, tagged(From(limited), all[name])),
			)
			reason = "over_rate"
		}
		t.Cases = append(t.Cases, packet("untagged, the bucket is empty", "over_rate", From(limited)))
	}
	for _, name := range names {
		t.Cases = append(t.Cases,
			Case{Name: name + ", ARP", Reason: "vital", Frame: tagFrame(ARP("198.51.100.9", 1), all[name])},
			packet(name+", solicitation", "vital", tagged(ICMPv6("2001:db8:bad::9", 135, 255), all[name])),
		)
	}
	t.Cases = slices.Concat(t.Cases, beyondDepth(), foreignTags())
	return t
}

// beyondDepth are more tags than the program walks.
func beyondDepth() (cases []Case) {
	for _, n := range []int{5, 6, 10, 100, 300} {
		for _, kind := range []layers.EthernetType{qTag, adTag} {
			tags := slices.Repeat([]rig.Tag{{Type: kind, ID: 9}}, n)
			name := fmt.Sprintf("%d tags of type %#x", n, uint16(kind))
			for _, source := range []string{"198.51.100.9", "198.51.100.7", "203.0.113.9", "2001:db8:bad::9", "2001:db8:1::9"} {
				cases = append(cases, packet(name+" of "+source, "vlan_depth", tagged(From(source), tags)))
			}
			cases = append(cases, Case{Name: name + ", ARP", Reason: "vlan_depth", Frame: tagFrame(ARP("203.0.113.9", 1), tags)})
		}
	}
	return cases
}

// foreignTags are types that Linux takes for no VLAN: the host's stack does
// not look behind them either.
func foreignTags() (cases []Case) {
	for _, kind := range []layers.EthernetType{0x9100, 0x9200, 0x9300} {
		name := fmt.Sprintf("type %#x", uint16(kind))
		cases = append(cases, packet(name, "not_ip", tagged(From("198.51.100.9"), []rig.Tag{{Type: kind, ID: 10}})))
	}
	return cases
}

func tagged(p rig.Packet, tags []rig.Tag) rig.Packet {
	p.Tags = tags
	return p
}

// tagFrame puts tags into a frame that has none.
func tagFrame(frame []byte, tags []rig.Tag) []byte {
	out := slices.Clone(frame[:12])
	for _, tag := range tags {
		kind := tag.Type
		if kind == 0 {
			kind = qTag
		}
		tci := uint16(tag.Priority)<<13 | tag.ID
		out = append(out, byte(kind>>8), byte(kind), byte(tci>>8), byte(tci))
	}
	return append(out, frame[12:]...)
}
