package l7

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/config"
)

func forwardedHTTP(proxies ...string) config.HTTP {
	h := behind(proxies...)
	h.ClientFrom = config.FromForwarded
	return h
}

// RC-001, RC-102 and RC-119 for Forwarded (RFC 7239).
func TestWalkForwarded(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, Policy{HTTP: forwardedHTTP("10.0.0.0/24", "2001:db8:ff::/64")})
	for _, c := range []struct {
		name  string
		peer  string
		lines []string
		want  string
	}{
		{"no header", "10.0.0.2", nil, "10.0.0.2"},
		{"one hop", "10.0.0.2", []string{"for=203.0.113.1"}, "203.0.113.1"},
		{"in any case, among others", "10.0.0.2", []string{"proto=https; FOR=203.0.113.1 ;by=10.0.0.9;host=a"}, "203.0.113.1"},
		{"with port", "10.0.0.2", []string{`for="203.0.113.1:4711"`}, "203.0.113.1"},
		{"with a port that is hidden", "10.0.0.2", []string{`for="203.0.113.1:_p"`}, "203.0.113.1"},
		{"IPv6", "10.0.0.2", []string{`for="[2001:db8::7]"`}, "2001:db8::7"},
		{"IPv6 with port through IPv6", "2001:db8:ff::1", []string{`for="[2001:db8::7]:99"`}, "2001:db8::7"},
		{"IPv6 with a zone", "10.0.0.2", []string{`for="[fe80::1%eth0]"`}, "fe80::1"},
		{"mapped", "10.0.0.2", []string{`for="[::ffff:203.0.113.1]"`}, "203.0.113.1"},
		{"NAT64", "10.0.0.2", []string{`for="[64:ff9b::203.0.113.1]"`}, "203.0.113.1"},
		{"forged on the left", "10.0.0.2", []string{"for=192.0.2.9, for=203.0.113.1"}, "203.0.113.1"},
		{"through two proxies", "10.0.0.2", []string{"for=203.0.113.1, for=10.0.0.3"}, "203.0.113.1"},
		{"lines joined in order", "10.0.0.2", []string{"for=192.0.2.9", "for=203.0.113.1", "for=10.0.0.3"}, "203.0.113.1"},
		{"all declared", "10.0.0.2", []string{"for=10.0.0.4, for=10.0.0.3"}, "10.0.0.4"},
		{"unknown", "10.0.0.2", []string{"for=203.0.113.1, for=unknown, for=10.0.0.3"}, "10.0.0.3"},
		{"hidden", "10.0.0.2", []string{"for=203.0.113.1, for=_secret"}, "10.0.0.2"},
		{"no for", "10.0.0.2", []string{"for=203.0.113.1, by=10.0.0.9"}, "10.0.0.2"},
		{"two fors", "10.0.0.2", []string{"for=203.0.113.1;for=203.0.113.2"}, "10.0.0.2"},
		{"empty elements", "10.0.0.2", []string{" , for=203.0.113.1 ,", ","}, "203.0.113.1"},
		{"a comma and a semicolon in quotes", "10.0.0.2", []string{`for=203.0.113.1;host="a,b;for=192.0.2.1"`}, "203.0.113.1"},
		{"an escaped quote", "10.0.0.2", []string{`for=203.0.113.1;host="a\",for=192.0.2.1"`}, "203.0.113.1"},
		{"a quote that the client leaves open", "10.0.0.2", []string{`for="192.0.2.9, for=203.0.113.1`}, "203.0.113.1"},
		{"a backslash at the client's end", "10.0.0.2", []string{`for=192.0.2.9\, for="[2001:db8::7]"`}, "2001:db8::7"},
		{"half a quote", "10.0.0.2", []string{`for=203.0.113.1"`}, "10.0.0.2"},
		{"undeclared peer", "192.0.2.5", []string{"for=203.0.113.1"}, "192.0.2.5"},
		{"endless", "10.0.0.2", []string{`for="[::1%` + strings.Repeat("A", 4000) + `]"`}, "10.0.0.2"},
	} {
		r := &http.Request{RemoteAddr: netip.AddrPortFrom(netip.MustParseAddr(c.peer), 1).String(), Header: http.Header{}}
		r.Header["Forwarded"] = c.lines
		r.Header["X-Forwarded-For"] = []string{"198.51.100.200"} // never looked at
		var a asker
		p.identify(r, &a)
		want(t, c.name, a.client, netip.MustParseAddr(c.want))
	}
}

// Which header names the client is set, not guessed, and the upstream is told
// nothing that nobody vouches for.
func TestForwardedIsChosen(t *testing.T) {
	t.Parallel()
	rules := []config.Rule{ruleOf(t, "all", "client", "5/1m")}
	r := newRig(t, Policy{HTTP: forwardedHTTP("127.0.0.2"), Rules: rules})
	proxy := r.client("127.0.0.2")
	want(t, "A", proxy.passed(9, "Forwarded: for=203.0.113.1", xff("192.0.2.1")), 5)
	want(t, "B", proxy.passed(9, `Forwarded: for="[2001:db8::1]:9";proto=https`, xff("192.0.2.1")), 5)
	want(t, "to the upstream", r.last().Header.Get("Forwarded"), `for="[2001:db8::1]:9";proto=https, for=127.0.0.2;proto=http`)
	want(t, "to the upstream", r.last().Header.Get("X-Forwarded-For"), "2001:db8::1, 127.0.0.2")

	r.client("127.0.0.3").get("Forwarded: for=203.0.113.9")
	want(t, "of an undeclared peer", r.last().Header.Get("Forwarded"), "for=127.0.0.3;proto=http")
	want(t, "logged", strings.Count(r.logs.String(), "http.proxies"), 1)

	r = newRig(t, Policy{HTTP: behind("127.0.0.2"), Rules: rules})
	proxy = r.client("127.0.0.2")
	want(t, "by default X-Forwarded-For", proxy.passed(9, "Forwarded: for=203.0.113.1", xff("192.0.2.1")), 5)
	want(t, "another Forwarded changes nothing", proxy.passed(9, "Forwarded: for=203.0.113.2", xff("192.0.2.1")), 0)
	proxy.get("Forwarded: for=203.0.113.1", xff("192.0.2.7"))
	want(t, "Forwarded to the upstream", r.last().Header.Get("Forwarded"), "")
}

// FuzzForwarded: whatever stands on the left, what the proxy wrote last counts.
func FuzzForwarded(f *testing.F) {
	p := testPolicy(f, Policy{HTTP: forwardedHTTP("10.0.0.0/24")})
	for _, s := range []string{"", `for="`, `\`, `for=1.2.3.4;"`, `"\"`, "for=10.0.0.1", `,;=",`} {
		f.Add(s)
	}
	peer, client := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("2001:db8::7")
	f.Fuzz(func(t *testing.T, left string) {
		if got := p.walk(peer, []string{left + `, for="[2001:db8::7]:80"`}); got != client {
			t.Errorf("%q turns the client into %v", left, got)
		}
	})
}
