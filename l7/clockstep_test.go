package l7

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// RC-061: the wall clock steps back an hour, forward, and back again between
// requests. Nobody is locked out, nobody gets a second allowance, and no wait is
// longer than the limit's own time.
func TestWallClockSteps(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 14, 12, 0, 20, 0, time.UTC)
	minute := config.Rate{Amount: 5, Interval: time.Minute, Unit: config.Count}
	for _, c := range []struct {
		name string
		rule config.Rule
		most int64 // Retry-After, s
	}{
		{"token-bucket", ruleOf(t, "r", "client", "5/1m burst 5"), 60},
		{"sliding-log", ruleOf(t, "r", "client", "limit 5/1m"), 60},
		{"sliding-counter", config.Rule{Algorithm: config.SlidingCounter, Rate: minute}, 60},
		{"fixed-window", config.Rule{Algorithm: config.FixedWindow, Rate: minute}, 60},
		{"quota", config.Rule{Algorithm: config.Quota, Rate: config.Rate{Amount: 5, Interval: 24 * time.Hour, Unit: config.Count}, Calendar: &config.Calendar{Every: "day", TimeZone: "UTC"}}, 24 * 3600},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.rule.Name, c.rule.Gate, c.rule.Mode, c.rule.Per = "r", config.GateHTTP, config.Enforce, []config.Per{config.PerClient}
			var off atomic.Int64 // how far the wall clock is from true time
			r := newTunedRig(t, Policy{Rules: []config.Rule{c.rule}}, "127.0.0.1:0", nil, func(g *Gate) {
				g.Wall = func() time.Time { return noon.Add(time.Duration(off.Load() + elapsed(g))) }
			})
			step := func(d time.Duration) { off.Store(int64(d)) }
			client := r.client("127.0.0.1")
			want(t, "passed before", client.passed(2), 2)
			step(-time.Hour)
			r.pass(time.Second)
			want(t, "passed after the step back", client.passed(3), 3)
			for _, d := range []time.Duration{-time.Hour, 0, time.Hour, 0} {
				step(d)
				got := client.get()
				want(t, "status when all is used", got.status, 429)
				if wait, err := strconv.ParseInt(got.header.Get("Retry-After"), 10, 64); err != nil || wait > c.most {
					t.Errorf("Retry-After %d, %v", wait, err)
				}
			}
			r.pass(time.Duration(c.most+60) * time.Second)
			want(t, "status after the limit's time", client.get().status, 200)
		})
	}
}

// elapsed is how much true time has passed for g.
func elapsed(g *Gate) int64 { return int64(g.Clock()) }
