package maps

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

// RC-111: a rule on a bond or on a VLAN device holds for what comes in by the
// bond's members or the device's parent, and charges a packet once, however
// often its interfaces stand for the packet. Test runs come in by lo.
func TestRulesOnInlets(t *testing.T) {
	g := fixedGate(t)
	tagged := func(ids ...uint16) (p rig.Packet) {
		p = rig.Packet{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.9"), Protocol: layers.IPProtocolUDP, SrcPort: 9, DstPort: 53}
		for _, id := range ids {
			p.Tags = append(p.Tags, rig.Tag{ID: id})
		}
		return p
	}
	for _, c := range []struct {
		what       string
		interfaces []string
		vlans      []uint16
		packet     rig.Packet
		want       uint64
	}{
		{"the member itself", []string{"lo"}, nil, tagged(), 1},
		{"the bond", []string{"bond0"}, nil, tagged(), 1},
		{"the bond and its member", []string{"bond0", "lo"}, nil, tagged(), 1},
		{"another member", []string{"other0"}, nil, tagged(), 0},
		{"what is not there", []string{"gone0"}, nil, tagged(), 0},
		{"what is not there, and the bond", []string{"gone0", "bond0"}, nil, tagged(), 1},
		{"a VLAN of the bond, untagged", []string{"bond0.10"}, nil, tagged(), 0},
		{"a VLAN of the bond", []string{"bond0.10"}, nil, tagged(10), 1},
		{"a VLAN of the bond, another tag", []string{"bond0.10"}, nil, tagged(20, 10), 0},
		{"a VLAN of the bond, beside the bond", []string{"bond0.10", "bond0"}, nil, tagged(10), 1},
		{"two VLAN devices, untagged", []string{"bond0.10", "bond0.20"}, nil, tagged(), 0},
		{"two VLAN devices, the first", []string{"bond0.10", "bond0.20"}, nil, tagged(10), 1},
		{"two VLAN devices, the second", []string{"bond0.10", "bond0.20"}, nil, tagged(20, 10), 1},
		{"two VLAN devices, another tag", []string{"bond0.10", "bond0.20"}, nil, tagged(30), 0},
		{"a VLAN device and its own id", []string{"bond0.10"}, []uint16{10, 20}, tagged(10), 1},
		{"a VLAN device and another id", []string{"bond0.10"}, []uint16{20}, tagged(10), 0},
		{"the bond and an id", []string{"bond0"}, []uint16{20}, tagged(20), 1},
	} {
		r := perSource("on", 1000, time.Second, 1000, config.Match{Interfaces: c.interfaces, VLANs: c.vlans})
		r.Overrides = []config.Override{{From: config.Addresses{Prefixes: prefixes("198.51.100.0/24")}, Rate: r.Rate, Burst: r.Burst}}
		err := g.setRules([]config.Rule{r}, config.Management{}, nil, func(name string) ([]Inlet, error) { return poolInlets[name], nil })
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		for _, source := range []string{"192.0.2.1", "198.51.100.1"} { // by the rule's figures, and by the override's
			before := g.passedBy("on")
			c.packet.Src = netip.MustParseAddr(source)
			g.want([]string{"no_rule", "within_rate"}[c.want], c.packet)
			if got := g.passedBy("on") - before; got != c.want {
				t.Errorf("%s: %s is charged %d times, want %d", c.what, source, got, c.want)
			}
		}
	}
}

func (g testGate) passedBy(rule string) uint64 {
	g.t.Helper()
	all, err := g.RuleCounters()
	if err != nil {
		g.t.Fatal(err)
	}
	return all[rule].PassedPackets
}
