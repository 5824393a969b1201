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
