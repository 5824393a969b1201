package config

import (
	"slices"
	"strings"
	"testing"
)

const quiet = `version: 1
network: {interfaces: [eth0], management: {sources: [10.0.0.0/8]}}
http: {listen: ":8080", upstream: "http://127.0.0.1:9000"}
rules: [{name: a, per: source, rate: 1000/s}, {name: b, per: client, rate: 100/s}]
`

func TestNoWarnings(t *testing.T) {
	if w := Warnings(mustParse(t, quiet)); len(w) > 0 {
		t.Errorf("%q", w)
	}
}

func TestWarnings(t *testing.T) {
	for _, tc := range []struct{ from, to, want string }{
		{"version: 1\n", "version: 1\nmode: watch\n", "mode: watch: every rule only counts"},
		{"rules: [", "rules: [] #", "no rules: everything"},
		{"interfaces: [eth0], ", "", `rule "a" does nothing: the network gate is off`},
		{"http: {", "#", `rule "b" does nothing: the http gate is off`},
		{", management: {sources: [10.0.0.0/8]}", "", "network.management is empty"},
		{"10.0.0.0/8", "0.0.0.0/0", "network.management.sources has 0.0.0.0/0"},
		// RC-053
		{"rate: 100/s", "rate: 100/s, burst: 1", `rule "b": burst 1 on all traffic`},
		{"rate: 100/s", "rate: 100/s, burst: 99", `rule "b": burst 99 on all traffic is less than one second of 100/s`},
		{"rate: 1000/s", "rate: 1000/s, burst: 999", `rule "a": burst 999 on all traffic`},
		{"rate: 100/s", "rate: 100/s, burst: 1, match: {path: /**}", `rule "b": burst 1 on all traffic`},
		{"rate: 1000/s", "rate: 1MB/s, burst: 63999B", `rule "a": burst 63999B is less than 64kB: frames`},
		{"http: {", "http: {identities: {key: {header: X-Api-Key}}, ", "http.identities.key has no file: keys are only claimed"},
		{"http: {", "http: {proxies: [\"::/0\"], ", "http.proxies has ::/0"},
		{"rules:", "block: [0.0.0.0/0]\nrules:", "block 0.0.0.0/0 drops all"},
		{"rules:", "block: [10.0.0.0/7]\nrules:", "block 10.0.0.0/7 covers management source 10.0.0.0/8"},
		{"rules:", "allow: [\"::/0\"]\nrules:", "allow ::/0 lets all of its family pass"},
		{"rate: 1000/s", "rate: 1000/s, mode: watch, then: {block: 60s, after: 9/s}", `rule "a": then does nothing while the rule only watches`},
		{"rate: 1000/s", "rate: 1000/s, match: {from: 10.0.0.0/8, except: [10.0.0.0/9, 10.128.0.0/9]}", `rule "a" does nothing: no packet has what it asks for`},
		{"rate: 1000/s", "rate: 1000/s, match: {from: 10.0.0.0/8, to: \"2001:db8::/32\"}", `rule "a" does nothing: no packet`},
		{"rate: 1000/s", "rate: 1000/s, match: {from: 10.0.0.0/8, protocol: icmpv6}", `rule "a" does nothing: no packet`},
		{"rate: 1000/s", "rate: 1000/s, overrides: [{from: 10.0.0.0/9, rate: 5/s}, {from: [10.128.0.0/9, \"2001:db8::/32\"], rate: 6/s}, {from: 10.0.0.0/8, rate: 7/s}]",
			`rule "a": the override from 10.0.0.0/8 does nothing`},
		{"rules:", "lists: {office: {file: a}}\nrules:", `list "office" is named nowhere`},
		{"rules:", "admin: {listen: \":9317\"}\nrules:", "admin.listen :9317 is open"},
		{"rules:", "admin: {listen: \"192.0.2.1:9317\"}\nrules:", "admin.listen 192.0.2.1:9317 is open"},
	} {
		t.Run(tc.to, func(t *testing.T) {
			w := Warnings(mustParse(t, strings.Replace(quiet, tc.from, tc.to, 1)))
			if len(w) != 1 || !strings.HasPrefix(w[0], tc.want) {
				t.Errorf("\n got: %q\nwant: %s", w, tc.want)
			}
		})
	}
}

