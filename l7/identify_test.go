package l7

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

func TestParseHop(t *testing.T) {
	cases := []struct{ text, want string }{
		{"192.0.2.1", "192.0.2.1"},
		{"192.0.2.1:4711", "192.0.2.1"},
		{"2001:db8::1", "2001:db8::1"},
		{"[2001:db8::1]", "2001:db8::1"},
		{"[2001:db8::1]:443", "2001:db8::1"},
		{"::ffff:192.0.2.1", "192.0.2.1"},
		{"[::ffff:192.0.2.1]:80", "192.0.2.1"},
		{"64:ff9b::c000:201", "192.0.2.1"},
		{"fe80::1%eth0", "fe80::1"}, // RC-119
		{"2001:db8::1%x.y", "2001:db8::1"},
		{"[fe80::1%eth0]:80", "fe80::1"},
		{"::1%" + strings.Repeat("A", 4000), ""}, // RC-119
		{"192.0.2.1:", ""}, {"192.0.2.1:+80", ""}, {"192.0.2.1:70000", ""},
		{"[192.0.2.1]", ""}, {"[2001:db8::1", ""}, {"2001:db8::1]", ""}, {"[2001:db8::1]x", ""},
		{"192.0.2.01", ""}, {"192.0.2", ""}, {"23189987", ""}, {"unknown", ""}, {"_hidden", ""},
		{"", ""}, {"[", ""}, {"]", ""}, {"[]", ""}, {":", ""}, {":80", ""}, {`"192.0.2.1"`, ""},
	}
	for _, c := range cases {
		got, ok := parseHop(c.text)
		if ok != (c.want != "") || ok && got != netip.MustParseAddr(c.want) {
			t.Errorf("%.40q: %v %v, want %q", c.text, got, ok, c.want)
		}
	}
}

func FuzzParseHop(f *testing.F) {
	for _, s := range []string{"192.0.2.1:80", "[fe80::1%eth0]:80", "::ffff:1.2.3.4", "[", "%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, ok := parseHop(s)
		if ok && (a.Zone() != "" || a.Is4In6() || !a.IsValid()) {
			t.Fatalf("%q became %v", s, a)
		}
	})
}

// RC-102: the peer of an IPv6 socket, with and without a zone.
func TestPeer(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80":         "192.0.2.1",
		"[2001:db8:1::1]:4711": "2001:db8:1::1",
		"[fe80::1%eth0]:80":    "fe80::1",
		"[::ffff:192.0.2.1]:1": "192.0.2.1",
		"@":                    "::",
		"":                     "::",
	} {
		if got := peerOf(remote); got != netip.MustParseAddr(want) {
			t.Errorf("%q: %v, want %s", remote, got, want)
		}
	}
	for _, pair := range [][3]string{
		{"[2001:db8:1::1]:1", "[2001:db8:2::1]:1", "differ"},
		{"[fe80::1%eth0]:1", "[2001:db8:1::1]:1", "differ"},
		{"[2001:db8:1::1]:1", "[2001:db8:1::2]:9", "same"},
		{"192.0.2.1:1", "192.0.2.2:1", "differ"},
	} {
		same := clientOf(peerOf(pair[0]), 64) == clientOf(peerOf(pair[1]), 64)
		want(t, fmt.Sprint(pair), same, pair[2] == "same")
	}
}

func TestWalk(t *testing.T) {
	p := testPolicy(t, Policy{HTTP: behind("10.0.0.0/8", "2001:db8:ff::/48")})
	cases := []struct {
		name  string
		peer  string
		lines []string
		want  string
	}{
		{"no header", "10.0.0.2", nil, "10.0.0.2"},
		{"one hop", "10.0.0.2", []string{"203.0.113.1"}, "203.0.113.1"},
		{"forged on the left", "10.0.0.2", []string{"192.0.2.9, 203.0.113.1"}, "203.0.113.1"},
		{"through two proxies", "10.0.0.2", []string{"203.0.113.1, 10.0.0.3"}, "203.0.113.1"},
		{"lines joined in order", "10.0.0.2", []string{"192.0.2.9", "203.0.113.1", "10.0.0.3"}, "203.0.113.1"},
		{"all declared", "10.0.0.2", []string{"10.0.0.4, 10.0.0.3"}, "10.0.0.4"},
		{"junk stops at the proxy that named it", "10.0.0.2", []string{"203.0.113.1, junk, 10.0.0.3"}, "10.0.0.3"},
		{"junk from the first proxy", "10.0.0.2", []string{"203.0.113.1, unknown"}, "10.0.0.2"},
		{"empty elements", "10.0.0.2", []string{" , 203.0.113.1 ,", ","}, "203.0.113.1"},
		{"mapped proxy", "10.0.0.2", []string{"203.0.113.1, ::ffff:10.0.0.3"}, "203.0.113.1"},
		{"IPv6 with port through IPv6", "2001:db8:ff::1", []string{"[2001:db8::7]:99"}, "2001:db8::7"},
		{"undeclared peer", "192.0.2.5", []string{"203.0.113.1"}, "192.0.2.5"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := &http.Request{RemoteAddr: netip.AddrPortFrom(netip.MustParseAddr(c.peer), 1).String(), Header: http.Header{}}
			r.Header["X-Forwarded-For"] = c.lines
			var a asker
			p.identify(r, &a)
			want(t, "client", a.client, netip.MustParseAddr(c.want))
		})
	}
}

