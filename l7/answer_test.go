package l7

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/config"
)

// parsed is one item of a RateLimit field.
type parsed struct {
	name string
	n    map[string]int64
	pk   string

	dimensions []string
}

// parseLimits reads a field as RFC 9651 has it.
func parseLimits(t testing.TB, lines []string) (all []parsed) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		t.Fatalf("%q: %v", lines, err)
	}
	for _, m := range list {
		item := m.(httpsfv.Item)
		p := parsed{name: item.Value.(string), n: map[string]int64{}}
		for _, key := range item.Params.Names() {
			switch v, _ := item.Params.Get(key); v := v.(type) {
			case int64:
				p.n[key] = v
			case []byte:
				p.pk = string(v)
			case bool, httpsfv.Token:
				p.dimensions = append(p.dimensions, key)
			}
		}
		all = append(all, p)
	}
	return all
}

// RC-021, RC-048: Retry-After is whole seconds, at least 1, no more than the
// time for one token rounded up, and true.
func TestRetryAfter(t *testing.T) {
	cases := []struct {
		figures string
		most    int
	}{
		{"7/1s", 1}, {"1/1s", 1}, {"5/1m", 12}, {"100/1h", 36}, {"6/1m burst 1", 10}, {"1/1h burst 3", 3600},
		{"limit 7/1s", 1}, {"limit 5/1m", 60}, {"limit 200/1m", 60},
	}
	for _, c := range cases {
		t.Run(c.figures, func(t *testing.T) {
			r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", c.figures)}})
			client := r.client("127.0.0.2")
			for trial := range 100 {
				got := client.get()
				for ; got.status == 200; got = client.get() {
				}
				n, err := strconv.Atoi(got.header.Get("Retry-After"))
				if err != nil || n < 1 || n > c.most {
					t.Fatalf("trial %d: Retry-After %q, want 1 to %d", trial, got.header.Get("Retry-After"), c.most)
				}
				r.pass(time.Duration(n) * time.Second)
				if got := client.get(); got.status != 200 {
					t.Fatalf("trial %d: refused after the %d s of Retry-After", trial, n)
				}
				r.pass(time.Duration(trial*37) * time.Millisecond)
			}
		})
	}
	r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "6/1m burst 1")}})
	c := r.client("127.0.0.2")
	c.get()
	want(t, "6/min burst 1", c.get().header.Get("Retry-After"), "10")
}

// RC-089: what is said to remain lies between 0 and the quota on every answer,
// also to 50 at once.
func TestRemaining(t *testing.T) {
	r := newRig(t, Policy{HTTP: behind("127.0.0.2"), Rules: []config.Rule{
		ruleOf(t, "rate", "client", "10/1s burst 20"), ruleOf(t, "log", "client", "limit 30/1m"),
		ruleOf(t, "counter", "total", "limit 150/1m"), watching(ruleOf(t, "watched", "client", "1/1s")),
	}})
	var wg sync.WaitGroup
	for i := range 50 {
		c := r.client("127.0.0.2")
		wg.Go(func() {
			for range 4 {
				checkLimits(t, c.get(xff(fmt.Sprintf("203.0.113.%d", i%3))))
				r.pass(7 * time.Millisecond)
			}
		})
	}
	wg.Wait()
}

func checkLimits(t testing.TB, got reply) {
	policies, states := parseLimits(t, got.header["Ratelimit-Policy"]), parseLimits(t, got.header["Ratelimit"])
	if len(policies) != 3 || len(states) != 3 {
		t.Errorf("%d policies, %d states, want 3", len(policies), len(states))
		return
	}
	least := int64(-1)
	for i, s := range states {
		q := policies[i]
		if q.name != s.name || s.n["r"] < 0 || s.n["r"] > q.n["q"] || s.n["t"] < 1 || q.n["w"] < 1 || q.name == "watched" {
			t.Errorf("policy %v, state %v", q, s)
		}
		if (s.n["r"] == 0) && i > 0 && states[0].n["r"] != 0 || s.n["r"] < least {
			t.Errorf("not the most binding first: %v", states)
		}
		least = s.n["r"]
	}
	if got.status == 429 {
		if states[0].n["r"] != 0 || got.header.Get("Retry-After") != strconv.FormatInt(states[0].n["t"], 10) {
			t.Errorf("refused with %v and Retry-After %s", states, got.header.Get("Retry-After"))
		}
	}
}

