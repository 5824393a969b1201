package l7

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

func at(r config.Rule, paths ...string) config.Rule {
	r.Match.Paths = paths
	return r
}

func watching(r config.Rule) config.Rule {
	r.Mode = config.Watch
	return r
}

// RC-003: what is exempt is never refused while others are limited.
func TestExempt(t *testing.T) {
	p := Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "10/1m")}}
	p.HTTP.Exempt = []config.Exempt{{Path: "/healthz", From: prefixes("127.0.0.2")}, {Path: "/ready"}}
	r := newRig(t, p)
	probe, other := r.client("127.0.0.2"), r.client("127.0.0.3")
	want(t, "flood", other.passed(50), 10)
	for range 600 {
		if got := probe.do("GET", "/healthz"); got.status != 200 || got.header.Get("RateLimit") != "" {
			t.Fatalf("probe: %d %v", got.status, got.header)
		}
	}
	want(t, "exempt for all", other.do("GET", "/ready").status, 200)
	want(t, "not from there", other.do("GET", "/healthz").status, 429)
	want(t, "the probe elsewhere", probe.passed(20), 10)
	for _, target := range []string{"/healthz/../admin", "/healthz;/admin", "/admin/..%2fhealthz", "/healthz%2fadmin"} {
		want(t, target+" is not exempt", probe.do("GET", target).status, 429)
	}
}

// RC-020: the allow list wins over blocks and rules.
func TestAllowWins(t *testing.T) {
	r := newRig(t, Policy{
		Rules: []config.Rule{ruleOf(t, "all", "client", "5/1m"), ruleOf(t, "cap", "total", "7/1m")},
		Block: prefixes("127.0.1.0/24"), Allow: prefixes("127.0.1.7"),
	})
	want(t, "allowed", r.client("127.0.1.7").passed(100), 100)
	got := r.client("127.0.1.8").get()
	want(t, "blocked", got.status, 403)
	want(t, "type", got.header.Get("Content-Type"), "application/problem+json")
	want(t, "Retry-After", got.header.Get("Retry-After"), "")
	want(t, "cap charged", r.gate.Counters()["cap"], Counters{})
	want(t, "others", r.client("127.0.2.1").passed(9), 5)
}

// RC-025a: 500 at once over 200 connections against 50, many times.
func TestParallel(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{
		ruleOf(t, "fifty", "total", "1/1m burst 50"), ruleOf(t, "wide", "client", "1/1m burst 10000"),
		ruleOf(t, "window", "total", "limit 60/1m"),
	}})
	conns := make(chan *client, 200)
	for range cap(conns) {
		conns <- r.client("127.0.0.2")
	}
	for round := range 20 {
		var passed, other atomic.Int64
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				c := <-conns
				defer func() { conns <- c }()
				switch c.get().status {
				case 200:
					passed.Add(1)
				case 429:
				default:
					other.Add(1)
				}
			})
		}
		wg.Wait()
		if passed.Load() != 50 || other.Load() != 0 {
			t.Fatalf("round %d: %d passed, %d neither 200 nor 429", round, passed.Load(), other.Load())
		}
		r.pass(50 * time.Minute)
	}
	want(t, "wide charged", r.gate.Counters()["wide"], Counters{Passed: 1000})
}

// RC-059: refused by one rule, charged to none.
func TestRefusedByOne(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "second", "client", "1/1s"), ruleOf(t, "daily", "client", "limit 100/24h")}})
	c, passed := r.client("127.0.0.2"), 0
	for range 200 { // 10 a second for 20 s
		passed += c.passed(1)
		r.pass(100 * time.Millisecond)
	}
	want(t, "passed", passed, 20)
	want(t, "second", r.gate.Counters()["second"], Counters{Passed: 20, Refused: 180})
	want(t, "daily", r.gate.Counters()["daily"], Counters{Passed: 20})
}

// RC-092: equal figures, separate buckets.
func TestEqualRules(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{
		at(ruleOf(t, "coffee", "client", "3/1m"), "/coffee"), at(ruleOf(t, "tea", "client", "3/1m"), "/tea"),
	}})
	c := r.client("127.0.0.2")
	for _, path := range []string{"/coffee", "/tea"} {
		for range 3 {
			want(t, path, c.do("GET", path).status, 200)
		}
		want(t, path, c.do("GET", path).status, 429)
	}
}