func testPolicy(t testing.TB, p Policy) *policy {
	t.Helper()
	c, err := p.compile(limit.NewStore(1<<20), func(string) *counts { return new(counts) })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// RC-001: forged headers from an undeclared peer give no new bucket.
func TestForgedHeaders(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "5/1m")}})
	c, passed := r.client("127.0.0.10"), 0
	for i := range 50 {
		forged := fmt.Sprintf("203.0.113.%d", i)
		if i%2 == 0 {
			forged = fmt.Sprint(23189987 + i)
		}
		passed += c.passed(1, xff(forged), "X-Real-Ip: "+forged, "Forwarded: for="+forged)
	}
	want(t, "passed", passed, 5)
	want(t, "buckets", r.gate.Buckets().Keys, 1)
	want(t, "counters", r.gate.Counters()["all"], Counters{Passed: 5, Refused: 45})
}

// RC-050: naming a victim costs the victim nothing.
func TestForgedVictim(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "10/1m")}})
	want(t, "attacker passed", r.client("127.0.0.66").passed(100, xff("127.0.0.5")), 10)
	got := r.client("127.0.0.5").get()
	want(t, "victim", got.status, 200)
	want(t, "victim's limit", unnamed(got.header), `"all";r=9;t=54`)
}

// RC-002: behind a declared proxy each client has its bucket; an undeclared
// one is warned about once.
func TestBehindProxy(t *testing.T) {
	p := Policy{HTTP: behind("127.0.0.2"), Rules: []config.Rule{ruleOf(t, "all", "client", "10/1m")}}
	r := newRig(t, p)
	proxy := r.client("127.0.0.2")
	want(t, "A passed", proxy.passed(30, xff("203.0.113.1")), 10)
	want(t, "B passed", proxy.passed(10, xff("203.0.113.2")), 10)
	want(t, "logged", r.logs.String(), "")

	stranger := r.client("127.0.0.3")
	want(t, "stranger passed", stranger.passed(30, xff("203.0.113.9")), 10)
	r.set(p) // a reload that changes nothing says nothing new
	stranger.passed(3, xff("203.0.113.9"))
	if logs := r.logs.String(); strings.Count(logs, "\n") != 1 || !strings.Contains(logs, "http.proxies") {
		t.Fatalf("want one warning that names http.proxies:\n%s", logs)
	}
	p.HTTP.Proxies = prefixes("127.0.0.2", "127.0.0.4")
	r.set(p)
	stranger.passed(3, xff("203.0.113.9"))
	want(t, "warnings after proxies have changed", strings.Count(r.logs.String(), "\n"), 2)
}

// RC-013: an IPv6 client is a /64, or what is configured.
func TestIPv6Prefix(t *testing.T) {
	for _, c := range []struct{ bits, first, neighbour int }{{0, 10, 10}, {64, 10, 10}, {128, 200, 10}, {56, 10, 0}} {
		h := behind("127.0.0.2")
		h.ClientBits = c.bits
		r := newRig(t, Policy{HTTP: h, Rules: []config.Rule{ruleOf(t, "all", "client", "10/1m")}})
		proxy, passed := r.client("127.0.0.2"), 0
		for i := range 200 {
			passed += proxy.passed(1, xff(fmt.Sprintf("2001:db8:5:6:%x::%x", i*300, i)))
		}
		want(t, fmt.Sprintf("/%d: passed of 200 addresses", c.bits), passed, c.first)
		want(t, fmt.Sprintf("/%d: neighbour in the same /56", c.bits), proxy.passed(20, xff("2001:db8:5:7::1")), c.neighbour)
	}
}

// RC-051: IPv4 clients of a dual-stack listener, and mapped spellings.
func TestDualStack(t *testing.T) {
	p := Policy{
		HTTP:  behind("127.0.0.2"),
		Rules: []config.Rule{ruleOf(t, "others", "client", "5/1m")},
		Block: prefixes("198.51.100.0/24", "127.0.0.9"), Allow: prefixes("192.0.2.1", "127.0.0.4"),
	}
	r := newRigOn(t, p, "[::]:0", nil)
	proxy := r.client("127.0.0.2")
	want(t, "allowed", proxy.passed(20, xff("::ffff:192.0.2.1")), 20)
	want(t, "blocked", proxy.get(xff("::ffff:198.51.100.9")).status, 403)
	want(t, "first", proxy.passed(9, xff("203.0.113.3")), 5)
	want(t, "first, mapped", proxy.passed(9, xff("::ffff:203.0.113.3")), 0)
	want(t, "first, NAT64", proxy.passed(9, xff("64:ff9b::203.0.113.3")), 0)
	want(t, "second", proxy.passed(9, xff("203.0.113.4")), 5)

	want(t, "allowed peer", r.client("127.0.0.4").passed(20), 20)
	want(t, "blocked peer", r.client("127.0.0.9").get().status, 403)
	want(t, "other peer", r.client("127.0.0.8").passed(9), 5)
}

