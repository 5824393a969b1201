package config

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCheckRules(t *testing.T) {
	everywhere := func(n int) (rules []string) {
		for i := range n {
			rules = append(rules, fmt.Sprintf("{name: all%d, per: source, rate: 5/s}", i))
		}
		return rules
	}
	for _, tc := range []struct {
		name  string
		rules []string
		want  string
	}{
		{"none", nil, ""},
		{"four everywhere", everywhere(4), ""},
		{"five everywhere", everywhere(5), "5 limits meet on any packet, the most is 4: remove or narrow one of all0, all1, all2, all3 or all4"},
		{"a name twice", []string{"{name: a, per: client, rate: 1/s}", "{name: a, per: source, rate: 1/s}"}, `rule "a": the name is used twice: rename one`},
		{"four and one of tcp", append(everywhere(4), "{name: syn, match: {protocol: tcp}, per: source, rate: 5/s}"),
			"5 limits meet on a packet of tcp, the most is 4: remove or narrow one of all0, all1, all2, all3 or syn"},
		{"three and tcp and udp", append(everywhere(3), "{name: t, match: {protocol: tcp}, per: source, rate: 5/s}", "{name: u, match: {protocol: udp}, per: source, rate: 5/s}"), ""},
		{"three and two ports that meet", append(everywhere(3),
			"{name: p, match: {protocol: tcp, ports: [80, 8000-8010]}, per: source, rate: 5/s}",
			"{name: q, match: {protocol: tcp, ports: [8010-9000]}, per: source, rate: 5/s}"),
			"5 limits meet on a tcp packet to port 8010, the most is 4: remove or narrow one of all0, all1, all2, p or q"},
		{"three and two ports that do not", append(everywhere(3),
			"{name: p, match: {protocol: tcp, ports: [80, 8000-8010]}, per: source, rate: 5/s}",
			"{name: q, match: {protocol: tcp, ports: [8011-9000]}, per: source, rate: 5/s}"), ""},
		{"one rule whose own ports overlap", append(everywhere(3),
			"{name: p, match: {protocol: udp, ports: [53, 53, 50-60, 1-65535]}, per: source, rate: 5/s}"), ""},
		{"http rules are not counted", append(everywhere(4), "{name: h, per: client, rate: 5/s}", "{name: i, per: client, rate: 5/s}"), ""},
		{"long lists are cut", everywhere(12), "12 limits meet on any packet, the most is 4: remove or narrow one of all0, all1, all2, all3, all4, all5, all6, all7 or 4 more"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var rules []Rule
			for _, text := range tc.rules {
				rules = append(rules, mustRule(t, text))
			}
			err := CheckRules(rules)
			if got := fmt.Sprint(err); got != tc.want && !(err == nil && tc.want == "") {
				t.Errorf("\n got: %s\nwant: %s", got, tc.want)
			}
		})
	}
}

// A file's faults of the set stand at the rule that is too many.
func TestSetFaultsHavePlaces(t *testing.T) {
	text := "version: 1\nrules:\n"
	for i := range 5 {
		text += fmt.Sprintf("- {name: r%d, per: source, rate: 5/s}\n", i)
	}
	_, err := Parse("c.yaml", []byte(text+"- {name: r0, per: client, rate: 5/s}\n"))
	wantErrors(t, err,
		"c.yaml:7:3: 5 limits meet on any packet",
		"c.yaml:8:3: rule \"r0\": the name is used twice, first in line 3")
}

// The sweep over port edges against counting at every port.
func TestCrowdsAgainstEveryPort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ports = 24
		var all []placed
		for i := range rapid.IntRange(0, 9).Draw(t, "rules") {
			r := Rule{Name: fmt.Sprint(i), Gate: GateNetwork}
			if rapid.Bool().Draw(t, "tcp") {
				r.Match.Protocol = "tcp"
				for range rapid.IntRange(0, 3).Draw(t, "ports") {
					a, b := rapid.Uint16Range(1, ports).Draw(t, "a"), rapid.Uint16Range(1, ports).Draw(t, "b")
					r.Match.Ports = append(r.Match.Ports, PortRange{min(a, b), max(a, b)})
				}
			}
			all = append(all, placed{Rule: r, ok: true})
		}
		most := 0
		for port := uint16(1); port <= ports+1; port++ {
			n := 0
			for _, p := range all {
				hit := len(p.Match.Ports) == 0
				for _, pr := range p.Match.Ports {
					hit = hit || pr.First <= port && port <= pr.Last
				}
				if hit {
					n++
				}
			}
			most = max(most, n)
		}
		found := crowds(all)
		if (len(found) > 0) != (most > mostLimits) {
			t.Fatalf("%d rules meet, found %v", most, found)
		}
		if len(found) > 0 && !strings.HasPrefix(found[0].msg, fmt.Sprint(most)) && !strings.Contains(found[0].msg, "any packet") {
			t.Fatalf("%d rules meet, found %v", most, found)
		}
	})
}