// RC-085: a reload gives no fresh budget; RC-030: new figures bind at once.
func TestReload(t *testing.T) {
	p := Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "10/1h")}}
	r := newRig(t, p)
	c := r.client("127.0.0.2")
	want(t, "drained", c.passed(20), 10)
	for i := range 20 {
		p.Block = prefixes(fmt.Sprintf("192.0.2.%d", i))
		r.set(p)
		want(t, "after a reload", c.passed(2), 0)
	}
	moved := at(ruleOf(t, "all", "client", "10/1h"), "/**")
	r.set(Policy{Rules: []config.Rule{watching(moved)}})
	want(t, "watched", c.passed(3), 3)
	r.set(Policy{Rules: []config.Rule{moved}})
	want(t, "match and mode changed and back", c.passed(3), 0)
	want(t, "counters", r.gate.Counters()["all"], Counters{Passed: 10, Refused: 10 + 40 + 3, Watched: 3})

	r.set(Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "20/1h")}})
	if got := c.passed(20); got < 9 || got > 10 {
		t.Errorf("raised from 10 to 20: %d more passed, want 10", got)
	}
	r.set(Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "2/1h")}})
	want(t, "lowered", c.passed(5), 0)
	r.set(Policy{Rules: []config.Rule{ruleOf(t, "other", "client", "2/1h")}})
	want(t, "another name starts full", c.passed(5), 2)
	for _, per := range []string{"total", "client,total"} {
		r.set(Policy{Rules: []config.Rule{ruleOf(t, "other", per, "2/1h")}})
		want(t, "per "+per+" starts full", c.passed(5), 2)
	}
	r.set(Policy{Rules: []config.Rule{ruleOf(t, "other", "total,client", "2/1h")}})
	want(t, "the order of per is nothing", c.passed(5), 0)
}

// DESIGN 7: a watch rule charges its own bucket as if it enforced, affects no
// other, and is not charged when an enforcing rule refuses.
func TestWatch(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{
		watching(ruleOf(t, "watch", "client", "10/1m")), ruleOf(t, "enforce", "client", "20/1m"),
	}})
	c := r.client("127.0.0.2")
	want(t, "passed", c.passed(30), 20)
	want(t, "watch", r.gate.Counters()["watch"], Counters{Passed: 10, Watched: 20})
	want(t, "enforce", r.gate.Counters()["enforce"], Counters{Passed: 20, Refused: 10})
	r.pass(6 * time.Second) // watch: 1 more; enforce: 2 more
	want(t, "passed", c.passed(3), 2)
	want(t, "watch", r.gate.Counters()["watch"], Counters{Passed: 11, Watched: 22})

	// The other way round: the enforcing rule refuses first.
	r.set(Policy{Rules: []config.Rule{watching(ruleOf(t, "w", "client", "5/1m")), ruleOf(t, "e", "client", "2/1m")}})
	c.passed(10)
	want(t, "w is not charged for refusals", r.gate.Counters()["w"], Counters{Passed: 2})
}

// RC-057: after long idleness a client passes, with its burst and no more.
func TestIdleClient(t *testing.T) {
	for _, figures := range []string{"1/1h burst 2", "1000000/1s burst 2", "limit 2/1h"} {
		r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", figures)}})
		c := r.client("127.0.0.2")
		c.passed(3)
		for _, idle := range []time.Duration{2 * time.Hour, 6 * 24 * time.Hour, 1193 * time.Hour, 365 * 24 * time.Hour} {
			r.pass(idle)
			want(t, fmt.Sprint(figures, " after ", idle), c.passed(4), 2)
		}
	}
}

// RC-091, RC-140 in the HTTP gate: slow rates give their tokens on time, and a
// limit lets up when its clients do.
func TestRefill(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "5/1m burst 1")}})
	c := r.client("127.0.0.2")
	want(t, "first", c.passed(2), 1)
	for range 3 {
		r.pass(11900 * time.Millisecond)
		want(t, "early", c.passed(2), 0)
		r.pass(100 * time.Millisecond)
		want(t, "on time", c.passed(2), 1)
	}
	for range 10 {
		r.pass(24 * time.Second)
		want(t, "at half the rate", c.passed(1), 1)
	}
}

// RC-023 and RC-118 over sockets.
func TestOpenLoop(t *testing.T) {
	cases := []struct {
		name, figures string
		every         time.Duration
		asks          int
		low, high     int
	}{
		{"RC-118", "10/1s", 10 * time.Millisecond, 1000, 108, 112},
		{"RC-023", "10/1m", 200 * time.Millisecond, 3000, 109, 110},
	}
	for _, c := range cases {
		r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", c.figures)}})
		client, passed := r.client("127.0.0.2"), 0
		for range c.asks {
			passed += client.passed(1)
			r.pass(c.every)
		}
		if passed < c.low || passed > c.high {
			t.Errorf("%s: %d passed, want %d to %d", c.name, passed, c.low, c.high)
		}
	}
}

// RC-053: a page with 40 assets passes within the burst that the number in the
// rate gives, and what is refused is 429, never 503.
func TestPageLoad(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "50/1s")}})
	c := r.client("127.0.0.2")
	for range 10 {
		want(t, "page", c.passed(41), 41)
		r.pass(5 * time.Second)
	}
	c.passed(100) // fails on any other status than 200 and 429
	want(t, "503", r.gate.Answers()[503], 0)
}

// A preflight is charged to 100/s a client, and to no rule.
func TestPreflight(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "5/1m")}})
	c := r.client("127.0.0.2")
	ask := func(headers ...string) int { return c.do("OPTIONS", "/", headers...).status }
	passed := 0
	for range 150 {
		if ask("Origin: https://a.example", "Access-Control-Request-Method: POST") == 200 {
			passed++
		}
	}
	want(t, "preflights", passed, 100)
	want(t, "rule", r.gate.Counters()["all"], Counters{})
	for range 5 {
		want(t, "no preflight", ask("Origin: https://a.example"), 200)
	}
	want(t, "no preflight", ask("Origin: https://a.example"), 429)
	want(t, "OPTIONS *", c.do("OPTIONS", "*").status, 429)
	if len(r.gate.Counters()) != 1 {
		t.Errorf("counters %v hold more than the rules", r.gate.Counters())
	}
}

