package attachments

import (
	"slices"
	"strings"
	"testing"
)

// rack is a host with one of everything: two members in a bond, a VLAN device
// on the bond and one on eth2, a bridge over eth2's VLAN device and a veth, a
// macvlan on eth3.
func rack() Surroundings {
	return Surroundings{nics: []nic{
		{name: "lo", index: 1, kind: "device"},
		{name: "eth0", index: 2, kind: "device", master: 10},
		{name: "eth1", index: 3, kind: "device", master: 10},
		{name: "eth2", index: 4, kind: "device"},
		{name: "eth3", index: 5, kind: "device"},
		{name: "bond0", index: 10, kind: "bond"},
		{name: "bond0.5", index: 11, kind: "vlan", parent: 10},
		{name: "eth2.7", index: 12, kind: "vlan", parent: 4, master: 20},
		{name: "veth9", index: 13, kind: "veth", master: 20},
		{name: "br0", index: 20, kind: "bridge"},
		{name: "mac0", index: 21, kind: "macvlan", parent: 5},
	}}
}

// RC-046, RC-111: names, patterns and auto, and of two interfaces that see the
// same packet only one.
func TestChoose(t *testing.T) {
	const twice = "a packet would be judged twice"
	for _, tc := range []struct {
		what   string
		items  []string
		routes []int // indices of default routes
		held   []int
		want   string // names that are attached, in order
		faults string // name: part of its fault
		fatal  bool
		left   string // part of what is said of those left out
		note   string // part of a note
	}{
		{what: "names in the order of the config", items: []string{"eth3", "eth2"}, want: "eth3 eth2"},
		{what: "a name that is not there", items: []string{"eth2", "eth9"}, want: "eth2", faults: "eth9: no such interface: waiting for it (there is bond0, bond0.5, br0, eth0"},
		{what: "a pattern", items: []string{"eth[23]"}, want: "eth2 eth3"},
		{what: "a pattern and a name of it", items: []string{"eth3", "eth[23]"}, want: "eth3 eth2"},
		{what: "a pattern without a match", items: []string{"ens*"}, faults: "ens*: no interface matches: waiting for one"},
		{what: "everything", items: []string{"*"}, want: "bond0 eth2 eth3 veth9", left: "eth0 is left out: eth0 is a member of bond bond0, and " + twice},

		{what: "auto", items: []string{"auto"}, routes: []int{4}, want: "eth2"},
		{what: "auto over several hops and families", items: []string{"auto"}, routes: []int{5, 4, 5}, want: "eth2 eth3"},
		{what: "auto without a route", items: []string{"auto"}, faults: "auto: there is no default route: waiting for one"},
		{what: "auto keeps what it has while there is no route", items: []string{"auto"}, held: []int{5}, want: "eth3"},
		{what: "auto follows the route", items: []string{"auto"}, routes: []int{4}, held: []int{5}, want: "eth2"},
		{what: "auto beside a name", items: []string{"eth3", "auto"}, routes: []int{4}, want: "eth3 eth2"},

		{what: "a bond and its member", items: []string{"bond0", "eth0"}, faults: "eth0: eth0 is a member of bond bond0, and both are named: " + twice, fatal: true, want: "bond0"},
		{what: "a member that is attached, and its bond", items: []string{"bond0", "eth0"}, held: []int{2}, faults: "bond0: bond bond0 has eth0 as a member, and both are named", fatal: true, want: "eth0", note: "eth0 is a member of bond bond0, whose packets also come in by eth1 unfiltered: name bond0 instead"},
		{what: "a member alone", items: []string{"eth0"}, want: "eth0", note: "eth0 is a member of bond bond0, whose packets also come in by eth1 unfiltered: name bond0 instead"},
		{what: "all members", items: []string{"eth[01]"}, want: "eth0 eth1"},
		{what: "a named bond before matched members that are attached", items: []string{"eth*", "bond0"}, held: []int{2, 3}, want: "eth2 eth3 bond0", left: "eth1 is left out"},
		{what: "matched members that are attached before a matched bond", items: []string{"eth[01]", "bond*"}, held: []int{2, 3}, want: "eth0 eth1", left: "bond0 is left out: bond bond0 has eth0 as a member"},
		{what: "a VLAN device and the bond under it", items: []string{"bond0.5", "bond0"}, faults: "bond0.5: bond0.5 rides on bond0, and both are named", fatal: true, want: "bond0"},
		{what: "a VLAN device and a member of the bond under it", items: []string{"bond0.5", "eth1"}, faults: "eth1: bond0.5 rides on eth1", fatal: true, want: "bond0.5"},
		{what: "a VLAN device alone", items: []string{"eth2.7"}, want: "eth2.7"},
		{what: "a VLAN device and its parent", items: []string{"eth2.7", "eth2"}, faults: "eth2.7: eth2.7 rides on eth2", fatal: true, want: "eth2"},
		{what: "a bridge and what is under its member", items: []string{"br0", "eth2"}, faults: "br0: br0 rides on eth2", fatal: true, want: "eth2"},
		{what: "a macvlan device and its parent", items: []string{"mac0", "eth3"}, faults: "mac0: mac0 rides on eth3", fatal: true, want: "eth3"},
		{what: "the bond of auto, and the members by pattern", items: []string{"eth*", "auto"}, routes: []int{10}, want: "eth2 eth3 bond0", left: "eth0 is left out"},
	} {
		s := rack()
		for _, r := range tc.routes {
			s.routes = append(s.routes, defaultHop{index: r})
		}
		held := map[int]bool{}
		for _, h := range tc.held {
			held[h] = true
		}
		picks, left := choose(tc.items, s, held)
		var names, faults, notes []string
		fatal := false
		for _, p := range picks {
			if p.fault != "" {
				faults = append(faults, p.name+": "+p.fault)
				fatal = fatal || p.fatal
				continue
			}
			names = append(names, p.name)
			notes = append(notes, p.note)
		}
		if got := strings.Join(names, " "); got != tc.want {
			t.Errorf("%s: attached %q, want %q", tc.what, got, tc.want)
		}
		if got := strings.Join(faults, "; "); !strings.HasPrefix(got, tc.faults) || (got == "") != (tc.faults == "") || fatal != tc.fatal {
			t.Errorf("%s: faults %q (fatal %v), want %q (%v)", tc.what, got, fatal, tc.faults, tc.fatal)
		}
		if got := strings.Join(left, "; "); !strings.Contains(got, tc.left) || (got == "") != (tc.left == "") {
			t.Errorf("%s: left out %q, want %q", tc.what, got, tc.left)
		}
		if got := strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; "); got != tc.note {
			t.Errorf("%s: notes %q, want %q", tc.what, got, tc.note)
		}
	}
}
