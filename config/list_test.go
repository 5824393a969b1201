package config

import (
	"strings"
	"testing"
)

func TestListFaults(t *testing.T) {
	const head = "version: 1\nlists: "
	for _, tc := range []struct{ in, want string }{
		{"[a]", "c.yaml:2:8: `lists` is a mapping, not a list"},
		{"{a: b.txt}", "c.yaml:2:12: list \"a\": a list is a mapping, not a word"},
		{"{a: {}}", "c.yaml:2:12: list \"a\": say where it is: `file: path` or `url: https://...`"},
		{"{a: {fiel: b}}", "c.yaml:2:13: list \"a\": unknown key `fiel`: did you mean `file`?"},
		{"{a: {file: b, url: \"https://a.example\"}}", "c.yaml:2:22: list \"a\": `file` and `url` are two places"},
		{"{a: {file: b, interval: 1h}}", "c.yaml:2:22: list \"a\": `interval` is for a list with a `url`"},
		{"{a: {file: b}, a: {file: c}}", "c.yaml:2:23: list \"a\" is there twice, first in line 2"},
		{"{A: {file: b}}", "c.yaml:2:9: list name \"A\": use only"},
		{"{192.0.2: {file: b}}", "c.yaml:2:9: list name \"192.0.2\" looks like an address"},
		{"{a: {url: \"http://a.example\"}}", "c.yaml:2:18: list \"a\": url \"http://a.example\": a list is read over https only"},
		{"{a: {url: a.example/b}}", "c.yaml:2:18: list \"a\": \"a.example/b\" is no URL"},
		{"{a: {url: \"https://u:secret@a.example\"}}", "c.yaml:2:18: list \"a\": url with a user in it: remove it"},
		{"{a: {url: \"https://a.example/b#c\"}}", "c.yaml:2:18: list \"a\": url \"https://a.example/b#c\" has a fragment"},
		{"{a: {url: \"https:///b\"}}", "c.yaml:2:18: list \"a\": url \"https:///b\": \"\" is no host"},
		{"{a: {url: \"https://a.example:0\"}}", "c.yaml:2:18: list \"a\": url \"https://a.example:0\": its port"},
		{"{a: {url: \"https://a.example\", interval: 59s}}", "c.yaml:2:49: list \"a\": interval \"59s\": from 1m to 30d"},
		{"{a: {url: \"https://a.example\", interval: 31d}}", "c.yaml:2:49: list \"a\": interval \"31d\": from 1m to 30d"},
		{"{a: {url: \"https://a.example\", sha256: abcd}}", "c.yaml:2:47: list \"a\": sha256 \"abcd\" is not 64 hex digits"},
		{"{office: {file: b}}\nblock: [ofice]", "c.yaml:3:9: no list \"ofice\": did you mean `office`?"},
		{"{}\nallow: [www.example]", "c.yaml:3:9: \"www.example\" is no address prefix and no list: …names of hosts are not looked up"},
		{"{}\nrules: [{name: r, per: source, rate: 1/s, match: {except: nobody}}]", "c.yaml:3:59: rule \"r\": \"nobody\" is no address prefix and no list"},
		{"{}\nrules: [{name: r, per: source, rate: 1/s, overrides: [{from: nobody, rate: 2/s}]}]", "c.yaml:3:62: rule \"r\": \"nobody\" is no address prefix and no list"},
		{"{}\nnetwork: {interfaces: [eth0]}\nrules: [{name: r, per: source, rate: 1/s, match: {interfaces: eth1}}]", "c.yaml:4:63: rule \"r\": interface \"eth1\" is not in `network.interfaces`, which has eth0"},
	} {
		c, err := Parse("c.yaml", []byte(head+tc.in+"\n"))
		if err == nil || c != nil {
			t.Errorf("%s: accepted, want %s", tc.in, tc.want)
			continue
		}
		if !hasParts(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s:\n got: %v\nwant: %s", tc.in, err, tc.want)
		}
	}
}

// A rule from the command line names what the file has, or is refused.
func TestCheckNames(t *testing.T) {
	c := mustParse(t, "version: 1\nnetwork: {interfaces: [eth0]}\nlists: {office: {file: a}, drop: {url: \"https://a.example\"}}\n")
	for _, tc := range []struct{ rule, want string }{
		{"{name: r, per: source, rate: 1/s, match: {from: [10.0.0.0/8, office], to: drop, interfaces: eth0}}", ""},
		{"{name: r, per: source, rate: 1/s, match: {from: offices, except: office}}", "rule \"r\": no list \"offices\": did you mean `office`?"},
		{"{name: r, per: source, rate: 1/s, overrides: [{from: drops, rate: 2/s}]}", "rule \"r\": no list \"drops\": did you mean `drop`?"},
		{"{name: r, per: source, rate: 1/s, match: {interfaces: eth1}}", "rule \"r\": interface \"eth1\" is not in `network.interfaces`"},
	} {
		err := CheckNames(c, mustRule(t, tc.rule))
		if (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s:\n got: %v\nwant: %s", tc.rule, err, tc.want)
		}
	}
	if got := c.Lists[1].Interval.String(); got != "1h0m0s" {
		t.Errorf("the default interval is %s", got)
	}
}