func benchPolicy(t testing.TB, rules int) *policy {
	p := Policy{HTTP: behind("10.0.0.0/8")}
	for i := range rules {
		p.Rules = append(p.Rules, at(ruleOf(t, "rule-"+strconv.Itoa(i), "client", "100000000/1s"), "/api/**"))
	}
	c, err := p.compile(limit.NewStore(0), func(string) *counts { return new(counts) })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// benchRequest has a context such as the server makes for requests of HTTP/1.
func benchRequest(t testing.TB) *http.Request {
	ctx := context.WithValue(keepConnection(t.Context(), nil), http.LocalAddrContextKey, new(net.TCPAddr))
	ctx, end := context.WithCancel(ctx)
	t.Cleanup(end)
	ctx, end = context.WithCancel(ctx)
	t.Cleanup(end)
	r := &http.Request{
		Method: "GET", RemoteAddr: "10.0.0.2:4711", RequestURI: "/api/v1/things?x=1", Host: "app.example:8080",
		Header: http.Header{"X-Forwarded-For": {"203.0.113.7"}, "X-Api-Key": {"some-key-of-usual-length-1234567890"}},
	}
	return r.WithContext(ctx)
}

func decideOnce(p *policy, r *http.Request, now limit.Ticks) verdict {
	var a asker
	p.identify(r, &a)
	d := newDecision(p)
	defer d.release()
	return d.judge(p, r, &a, now)
}

func TestDecisionAllocatesNothing(t *testing.T) {
	r := benchRequest(t)
	for _, per := range []string{"client", "key"} {
		p := Policy{HTTP: behind("10.0.0.0/8")}
		p.HTTP.KeyHeader = "X-Api-Key"
		for i := range 8 {
			p.Rules = append(p.Rules, ruleOf(t, "rule-"+strconv.Itoa(i), "client", "1000000/1s"))
		}
		p.Rules[0].Per = []config.Per{config.Per(per)}
		ready := testPolicy(t, p)
		decideOnce(ready, r, 0)
		n := testing.AllocsPerRun(1000, func() {
			if decideOnce(ready, r, 0) != pass {
				t.Fatal("refused")
			}
		})
		// The race detector empties pools at random.
		if n >= 1 && !raceEnabled {
			t.Errorf("per %s: %v allocations a decision", per, n)
		}
	}
}

// A whole decision: who asks, which rules match, take.
func BenchmarkDecide1(b *testing.B)       { benchDecide(b, 1, "192.0.2.7:4711") }
func BenchmarkDecide8(b *testing.B)       { benchDecide(b, 8, "192.0.2.7:4711") }
func BenchmarkDecide1Behind(b *testing.B) { benchDecide(b, 1, "10.0.0.2:4711") }
func BenchmarkDecide8Behind(b *testing.B) { benchDecide(b, 8, "10.0.0.2:4711") }

func benchDecide(b *testing.B, rules int, peer string) {
	p := benchPolicy(b, rules)
	begin := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := benchRequest(b)
		r.RemoteAddr = peer
		for pb.Next() {
			decideOnce(p, r, limit.FromDuration(time.Since(begin)))
		}
	})
}

// Of so many clients in turn, behind a proxy, each with a bucket.
func BenchmarkDecide1Of100k(b *testing.B) { benchClients(b, 1, 100_000) }
func BenchmarkDecide1Of1M(b *testing.B)   { benchClients(b, 1, 1_000_000) }
func BenchmarkDecide8Of100k(b *testing.B) { benchClients(b, 8, 100_000) }

func benchClients(b *testing.B, rules, clients int) {
	p, names := benchPolicy(b, rules), make([]string, clients)
	setName := func(r *http.Request, i int) { r.Header["X-Forwarded-For"][0] = names[i] }
	r := benchRequest(b)
	for i := range names {
		names[i] = netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)}).String()
		setName(r, i)
		decideOnce(p, r, 0)
	}
	begin := time.Now()
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		r := benchRequest(b)
		for i := rand.IntN(clients); pb.Next(); i = (i + 7919) % clients {
			setName(r, i)
			decideOnce(p, r, limit.FromDuration(time.Since(begin)))
		}
	})
}

// BenchmarkTimeRate is the bare limiter that decisions are compared with.
func BenchmarkTimeRate(b *testing.B) {
	l := rate.NewLimiter(100_000_000, 100_000_000)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Allow()
		}
	})
}

// BenchmarkOddPath is the most work that a client's path can make.
func BenchmarkOddPath(b *testing.B) {
	raw := strings.Repeat("/a;/..%252f//%5c.", 1<<10/17)
	var to []string
	for b.Loop() {
		var ok bool
		if to, ok = readings(raw, to[:0]); !ok {
			b.Fatal("too long")
		}
	}
}
