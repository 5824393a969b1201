package l7

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// match is the plain walk that the index is compared with: it reports whether the rule applies to a request with any of these
// readings of its path.
func (m *matcher) match(method, host string, paths []string) bool {
	if len(m.methods) > 0 && !slices.Contains(m.methods, method) {
		return false
	}
	if len(m.hosts) > 0 && !slices.ContainsFunc(m.hosts, func(h string) bool { return matchHost(h, host) }) {
		return false
	}
	if len(m.paths) == 0 {
		return true
	}
	for i := range m.paths {
		if slices.ContainsFunc(paths, m.paths[i].match) {
			return true
		}
	}
	return false
}

// matchHost compares a host in normal form with a pattern of a rule.
func matchHost(pattern, host string) bool {
	if below, ok := strings.CutPrefix(pattern, "*"); ok {
		return len(host) > len(below) && strings.HasSuffix(host, below)
	}
	return host == pattern
}

func indexOf(t rapid.TB, matches []config.Match) ([]rule, *index) {
	t.Helper()
	rules := make([]rule, len(matches))
	for i, m := range matches {
		var err error
		if rules[i].match, err = newMatcher(m); err != nil {
			t.Fatal(err)
		}
	}
	x, err := newIndex(rules)
	if err != nil {
		t.Fatal(err)
	}
	return rules, x
}

// drawMatch draws a match out of few words, so that many meet.
func drawMatch(t *rapid.T) (m config.Match) {
	m.Methods = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"GET", "HEAD", "POST", "PURGE"}), 0, 2, rapid.ID).Draw(t, "methods")
	m.Hosts = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a.example", "b.a.example", "*.example", "*.a.example", "2001:db8::1"}), 0, 2, rapid.ID).Draw(t, "hosts")
	segment := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h", "{id}", "{name}"})
	path := rapid.Custom(func(t *rapid.T) string {
		p := "/" + strings.Join(rapid.SliceOfN(segment, 0, 3).Draw(t, "segments"), "/")
		if rapid.Bool().Draw(t, "subtree") {
			p = strings.TrimSuffix(p, "/") + "/**"
		}
		return p
	})
	m.Paths = rapid.SliceOfN(path, 0, 3).Draw(t, "paths")
	return m
}

// What the index finds is what a walk over all rules finds, in its order.
func TestIndexIsTheWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, x := indexOf(t, rapid.SliceOfN(rapid.Custom(drawMatch), 0, 40).Draw(t, "rules"))
		method := rapid.SampledFrom([]string{"GET", "HEAD", "POST", "PURGE", "LINK", ""}).Draw(t, "method")
		host := rapid.SampledFrom([]string{"", ".", "example", "a.example", "b.a.example", "c.b.a.example", ".example", "xa.example", "2001:db8::1", "a.example.b", "..example"}).Draw(t, "host")
		raw := rapid.StringMatching(`(/[a-i]{0,1}|/\.\.|%2f|;x|/){0,6}`).Draw(t, "path")
		paths, _ := readings(raw, nil)
		var want []int32
		for i := range rules {
			if rules[i].match.match(method, host, paths) {
				want = append(want, int32(i))
			}
		}
		if got := x.find(method, host, paths, nil); !slices.Equal(got, want) {
			t.Fatalf("%s %s %q: found %v, want %v", method, host, paths, got, want)
		}
	})
}

func TestManyMethods(t *testing.T) {
	var matches []config.Match
	for i := range mostMethods {
		matches = append(matches, config.Match{Methods: []string{fmt.Sprint("M", i)}})
	}
	rules, x := indexOf(t, matches)
	for i := range rules {
		if got := x.find(fmt.Sprint("M", i), "", []string{"/"}, nil); !slices.Equal(got, []int32{int32(i)}) {
			t.Fatalf("method %d is that of rules %v", i, got)
		}
	}
	one, err := newMatcher(config.Match{Methods: []string{"ONE-MORE"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newIndex(append(rules, rule{match: one})); err == nil {
		t.Fatal("a method without a bit was taken")
	}
}

// manyRules are 10 000 rules of which a handful match the request.
func manyRules(t testing.TB) Policy {
	p := Policy{HTTP: behind("10.0.0.0/8")}
	for i := range 10_000 {
		r := ruleOf(t, fmt.Sprint("rule-", i), "client", "1000000/1s")
		switch i % 5 {
		case 0:
			r.Match.Paths = []string{fmt.Sprintf("/api/v%d/things/{id}", i)}
		case 1:
			r.Match.Paths = []string{fmt.Sprintf("/api/{version}/things-%d/**", i)}
		case 2:
			r.Match.Hosts = []string{fmt.Sprintf("tenant-%d.example", i)}
		case 3:
			r.Match.Hosts, r.Match.Methods = []string{fmt.Sprintf("*.region-%d.example", i)}, []string{"GET"}
		case 4:
			r.Match.Methods, r.Match.Paths = []string{"POST"}, []string{fmt.Sprintf("/shop/%d/**", i)}
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}

func manyRequest(t testing.TB) *http.Request {
	r := benchRequest(t)
	r.RemoteAddr, r.RequestURI, r.Host = "192.0.2.7:4711", "/api/v5000/things/7?x=1", "app.region-5003.example:8080"
	clear(r.Header)
	return r
}

func TestManyRules(t *testing.T) {
	p, err := manyRules(t).compile(limit.NewStore(0), func(string) *counts { return new(counts) })
	if err != nil {
		t.Fatal(err)
	}
	r := manyRequest(t)
	var found []int32
	n := testing.AllocsPerRun(100, func() {
		found = p.index.find(r.Method, "app.region-5003.example", []string{"/api/v5000/things/7"}, found[:0])
	})
	if !slices.Equal(found, []int32{5000, 5003}) || n > 0 {
		t.Errorf("found %v with %v allocations", found, n)
	}
	want(t, "decision", decideOnce(p, r, 0), pass)
}

// BenchmarkMatch10000 is the search alone, BenchmarkDecide10000 all of a
// decision.
func BenchmarkMatch10000(b *testing.B) {
	p, err := manyRules(b).compile(limit.NewStore(0), func(string) *counts { return new(counts) })
	if err != nil {
		b.Fatal(err)
	}
	paths, found := []string{"/api/v5000/things/7"}, []int32(nil)
	b.ReportAllocs()
	for b.Loop() {
		found = p.index.find("GET", "app.region-5003.example", paths, found[:0])
	}
}

func BenchmarkDecide10000(b *testing.B) {
	p, err := manyRules(b).compile(limit.NewStore(0), func(string) *counts { return new(counts) })
	if err != nil {
		b.Fatal(err)
	}
	r := manyRequest(b)
	b.ReportAllocs()
	for b.Loop() {
		decideOnce(p, r, 0)
	}
}