// Warnings that only rules added from the command line can bring about, or
// that come together.
func TestMoreWarnings(t *testing.T) {
	c := mustParse(t, quiet)
	added := *c
	added.Rules = append(slices.Clone(c.Rules), mustRule(t, "{name: k, per: key, rate: 1/s, match: {path: /a}}"))
	if w := Warnings(&added); len(w) != 1 || !strings.HasPrefix(w[0], `rule "k" counts per key, but no`) {
		t.Errorf("key rule without header: %q", w)
	}
	w := Warnings(mustParse(t, "version: 1\n"))
	if len(w) != 2 || !strings.HasPrefix(w[0], "no interface and no listener") {
		t.Errorf("empty file: %q", w)
	}
	c = mustParse(t, "version: 1\nblock: [192.0.2.0/24]\nhttp: {listen: \":80\", upstream: \"http://a\", proxies: [192.0.2.1]}\nrules: [{name: b, per: client, rate: 100/s}]\n")
	if w := Warnings(c); len(w) != 2 || !strings.HasPrefix(w[0], "block: the network gate is off") || !strings.HasPrefix(w[1], "block 192.0.2.0/24 covers proxy 192.0.2.1/32") {
		t.Errorf("block of a proxy: %q", w)
	}
}

// What may do something is not warned about, and lists that might overlap are.
func TestPacketWarnings(t *testing.T) {
	for _, tc := range []struct{ rules, want string }{
		{"{name: a, per: source, rate: 5/s, burst: 1, match: {from: 10.0.0.0/8, except: [10.0.0.0/9, l1, l2, l3, l4, l5]}}", ""},
		{"{name: a, per: source, rate: 5/s, burst: 1, match: {from: [10.0.0.0/8, l1, l2, l3, l4, l5], except: 10.0.0.0/8}}", ""},
		{"{name: a, per: source, rate: 5/s, overrides: [{from: l1, rate: 6/s}, {from: [l2, l3, l4, l5, 10.0.0.0/8], rate: 6/s}]}", ""},
		{"{name: a, per: source, rate: 5/s, overrides: [{from: [l1, l2, l3, l4, l5], rate: 6/s}, {from: l2, rate: 6/s}]}", `rule "a": the override from l2 does nothing`},
		{"{name: a, per: source, rate: 5/s, match: {from: l1}}, {name: b, per: source, rate: 5/s, match: {from: l2}}," +
			"{name: c, per: source, rate: 5/s, match: {from: l3}}, {name: d, per: source, rate: 5/s, match: {from: l4}}," +
			"{name: e, per: source, rate: 5/s, match: {from: l5, vlan: 7}}",
			"should lists overlap, the rules are refused: 5 limits meet on a packet in vlan 7, the most is 4: remove or narrow one of a, b, c, d or e"},
	} {
		c := mustParse(t, "version: 1\nnetwork: {interfaces: [eth0], management: {sources: [10.0.0.0/8]}}\n"+
			"lists: {l1: {file: a}, l2: {file: a}, l3: {file: a}, l4: {file: a}, l5: {file: a}}\nrules: ["+tc.rules+"]\n")
		w := Warnings(c)
		if tc.want == "" && len(w) > 0 || tc.want != "" && (len(w) != 1 || !strings.HasPrefix(w[0], tc.want)) {
			t.Errorf("%s:\n got: %q\nwant: %s", tc.rules, w, tc.want)
		}
	}
}

// A burst of 1 on one route is what someone asked for; on slow rates the
// default burst is no fault either.
func TestNoBurstWarning(t *testing.T) {
	for _, rule := range []string{
		"{name: b, per: client, rate: 1/s, burst: 1, match: {path: /login}}",
		"{name: b, per: client, rate: 5/min}",
		"{name: b, per: client, limit: 1/s}",
	} {
		c := mustParse(t, strings.Replace(quiet, "{name: b, per: client, rate: 100/s}", rule, 1))
		if w := Warnings(c); len(w) > 0 {
			t.Errorf("%s: %q", rule, w)
		}
	}
}
