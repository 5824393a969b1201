package attachments

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/config"
)

// RC-111: where packets of each interface of a rack come in.
func TestInlets(t *testing.T) {
	s := rack()
	s.nics = append(s.nics,
		nic{name: "bond0.5.6", index: 30, kind: "vlan", parent: 11, vlan: 6},
		nic{name: "team0", index: 31, kind: "team"},
		nic{name: "eth4", index: 32, kind: "device", master: 31},
	)
	for i := range s.nics {
		switch s.nics[i].name {
		case "bond0.5":
			s.nics[i].vlan = 5
		case "eth2.7":
			s.nics[i].vlan = 7
		}
	}
	for name, want := range map[string]string{ // index and tag, -1 for any
		"eth0":      "[{2 -1}]",
		"bond0":     "[{10 -1} {2 -1} {3 -1}]",
		"team0":     "[{31 -1} {32 -1}]",
		"bond0.5":   "[{11 -1} {10 5} {2 5} {3 5}]",
		"bond0.5.6": "[{30 -1} {11 6}]",
		"eth2.7":    "[{12 -1} {4 7}]",
		"br0":       "[{20 -1}]", // its ports also carry what only passes the bridge
		"mac0":      "[{21 -1}]", // its parent also carries what is for others
		"eth9":      "[]",
	} {
		if got := fmt.Sprint(s.Inlets(name)); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// RC-135: which rules ask for a tag where something is attached.
func TestNeedsTag(t *testing.T) {
	s := rack()
	for _, c := range []struct {
		match, attached string
		want            bool
	}{
		{"protocol: udp", "eth2", false},
		{"vlan: 7", "eth2", true},
		{"vlan: 7, interfaces: [eth2]", "eth2", true},
		{"vlan: 7, interfaces: [eth3]", "eth2", false},
		{"vlan: 7, interfaces: [gone0]", "eth2", false},
		{"interfaces: [eth2.7]", "eth2", true},
		{"interfaces: [eth2.7]", "eth2.7", false},
		{"interfaces: [eth2.7, eth2]", "eth2", false},
		{"interfaces: [bond0.5]", "bond0", true},
		{"interfaces: [bond0.5]", "eth0", true},
		{"interfaces: [bond0.5]", "eth2", false},
		{"interfaces: [bond0]", "eth0", false},
		{"interfaces: [bond0], vlan: 7", "eth0", true},
	} {
		r, err := config.ParseRule("rule", []byte("{name: r, match: {"+c.match+"}, per: source, rate: 100/s}"))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.NeedsTag(&r.Match, c.attached); got != c.want {
			t.Errorf("%s while %s is attached: %v, want %v", c.match, c.attached, got, c.want)
		}
	}
}
