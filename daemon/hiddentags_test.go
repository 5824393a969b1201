package daemon

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon/attachments"
	"github.com/headgate/headgate/daemon/preflight"
)

// RC-135: a rule by VLAN at a card that takes tags out is refused while it is
// new, and told of when it is in force; other rules, and rules at other
// interfaces, are not concerned. (There is no such card here.)
func TestRulesThatNeverSeeTheirTag(t *testing.T) {
	rule := func(text string) liveRule {
		r, err := config.ParseRule("rule", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return liveRule{Rule: r}
	}
	p := &policy{rules: []liveRule{
		rule(`{name: guests, match: {vlan: 10}, per: source, rate: 100/s}`),
		rule(`{name: trunk, match: {vlan: 20, interfaces: [eth1]}, per: source, rate: 100/s}`),
		rule(`{name: all, per: source, rate: 100/s}`),
	}}
	looks := map[string]int{}
	look := func(name string) *preflight.Hidden {
		looks[name]++
		f := preflight.Facts{Name: name, Kind: "device"}
		if name == "eth0" {
			f.Features = map[string]bool{"rx-vlan-hw-parse": true}
		}
		return f.HidesTags()
	}
	found := hiddenTags(p, attachments.Surroundings{}, []string{"eth0", "eth1"}, look)
	if len(found) != 1 || found[0].rule.Name != "guests" || !found[0].Sure || !strings.Contains(found[0].String(), "rule guests: eth0 takes the VLAN tag out") || !strings.Contains(found[0].String(), "ethtool -K eth0 rxvlan off") {
		t.Errorf("found %v", found)
	}
	if looks["eth0"] != 1 || looks["eth1"] != 1 {
		t.Errorf("looked %v", looks)
	}
}
