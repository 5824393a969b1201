package daemon

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/config"
)

// RC-007: a rule is refused where it would stop the session of whoever asks, and
// only there: SSH from others may be limited, and what is managed, allowed,
// watched or meant for other traffic stops nothing.
func TestRulesThatStopASession(t *testing.T) {
	cfg, err := config.Parse("headgate.yaml", []byte(`version: 1
network: {interfaces: [], management: {sources: [10.0.0.0/8], ports: [tcp/22]}}
allow: [203.0.113.0/24]
`))
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string][]netip.Prefix{"office": {netip.MustParsePrefix("198.51.100.0/24")}}
	p, err := merge(cfg, state{}, lists)
	if err != nil {
		t.Fatal(err)
	}
	outside, six := "198.51.100.50 50000 192.0.2.1 22", "2001:db8::50 50000 2001:db8::1 2222"
	for _, c := range []struct{ name, rule, session, want string }{
		{"a bucket for all", "gate: network, per: total, rate: 500000/s", outside, "strangers"},
		{"a bucket a destination", "per: destination, rate: 500000/s", outside, "strangers"},
		{"a bucket for a wide prefix", "per: 'source/8,32', rate: 500000/s", outside, "strangers"},
		{"a bucket for the neighbours", "per: 'source/24,56', rate: 2000/s", outside, ""},
		{"a bucket for all, by tcp", "match: {protocol: tcp}, per: total, rate: 5/s", six, "port 2222"},
		{"too slow", "per: source, rate: 5/s", outside, "standstill"},
		{"too slow in bytes", "per: source, rate: 8kbit/s", outside, "standstill"},
		{"fast enough", "per: source, rate: 200/s", outside, ""},
		{"slow, but not for him", "per: source, rate: 5/s, overrides: [{from: 198.51.100.0/24, rate: 500/s}]", outside, ""},
		{"slow for him alone", "per: source, rate: 500/s, overrides: [{from: 198.51.100.0/24, rate: 5/s}]", outside, "standstill"},
		{"watched", "per: source, rate: 5/s, mode: watch", outside, ""},
		{"SSH from others", "match: {protocol: tcp, ports: [22], except: 198.51.100.50}, per: source, rate: 5/s", outside, ""},
		{"SSH from him", "match: {from: 198.51.100.0/24, protocol: tcp, ports: [22]}, per: source, rate: 5/s", outside, "standstill"},
		{"by a list", "match: {from: office, protocol: tcp, ports: [20-25]}, per: source, rate: 5/s", outside, "standstill"},
		{"except a list", "match: {except: office}, per: source, rate: 5/s", outside, ""},
		{"another port", "match: {protocol: tcp, ports: [22]}, per: source, rate: 5/s", six, ""},
		{"another protocol", "match: {protocol: udp}, per: total, rate: 5/s", outside, ""},
		{"another destination", "match: {to: 192.0.2.9}, per: total, rate: 5/s", outside, ""},
		{"his destination", "match: {to: 192.0.2.1}, per: total, rate: 5/s", outside, "strangers"},
		{"new connections alone", "match: {protocol: tcp, flags: syn}, per: total, rate: 5/s", outside, ""},
		{"from management", "per: total, gate: network, rate: 5/s", "10.1.1.1 50000 192.0.2.1 22", ""},
		{"from management, by another port", "per: total, gate: network, rate: 5/s", "10.1.1.1 50000 192.0.2.1 2222", "strangers"},
		{"allowed", "per: total, gate: network, rate: 5/s", "203.0.113.7 50000 192.0.2.1 22", ""},
		{"IPv4 in IPv6", "per: source, rate: 5/s", "::ffff:198.51.100.50 50000 ::ffff:192.0.2.1 22", "standstill"},
		{"of the HTTP gate", "match: {path: /x}, per: client, limit: 1/h", outside, ""},
		{"nobody's session", "per: total, gate: network, rate: 5/s", "", ""},
	} {
		r, err := config.ParseRule(c.name, []byte("{name: r, "+c.rule+"}"))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var g guard
		g.peer, g.over = parseSession(c.session)
		err = p.starves(r, g)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "headgate allow")) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestSessionsAsTheyAreTold(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.50 50000 198.51.100.1 22":         "192.0.2.50 198.51.100.1:22",
		"::ffff:192.0.2.50 1 ::ffff:192.0.2.1 22":  "192.0.2.50 192.0.2.1:22",
		"fe80::5%eth0 50000 fe80::1%eth0 22":       "fe80::5 [fe80::1]:22",
		"192.0.2.50 50000 nowhere 22":              "192.0.2.50 invalid AddrPort",
		"192.0.2.50":                               "invalid IP invalid AddrPort",
		"":                                         "invalid IP invalid AddrPort",
		"192.0.2.50 50000 198.51.100.1 22 more":    "invalid IP invalid AddrPort",
		"nobody 50000 198.51.100.1 22":             "invalid IP invalid AddrPort",
		"192.0.2.50 50000 198.51.100.1 9999999999": "192.0.2.50 invalid AddrPort",
	} {
		peer, over := parseSession(text)
		if got := peer.String() + " " + over.String(); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
