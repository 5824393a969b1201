package l7

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/redisrig"
)

// fleetRigs are gates of one fleet.
func fleetRigs(t *testing.T, addr string, n int, rules ...config.Rule) (all []*rig) {
	t.Helper()
	f := &config.Fleet{Name: "test", Secret: []byte("a secret of all hosts"), Hosts: n, Redis: config.Redis{Addresses: []string{addr}}}
	for range n {
		begin := time.Now()
		all = append(all, newTunedRig(t, Policy{Fleet: f, Rules: rules}, "127.0.0.1:0", nil, func(g *Gate) {
			g.Clock = func() time.Duration { return time.Since(begin) } // Redis' clock does not stand still
		}))
	}
	for _, r := range all {
		await.For(t, "the gates know each other", func() bool { s := r.gate.Fleet(); return s != nil && s.Up && len(s.Hosts) == n })
	}
	return all
}

func scoped(r config.Rule, s config.Scope, o config.Outage) config.Rule {
	r.Scope, r.Outage = s, o
	return r
}

// What gates of one fleet let through together is the limit, for each algorithm,
// also where a request meets rules that are counted in different places. A
// request that one of them refuses takes nothing of the others.
func TestGatesOfAFleet(t *testing.T) {
	t.Parallel()
	day := config.Rule{
		Name: "day", Gate: config.GateHTTP, Mode: config.Enforce, Per: []config.Per{config.PerClient},
		Algorithm: config.Quota, Rate: config.Rate{Amount: 9, Interval: 24 * time.Hour, Unit: config.Count},
		Calendar: &config.Calendar{Every: "day", TimeZone: "UTC"},
	}
	for name, rules := range map[string][]config.Rule{
		"rate":    {ruleOf(t, "a", "client", "9/1h")},
		"quota":   {day},
		"log":     {ruleOf(t, "a", "client", "limit 9/1h")},
		"counter": {scoped(config.Rule{Name: "a", Gate: config.GateHTTP, Mode: config.Enforce, Per: day.Per, Algorithm: config.SlidingCounter, Rate: config.Rate{Amount: 9, Interval: time.Hour, Unit: config.Count}}, "", "")},
		"several": {ruleOf(t, "a", "client", "limit 9/1h"), ruleOf(t, "b", "client", "100/1h"), scoped(ruleOf(t, "c", "client", "100/1h"), config.ScopeHost, "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rigs := fleetRigs(t, redisrig.Start(t).Addr, 2, rules...)
			a, b := rigs[0].client("127.0.0.1"), rigs[1].client("127.0.0.1")
			passed := 0
			for range 10 {
				passed += a.passed(1) + b.passed(1)
			}
			// On a busy machine an answer may come too late, and the gate that
			// waited decides by its share.
			if late := rigs[0].gate.Fleet().Late + rigs[1].gate.Fleet().Late; late == 0 {
				want(t, "passed by both", passed, 9)
			} else if passed > 9+int(late) {
				t.Errorf("%d passed by both, of %d too late", passed, late)
			}
			got := a.get()
			want(t, "status", got.status, 429)
			if got.header.Get("Retry-After") == "" || !strings.Contains(got.header.Get("RateLimit"), "r=0") {
				t.Errorf("answered with %v", got.header)
			}
			want(t, "another client", rigs[1].client("127.0.0.2").get().status, 200)
			if name == "several" {
				if n := rigs[0].gate.Counters()["c"].Passed + rigs[1].gate.Counters()["c"].Passed; n != uint64(passed)+1 {
					t.Errorf("%d taken of a rule that never refused", n)
				}
			}
		})
	}
}

// RC-004: without Redis an open rule refuses nothing, a closed one answers 503
// with a time to come back, never 429, and the rest go on with their share.
func TestGateWithoutRedis(t *testing.T) {
	t.Parallel()
	s := redisrig.Start(t)
	in := func(path string, r config.Rule) config.Rule { r.Match.Paths = []string{path}; return r }
	rigs := fleetRigs(t, s.Addr, 1,
		in("/open", scoped(ruleOf(t, "open", "client", "limit 1/1h"), config.ScopeExact, config.OutageOpen)),
		in("/closed", scoped(ruleOf(t, "closed", "client", "1000/1s"), config.ScopeFleet, config.OutageClosed)),
		in("/share", ruleOf(t, "share", "client", "limit 4/1h")))
	c := rigs[0].client("127.0.0.1")
	s.Kill()
	await.For(t, "the outage is seen", func() bool { c.do("GET", "/closed"); return !rigs[0].gate.Fleet().Up })
	for range 5 {
		want(t, "open", c.do("GET", "/open").status, 200)
	}
	got := c.do("GET", "/closed")
	want(t, "closed", got.status, 503)
	want(t, "Retry-After", got.header.Get("Retry-After"), "5")
	if !strings.Contains(got.body, "temporary-reduced-capacity") {
		t.Errorf("closed: %s", got.body)
	}
	passed := 0
	for range 10 {
		if c.do("GET", "/share").status == 200 {
			passed++
		}
	}
	want(t, "passed by share", passed, 4)
	s.Again()
	await.For(t, "the fleet is back", func() bool { return rigs[0].gate.Fleet().Up })
	await.For(t, "closed is served", func() bool { return c.do("GET", "/closed").status == 200 })
}

// The fleet is joined at the start and not left or changed while it serves.
func TestFleetChangesWithARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, Policy{})
	want(t, "status", r.client("127.0.0.1").get().status, 200)
	f := &config.Fleet{Name: "test", Secret: []byte("a secret of all hosts"), Redis: config.Redis{Addresses: []string{"127.0.0.1:1"}}}
	if err := r.gate.SetPolicy(Policy{Fleet: f}); err == nil || !strings.Contains(err.Error(), "restart") {
		t.Errorf("joined while it serves: %v", err)
	}
	if r.gate.Fleet() != nil {
		t.Error("it is in a fleet")
	}
}
