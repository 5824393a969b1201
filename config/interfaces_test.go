package config

import (
	"strings"
	"testing"
)

// RC-046: names, patterns, and what a pattern leaves out.
func TestMatchesInterface(t *testing.T) {
	for _, tc := range []struct {
		item, name string
		want       bool
	}{
		{"eth0", "eth0", true},
		{"eth0", "eth01", false},
		{"eth*", "eth0", true},
		{"eth*", "eth0.100", true},
		{"eth*", "veth0", false},
		{"enp?s0", "enp3s0", true},
		{"enp?s0", "enp13s0", false},
		{"eth[0-3]", "eth2", true},
		{"eth[0-3]", "eth4", false},
		{"*", "eth0", true},
		{"*", "lo", false},
		{"?o", "lo", false},
		{"lo", "lo", true},
		{"l*", "lo", true},
		{"auto", "auto", false},
	} {
		if got := MatchesInterface(tc.item, tc.name); got != tc.want {
			t.Errorf("MatchesInterface(%q, %q) = %v", tc.item, tc.name, got)
		}
	}
}

// A rule may name what a pattern or auto may stand for, and nothing else.
func TestRulesNameInterfacesOfPatterns(t *testing.T) {
	const rule = "\nrules: [{name: r, per: source, rate: 1/s, match: {interfaces: eth1}}]\n"
	for _, items := range []string{"eth*", "auto", "lo, eth1"} {
		c := mustParse(t, "version: 1\nnetwork: {interfaces: ["+items+"]}"+rule)
		if !c.Network.Repair {
			t.Error("repair is off by default")
		}
	}
	_, err := Parse("c.yaml", []byte("version: 1\nnetwork: {interfaces: [\"ens*\"], repair: false}"+rule))
	if err == nil || !strings.Contains(err.Error(), `interface "eth1" is not in `) {
		t.Errorf("eth1 among ens*: %v", err)
	}
}
