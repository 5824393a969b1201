package l7

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/config"
)

func TestReadings(t *testing.T) {
	cases := []struct {
		raw  string
		want []string
	}{
		{"/", []string{"/"}},
		{"", []string{"/"}},
		{"*", []string{"/*"}},
		{"/a/b", []string{"/a/b"}},
		{"/a/b/", []string{"/a/b"}},
		{"//a///b", []string{"/a/b"}},
		{"/.well-known/x", []string{"/.well-known/x"}},
		{"/a%62%7Ec", []string{"/ab~c"}},
		{"/caf%C3%a9", []string{"/café"}},
		{"/a/./b", []string{"/a/b", "/a/./b"}},
		{"/a/x/../b", []string{"/a/b", "/a/x/../b"}},
		{"/../../a", []string{"/a", "/../../a"}},
		{"/a/x/%2e%2E/b", []string{"/a/b", "/a/x/../b"}},
		{"/a/x//../b", []string{"/a/b", "/a/x/b", "/a/x/../b"}},
		{"/a%2Fb", []string{"/a%2Fb", "/a/b"}},
		{"/a%5cb", []string{`/a\b`, "/a/b"}},
		{`/a\b`, []string{`/a\b`, "/a/b"}},
		{"/a;v=1/b", []string{"/a;v=1/b", "/a/b"}},
		{"/a%3Bv", []string{"/a;v", "/a"}},
		{"/%2561", []string{"/%2561", "/a"}},
		{"/a%252Fb", []string{"/a%252Fb", "/a%2Fb", "/a/b"}},
		{"/100%25", []string{"/100%25"}},
		{"/a%C0%AFb", []string{"/a\xc0\xafb", "/a/b"}},
		{"/a%e0%80%afb", []string{"/a\xe0\x80\xafb", "/a/b"}},
		{"/a\xf0\x80\x80\xafb", []string{"/a\xf0\x80\x80\xafb", "/a/b"}},
		{"/%c1%a1", []string{"/\xc1\xa1", "/a"}},
		{"/a/x/%c0%ae%c0%ae/b", []string{"/a/x/\xc0\xae\xc0\xae/b", "/a/b", "/a/x/../b"}},
		{"/caf%C3%A9/%E4%BD%A0", []string{"/café/你"}},
		{"/%c0", []string{"/\xc0"}},
	}
	for _, c := range cases {
		got, _ := readings(c.raw, nil)
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%q reads %q, want %q", c.raw, got, c.want)
		}
	}
}