func TestLimitFields(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{
		ruleOf(t, "hour", "client", "limit 100/1h"), ruleOf(t, "bucket.x", "client", "1/2s burst 5"),
		ruleOf(t, "blink", "total", "limit 10/250ms"), watching(ruleOf(t, "w", "client", "1/1h")),
	}})
	got := r.client("127.0.0.2").get()
	want(t, "policy", got.header.Get("RateLimit-Policy"), `"bucket.x";q=5;w=10, "blink";q=10;w=1, "hour";q=100;w=3600`)
	want(t, "state", unnamed(got.header), `"bucket.x";r=4;t=8, "blink";r=9;t=1, "hour";r=99;t=3600`)
	want(t, "Retry-After", got.header.Get("Retry-After"), "")
}

// unnamed is RateLimit without its partition keys.
func unnamed(h http.Header) string {
	return regexp.MustCompile(`;pk=:[0-9A-Za-z+/=]{12}:`).ReplaceAllString(strings.Join(h["Ratelimit"], ", "), "")
}

func TestAtMostEightItems(t *testing.T) {
	p := Policy{}
	for i := range 12 {
		p.Rules = append(p.Rules, ruleOf(t, fmt.Sprintf("r%d", i), "client", fmt.Sprintf("%d/1m", 100-i)))
	}
	r := newRig(t, p)
	c := r.client("127.0.0.2")
	got := parseLimits(t, c.get().header["Ratelimit"])
	if len(got) != 8 || got[0].name != "r11" || got[7].name != "r4" {
		t.Errorf("items %v, want the 8 most binding", got)
	}
}

// RC-141: Retry-After and the first item speak of the rule that binds.
func TestRetryAfterAgrees(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "second", "client", "10/1s"), ruleOf(t, "hour", "client", "limit 100/1h")}})
	c := r.client("127.0.0.2")
	for range 20 {
		c.passed(5)
		r.pass(time.Second)
	}
	got := c.get()
	want(t, "status", got.status, 429)
	want(t, "Retry-After", got.header.Get("Retry-After"), "3580")
	want(t, "state", unnamed(got.header), `"hour";r=0;t=3580, "second";r=10;t=1`)
	want(t, "violated", violated(t, got), "hour")
}

func violated(t testing.TB, got reply) string {
	t.Helper()
	var p problem
	if err := json.Unmarshal([]byte(got.body), &p); err != nil {
		t.Fatalf("%q: %v", got.body, err)
	}
	return strings.Join(p.Violated, " ")
}

func TestProblemBody(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{
		ruleOf(t, "a", "client", "1/1m"), ruleOf(t, "b", "client", "1/1h"), ruleOf(t, "c", "client", "9/1h"),
	}})
	c := r.client("127.0.0.2")
	c.get()
	got := c.get()
	var body map[string]any
	if err := json.Unmarshal([]byte(got.body), &body); err != nil {
		t.Fatal(err)
	}
	want(t, "id", body["request-id"], any(got.header.Get("Request-Id")))
	delete(body, "request-id")
	if diff := cmp.Diff(map[string]any{
		"type":              "https://iana.org/assignments/http-problem-types#quota-exceeded",
		"title":             "Request cannot be satisfied as assigned quota has been exceeded",
		"status":            429.0,
		"detail":            "over b, a: try again in 3600 s",
		"violated-policies": []any{"b", "a"},
	}, body); diff != "" {
		t.Error(diff)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Retry-After": "3600",
		"Content-Length": strconv.Itoa(len(got.body)),
	} {
		want(t, name, got.header.Get(name), value)
	}
	head := c.do("HEAD", "/")
	want(t, "HEAD", head.status, 429)
	want(t, "HEAD body", head.body, "")
}