// RC-119, RC-102: odd address texts are answered and make no key of their own.
func TestOddAddresses(t *testing.T) {
	r := newRig(t, Policy{HTTP: behind("127.0.0.2"), Rules: []config.Rule{ruleOf(t, "all", "client", "5/1m")}})
	proxy := r.client("127.0.0.2")
	want(t, "::1%AAAA… is the peer's bucket", proxy.passed(4, xff("::1%"+strings.Repeat("A", 4000))), 4)
	want(t, "the peer itself", proxy.passed(4), 1)
	want(t, "zone", proxy.passed(3, xff("fe80::1%eth0")), 3)
	want(t, "another zone, the same client", proxy.passed(5, xff("fe80::1%x.y")), 2)
	want(t, "first /64", proxy.passed(20, xff("2001:db8:1::1")), 5)
	want(t, "second /64", proxy.passed(5, xff("2001:db8:2::1")), 5)
	want(t, "buckets", r.gate.Buckets().Keys, 4)
}

func keyed(t testing.TB, figures, anonymous string) config.Rule {
	r := ruleOf(t, "keys", "key", figures)
	if anonymous != "" {
		_, rate, burst := figuresOf(t, anonymous)
		r.Anonymous = &config.Anonymous{Per: []config.Per{config.PerClient}, Rate: rate, Burst: burst}
	}
	return r
}

// RC-017: without a key each client has a bucket of its own, never none.
func TestNoKey(t *testing.T) {
	r := newRig(t, Policy{HTTP: config.HTTP{KeyHeader: "X-Api-Key"}, Rules: []config.Rule{keyed(t, "100/1m", "10/1m")}})
	a, b := r.client("127.0.0.2"), r.client("127.0.0.3")
	want(t, "A", a.passed(50), 10)
	want(t, "B", b.passed(5), 5)
	for _, h := range [][]string{
		{"X-Api-Key:"}, {"X-Api-Key:    "}, {"X-Api-Key: \t "},
		{"X-Api-Key: one", "X-Api-Key: two"},
		{"X-Api-Key: " + strings.Repeat("k", 513)},
	} {
		want(t, fmt.Sprintf("A with %.30q", h), a.passed(3, h...), 0)
	}
	want(t, "a key of 512 bytes counts", a.passed(3, "X-Api-Key: "+strings.Repeat("k", 512)), 3)
	want(t, "A with a key", a.passed(120, "X-Api-Key: mine"), 100)
	want(t, "B with the same claimed key", b.passed(5, "X-Api-Key: mine"), 5)
}

// RC-019: people behind one address are counted by their keys.
func TestOffice(t *testing.T) {
	h := config.HTTP{KeyHeader: "X-Api-Key", KeyFile: "keys.yaml"}
	var keys []config.Key
	for i := range 20 {
		keys = append(keys, config.Key{SHA256: sha256.Sum256(fmt.Appendf(nil, "user-%d", i)), Owner: fmt.Sprint(i)})
	}
	h.Keys = keyringOf(keys...)
	r := newRig(t, Policy{HTTP: h, Rules: []config.Rule{keyed(t, "50/1m", "60/1m")}})
	c, passed := r.client("127.0.0.2"), 0
	for range 40 {
		for i := range 20 {
			passed += c.passed(1, fmt.Sprintf("X-Api-Key: user-%d", i))
		}
	}
	want(t, "of 20 users", passed, 800)
	want(t, "of the anonymous", c.passed(70), 60)
	want(t, "of a key that is not in the file", c.passed(5, "X-Api-Key: invented"), 0)
	want(t, "of a user from elsewhere", r.client("127.0.0.3").passed(20, "X-Api-Key: user-3"), 10)
}

// Claimed keys: 8 at once, the rest share the client's bucket, and dropping or
// changing the key gains nothing.
func TestClaimedKeys(t *testing.T) {
	for _, figures := range []string{"5/1m", "limit 5/1m"} {
		r := newRig(t, Policy{HTTP: config.HTTP{KeyHeader: "X-Api-Key"}, Rules: []config.Rule{keyed(t, figures, "")}})
		c, passed := r.client("127.0.0.2"), 0
		for i := range 100 {
			passed += c.passed(7, fmt.Sprintf("X-Api-Key: made-up-%d", i))
		}
		passed += c.passed(20)
		want(t, figures+": of 100 keys and none", passed, 8*5+5)
		want(t, figures+": another client", r.client("127.0.0.3").passed(7, "X-Api-Key: made-up-50"), 5)

		r.pass(30 * time.Second)
		more := 0
		for i := range 100 {
			more += c.passed(7, fmt.Sprintf("X-Api-Key: later-%d", i))
		}
		if most := map[string]int{"5/1m": 2, "limit 5/1m": 0}[figures]; more != most {
			t.Errorf("%s: new keys half a minute later gained %d, want what the shared bucket has refilled, %d", figures, more, most)
		}
		r.pass(time.Minute)
		want(t, figures+": a new key when all is full again", c.passed(7, "X-Api-Key: new"), 5)
	}
}