// respell draws another spelling of a path that some server takes for it.
func respell(t *rapid.T, path string) string {
	odd := func(label string) bool { return rapid.IntRange(0, 3).Draw(t, label) == 0 }
	var b strings.Builder
	for _, segment := range strings.Split(path[1:], "/") {
		b.WriteString(rapid.SampledFrom([]string{"/", "/", "/", "//", "/./", "/x/../", "/x//../../", "%2F", "%2f", "%5C", "%5c", `\`, "/%2e/", "/%2E/", "%252f", "/x/..;p/",
			"%c0%af", "%E0%80%AF", "%25c0%25af", "/%c0%ae/", "/x/%c0%ae./", "\xc0\xaf"}).Draw(t, "slash"))
		for i := range len(segment) {
			switch {
			case odd("encode"):
				c := segment[i]
				format := rapid.SampledFrom([]string{"%%%02x", "%%%02X", "%%25%02x", "%%2525%02x", "long"}).Draw(t, "format")
				if format == "long" {
					fmt.Fprintf(&b, "%%%02X%%%02x", 0xc0|c>>6, 0x80|c&0x3f)
				} else {
					fmt.Fprintf(&b, format, c)
				}
			default:
				b.WriteByte(segment[i])
			}
		}
		if odd("params") {
			b.WriteString(rapid.SampledFrom([]string{";", ";v=1", "%3Bv", ";a;b"}).Draw(t, "param"))
		}
	}
	if odd("end") {
		b.WriteString(rapid.SampledFrom([]string{"/", "//", "/.", "%2f", "/x/.."}).Draw(t, "tail"))
	}
	s := b.String()
	if !strings.HasPrefix(s, "/") {
		s = "/" + s
	}
	return s
}

// RC-052: no spelling of a path escapes its rule.
func TestNoSpellingEscapes(t *testing.T) {
	segment := rapid.StringMatching(`[a-z][a-z0-9.~_-]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		path := "/" + strings.Join(rapid.SliceOfN(segment, 1, 4).Draw(t, "path"), "/")
		raw := respell(t, path)
		if got, ok := readings(raw, nil); !ok || !slices.Contains(got, path) {
			t.Fatalf("%q of %q reads %q", raw, path, got)
		}
	})
}

func FuzzReadings(f *testing.F) {
	for _, s := range []string{"/a/b", "//a/../%2e", "/%25%32%35", "/%2525252525252525", `\..;/%`, "/a%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, ok := readings(raw, nil)
		if ok != (len(got) > 0) || len(got) > 64 {
			t.Fatalf("%d readings", len(got))
		}
		for _, n := range got {
			if n == "" || n[0] != '/' || n != "/" && n[len(n)-1] == '/' || strings.Contains(n, "//") {
				t.Fatalf("%q reads %q, which is no normal form", raw, n)
			}
		}
	})
}

// RC-052 on the wire, and the bytes that the upstream is sent.
func TestSpellingsShareABucket(t *testing.T) {
	login := ruleOf(t, "login", "client", "3/1h")
	login.Match.Paths = []string{"/api/login"}
	tree := ruleOf(t, "tree", "client", "1000/1h")
	tree.Match.Paths = []string{"/api/**"}
	r := newRig(t, Policy{Rules: []config.Rule{login, tree}})
	c := r.client("127.0.0.2")
	targets := []string{
		"/api/login", "/api/login/", "//api//login", "/api/./login", "/api/x/../login", "/api/%6Cogin",
		"/api/login?x=1", "/api%2Flogin", `/api\login`, "/api/login;v=1", "/api/%256Cogin", "/./api/login",
		"http://app.example/api/login", "/x/%2e%2e/api/login",
	}
	for round := range 2 {
		for i, target := range targets {
			got, want := c.do("GET", target).status, 429
			if round == 0 && i < 3 {
				want = 200
			}
			if got != want {
				t.Errorf("round %d: %s answered %d, want %d", round, target, got, want)
			}
		}
	}
	want(t, "another path", c.do("GET", "/api/logins").status, 200)
	for _, target := range []string{"/./api/", "//api/", "/api"} {
		before := r.gate.Counters()["tree"].Passed
		c.do("GET", target)
		want(t, target+" is below /api", r.gate.Counters()["tree"].Passed, before+1)
	}
}

func TestRawBytesAreForwarded(t *testing.T) {
	r := newRig(t, Policy{})
	c := r.client("127.0.0.2")
	for _, target := range []string{
		"/a%2Fb%5c//c/./%7e;x=%41?q=a;b&c=%zz&&d", "/", "/?", "//a//b?x", "/x/../y", `/a"b<>\c`, "/%E4%F6?%E4",
	} {
		if got := c.do("GET", target); got.status != 200 {
			t.Fatalf("%s: %d %s", target, got.status, got.body)
		}
		want(t, "upstream asked for", r.last().RequestURI, target)
		want(t, "host", r.last().Host, "app.example")
	}
	c.do("OPTIONS", "*")
	want(t, "upstream asked for", r.last().RequestURI, "*")
}

func TestMalformed(t *testing.T) {
	r := newRig(t, Policy{})
	c := r.client("127.0.0.2")
	want(t, "fragment", c.do("GET", "/a#b").status, 400)
	want(t, "long path", c.do("GET", "/"+strings.Repeat("a", longestPath)).status, 414)
	want(t, "longest path", c.do("GET", "/"+strings.Repeat("a", longestPath-1)).status, 200)
	want(t, "long path with two readings", c.do("GET", "/a%2Fb"+strings.Repeat("a", longestPath-6)).status, 200)
	want(t, "long path with 32 readings", c.do("GET", "/a%2Fb;%25/..//"+strings.Repeat("a", 1200)).status, 414)
	want(t, "tunnel", c.do("CONNECT", "example.com:443").status, 405)
	want(t, "bad escape", c.do("GET", "/%zz").status, 400)
}

func TestMatch(t *testing.T) {
	cases := []struct {
		match              config.Match
		method, host, path string
		want               bool
	}{
		{config.Match{}, "PUT", "x", "/", true},
		{config.Match{Methods: []string{"GET"}}, "HEAD", "", "/", true},
		{config.Match{Methods: []string{"GET"}}, "POST", "", "/", false},
		{config.Match{Methods: []string{"HEAD"}}, "GET", "", "/", false},
		{config.Match{Hosts: []string{"example.com"}}, "GET", "Example.COM.:8080", "/", true},
		{config.Match{Hosts: []string{"example.com"}}, "GET", "a.example.com", "/", false},
		{config.Match{Hosts: []string{"*.example.com"}}, "GET", "a.b.example.com", "/", true},
		{config.Match{Hosts: []string{"*.example.com"}}, "GET", "example.com", "/", false},
		{config.Match{Hosts: []string{"*.example.com"}}, "GET", "badexample.com", "/", false},
		{config.Match{Hosts: []string{"2001:db8::1"}}, "GET", "[2001:DB8::1]:80", "/", true},
		{config.Match{Hosts: []string{"2001:db8::1"}}, "GET", "[2001:db8::1]", "/", true},
		{config.Match{Paths: []string{"/x/**"}}, "GET", "", "/x", true},
		{config.Match{Paths: []string{"/x/**"}}, "GET", "", "/x/y/z", true},
		{config.Match{Paths: []string{"/x/**"}}, "GET", "", "/xy", false},
		{config.Match{Paths: []string{"/**"}}, "GET", "", "/", true},
		{config.Match{Paths: []string{"/**"}}, "GET", "", "/a/b", true},
		{config.Match{Paths: []string{"/"}}, "GET", "", "/a", false},
		{config.Match{Paths: []string{"/u/{id}"}}, "GET", "", "/u/7", true},
		{config.Match{Paths: []string{"/u/{id}"}}, "GET", "", "/u", false},
		{config.Match{Paths: []string{"/u/{id}"}}, "GET", "", "/u/7/x", false},
		{config.Match{Paths: []string{"/u/{id}/x"}}, "GET", "", "/u/7/x", true},
		{config.Match{Paths: []string{"/u/{id}/**"}}, "GET", "", "/u/7", true},
		{config.Match{Paths: []string{"/u/{id}/**"}}, "GET", "", "/u/7/x/y", true},
		{config.Match{Paths: []string{"/u/{id}/**"}}, "GET", "", "/u", false},
		{config.Match{Paths: []string{"/a", "/b"}}, "GET", "", "/b", true},
	}
	for _, c := range cases {
		m, err := newMatcher(c.match)
		if err != nil {
			t.Fatal(err)
		}
		want(t, fmt.Sprint(c), m.match(c.method, hostOf(c.host), []string{c.path}), c.want)
	}
	for _, bad := range []string{"x", "", "/x/**/y", "/x*"} {
		if _, err := newPattern(bad); err == nil {
			t.Errorf("pattern %q was taken", bad)
		}
	}
}
