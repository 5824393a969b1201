package l7

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/config"
)

func pagesOf(origins []string, rules ...config.Rule) Policy {
	return Policy{HTTP: config.HTTP{Answers: config.Answers{CORS: config.CORS{Origins: origins}}}, Rules: rules}
}

// exposes reports whether a page may see a field of an answer that it may read.
func exposes(h http.Header, name string) bool {
	for item := range strings.SplitSeq(strings.Join(h["Access-Control-Expose-Headers"], ","), ",") {
		if strings.EqualFold(strings.TrimSpace(item), name) {
			return true
		}
	}
	return false
}

// RC-080: a page can read its refusal and how long to wait; preflights are
// neither refused nor counted.
func TestPagesReadRefusals(t *testing.T) {
	r := newRig(t, pagesOf([]string{"https://app.example"}, ruleOf(t, "a", "client", "10/1m")))
	c := r.client("127.0.0.2")
	origin := "Origin: https://app.example"
	for range 20 {
		want(t, "preflight", c.do("OPTIONS", "/", origin, "Access-Control-Request-Method: GET").status, 200)
	}
	want(t, "passed", c.passed(10, origin), 10)
	got := c.get(origin)
	want(t, "status", got.status, 429)
	want(t, "origin", got.header.Get("Access-Control-Allow-Origin"), "https://app.example")
	want(t, "credentials", got.header.Get("Access-Control-Allow-Credentials"), "true")
	want(t, "Vary", got.header.Get("Vary"), "Origin")
	for _, name := range append([]string{"Retry-After", "Request-Id"}, limitFields(got.header)...) {
		if !exposes(got.header, name) {
			t.Errorf("%s is not exposed: %q", name, got.header["Access-Control-Expose-Headers"])
		}
	}
	for _, other := range []string{"X-A: b", "Origin: https://evil.example", "Origin: null", "Origin: https://app.example.evil"} {
		h := c.get(other).header
		want(t, other, h.Get("Access-Control-Allow-Origin")+h.Get("Access-Control-Allow-Credentials"), "")
		want(t, other, h.Get("Vary"), "Origin")
	}
	want(t, "counters", r.gate.Counters()["a"].Passed, 10)
}

// What each dialect sends, pages may see; of the upstream's answers too, if the
// upstream lets them read those. That is for it alone to say.
func TestPagesReadLimits(t *testing.T) {
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/open" {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header().Set("Access-Control-Expose-Headers", "X-Own")
		}
	})
	for d := range told {
		p := pagesOf([]string{"*"}, ruleOf(t, "a", "client", "2/1m"))
		p.HTTP.Answers.Dialect = d
		c := newRigOn(t, p, "127.0.0.1:0", upstream).client("127.0.0.2")
		open, closed := c.do("GET", "/open", "Origin: https://x.example"), c.do("GET", "/", "Origin: https://x.example")
		for _, name := range append(limitFields(open.header), "X-Own") {
			if !exposes(open.header, name) {
				t.Errorf("%s: %s is not exposed: %q", d, name, open.header["Access-Control-Expose-Headers"])
			}
		}
		want(t, "closed", fmt.Sprint(closed.header["Access-Control-Allow-Origin"], closed.header["Access-Control-Expose-Headers"], closed.header["Vary"]), "[] [] []")
		refused := c.get("Origin: https://x.example")
		want(t, "refused", fmt.Sprint(refused.status, refused.header["Access-Control-Allow-Origin"], refused.header["Access-Control-Allow-Credentials"]), "429 [*] []")
		if names := limitFields(refused.header); len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return !exposes(refused.header, n) }) {
			t.Errorf("%s: %v, exposed %q", d, names, refused.header["Access-Control-Expose-Headers"])
		}
	}
}

// Without a list nothing is said, and blocked pages may read that they are.
func TestOtherAnswersToPages(t *testing.T) {
	p := pagesOf([]string{"https://app.example"})
	p.Block = prefixes("127.0.0.9")
	got := newRig(t, p).client("127.0.0.9").get("Origin: https://app.example")
	want(t, "blocked", fmt.Sprint(got.status, got.header.Get("Access-Control-Allow-Origin")), "403https://app.example")
	c := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "a", "client", "1/1m")}}).client("127.0.0.2")
	c.get()
	h := c.get("Origin: https://app.example").header
	want(t, "no list", fmt.Sprint(h["Access-Control-Allow-Origin"], h["Vary"]), "[] []")
}
