package l7

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// ruleText returns a rule as the configuration writes it.
func ruleText(t testing.TB, text string) config.Rule {
	t.Helper()
	r, err := config.ParseRule("rule", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newRigAt is a rig whose wall clock shows begin when its clock shows 0.
func newRigAt(t testing.TB, p Policy, begin string) *rig {
	t.Helper()
	at, err := time.Parse(time.RFC3339, begin)
	if err != nil {
		t.Fatal(err)
	}
	tune := func(g *Gate) { g.Wall = func() time.Time { return at.Add(g.Clock()) } }
	return newTunedRig(t, p, "127.0.0.1:0", nil, tune)
}

// A quota begins anew at midnight of its zone, also where that does not exist,
// and outlives reloads (RC-085), in which it may change (RC-030).
func TestQuota(t *testing.T) {
	text := "{name: daily, per: client, quota: %d/day, time_zone: America/Sao_Paulo}"
	p := Policy{Rules: []config.Rule{ruleText(t, fmt.Sprintf(text, 10))}}
	r := newRigAt(t, p, "2018-11-03T22:00:00-03:00")
	c := r.client("127.0.0.2")
	want(t, "the first day", c.passed(20), 10)
	got := c.get()
	want(t, "Retry-After", got.header.Get("Retry-After"), "7200")
	want(t, "RateLimit", got.header.Get("RateLimit")[:len(`"daily";r=0;t=7200`)], `"daily";r=0;t=7200`)
	for range 5 {
		r.set(Policy{Rules: []config.Rule{ruleText(t, fmt.Sprintf(text, 10))}})
		want(t, "after a reload", c.passed(2), 0)
	}
	r.set(Policy{Rules: []config.Rule{ruleText(t, fmt.Sprintf(text, 15))}})
	want(t, "raised", c.passed(20), 5)
	r.pass(2*time.Hour - time.Nanosecond)
	want(t, "before midnight", c.passed(1), 0)
	r.pass(time.Nanosecond)
	want(t, "the next day, which begins at 1", c.passed(20), 15)
	r.pass(23*time.Hour - time.Nanosecond)
	want(t, "until its 23 h are over", c.passed(1), 0)
	r.pass(time.Nanosecond)
	want(t, "the third day", c.passed(20), 15)
}

// 5 a minute of the clock: 5 at its end, 5 as the next begins.
func TestFixedWindow(t *testing.T) {
	r := newRigAt(t, Policy{Rules: []config.Rule{
		ruleText(t, "{name: minute, per: client, limit: 5/min, algorithm: fixed-window}"),
	}}, "2026-03-02T10:00:59Z")
	c := r.client("127.0.0.2")
	want(t, "at 10:00:59", c.passed(10), 5)
	want(t, "Retry-After", c.get().header.Get("Retry-After"), "1")
	r.pass(time.Second)
	want(t, "at 10:01:00", c.passed(10), 5)
	want(t, "Retry-After", c.get().header.Get("Retry-After"), "60")
}

// What is above the line passes up to its soft part.
func TestSoftPasses(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{ruleText(t, "{name: soft, per: client, limit: 20/h, soft: 10%}")}})
	c := r.client("127.0.0.2")
	want(t, "passed", c.passed(30), 22)
}

// Who does not stop asking stays out where refused requests count; other rules
// of the same request are not charged for it.
func TestCountRefusedStaysOut(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{
		ruleText(t, "{name: abuse, per: client, limit: 5/min, count_refused: true}"),
		ruleText(t, "{name: plain, per: client, limit: 50/h}"),
	}})
	c, passed := r.client("127.0.0.2"), 0
	for range 100 {
		passed += c.passed(1)
		r.pass(10 * time.Second)
	}
	want(t, "passed in a quarter of an hour of asking", passed, 5)
	want(t, "plain", r.gate.Counters()["plain"].Passed, 5)
	r.pass(time.Minute)
	want(t, "after a minute's pause", c.passed(1), 1)
}

// RC-038: with no room left no stranger passes uncounted, who was refused stays
// so, and the gate tells.
func TestNoRoom(t *testing.T) {
	p := Policy{Rules: []config.Rule{ruleText(t, "{name: all, per: key, limit: 1/h, memory: 64KiB}")}}
	p.HTTP = config.HTTP{KeyHeader: "X-Api-Key", Proxies: prefixes("127.0.0.2"), Memory: 1 << 20}
	r := newRig(t, p)
	c := r.client("127.0.0.2")
	first := []string{xff("198.51.100.1"), "X-Api-Key: first"}
	want(t, "the first", c.passed(3, first...), 1)
	passed := 0
	for i := range 2000 {
		who := []string{xff(fmt.Sprintf("192.0.%d.%d", i>>8, i&255)), "X-Api-Key: made-up"}
		passed += c.passed(1, who...)
	}
	if passed < 100 || passed > 1500 {
		t.Errorf("%d of 2000 strangers passed, in 64 KiB", passed)
	}
	if b := r.gate.Buckets(); b.Overflowed == 0 || b.Bytes > 1<<20 {
		t.Errorf("%+v", b)
	}
	want(t, "the first again", c.passed(3, first...), 0)
}
