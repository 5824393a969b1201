package fleet

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/redisrig"
	"github.com/headgate/headgate/limit"
)

// RC-004, RC-008: Redis is killed, paused, or refuses: hosts go on with their
// share, say so once, wait for nothing, keep few goroutines, and are back soon
// after Redis is.
func TestOutages(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		out  func(*redisrig.Server)
		back func(*redisrig.Server)
		why  string
	}{
		"killed": {nil, (*redisrig.Server).Kill, (*redisrig.Server).Again, "connection refused|EOF|reset"},
		"paused": {nil, (*redisrig.Server).Pause, (*redisrig.Server).Resume, "does not answer in time|no answer"},
		"full": {nil,
			func(s *redisrig.Server) { s.Client().ConfigSet(context.Background(), "maxmemory", "1") },
			func(s *redisrig.Server) { s.Client().ConfigSet(context.Background(), "maxmemory", "0") }, "out of memory"},
		"password": {nil,
			func(s *redisrig.Server) {
				c := s.Client() // it is in already
				c.ConfigSet(context.Background(), "requirepass", "other")
				c.Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal")
			},
			func(s *redisrig.Server) { s.Kill(); s.Again() }, "password"},
		"replica": {nil,
			func(s *redisrig.Server) { s.Client().SlaveOf(context.Background(), "127.0.0.1", "1") },
			func(s *redisrig.Server) { s.Client().SlaveOf(context.Background(), "NO", "ONE") }, "replica|primary"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redisrig.Start(t, c.args...)
			hosts := fleetOf(t, s.Addr, 2)
			r := newRule(t, hosts, "a", rate(t, 200, time.Second, 200), limit.Lines, limit.Share)
			exact := newRule(t, hosts, "e", rate(t, 100, time.Second, 100), limit.Exact, limit.Share)
			open := newRule(t, hosts, "o", rate(t, 1, time.Hour, 1), limit.Exact, limit.Open)
			closed := newRule(t, hosts, "c", rate(t, 1000, time.Second, 1000), limit.Lines, limit.Closed)
			r.offer(hosts, "k", 400, time.Second/2)
			exact.offer(hosts, "k", 400, time.Second/2)
			before := runtime.NumGoroutine()
			c.out(s)
			for _, h := range hosts {
				await.For(t, "the outage is seen", func() bool { r.take(h, "k"); exact.take(h, "k"); return !h.State().Up })
			}
			begin := time.Now()
			passed, byExact := 0, 0
			for n := range 800 {
				time.Sleep(time.Until(begin.Add(time.Duration(n) * 2500 * time.Microsecond)))
				h := hosts[n%2]
				if ok, _ := r.take(h, "k"); ok {
					passed++
				}
				if ok, _ := exact.take(h, "k"); ok {
					byExact++
				}
				if ok, ch := open.take(h, "k"); !ok || !ch.Down {
					t.Fatal("open refused")
				}
				if ok, ch := closed.take(h, "k"); ok || !ch.Down {
					t.Fatal("closed let through")
				}
			}
			took := time.Since(begin).Seconds()
			if most := 1.3*(200*took) + 250; float64(passed) > most || float64(passed) < 0.5*200*took {
				t.Errorf("%d passed in %.1f s without Redis, want about %.0f", passed, took, 200*took)
			}
			if most := 100*took + 110; float64(byExact) > most || byExact < 50 {
				t.Errorf("%d of the exact limit passed in %.1f s, at most %.0f", byExact, took, most)
			}
			if n := runtime.NumGoroutine(); n > before+40 {
				t.Errorf("%d goroutines, %d before", n, before)
			}
			c.back(s)
			for _, h := range hosts {
				await.For(t, "the fleet is back", func() bool { return h.State().Up })
				if n := strings.Count(h.log.String(), "out of reach"); n != 1 {
					t.Errorf("told %d times:\n%s", n, &h.log)
				}
				reason := false
				for part := range strings.SplitSeq(c.why, "|") {
					reason = reason || strings.Contains(h.log.String(), part)
				}
				if !reason {
					t.Errorf("why is not told (%s):\n%s", c.why, &h.log)
				}
			}
			await.For(t, "and counts together", func() bool { ok, ch := exact.take(hosts[0], "k"); return ok && !ch.Down && ch.Told != nil })
		})
	}
}

// RC-065: Redis is not there at the start: the host serves all the same, as one of as
// many as it was told to expect.
func TestAbsentAtBoot(t *testing.T) {
	t.Parallel()
	s := redisrig.Start(t)
	s.Kill()
	h := join(t, s.Addr, "one", func(o *Options) { o.Expected = 4 })
	r := newRule(t, []*host{h}, "a", rate(t, 1, time.Hour, 40), limit.Lines, limit.Share)
	e := newRule(t, []*host{h}, "e", rate(t, 1, time.Hour, 40), limit.Exact, limit.Share)
	passed, exact := 0, 0
	for range 100 {
		if ok, _ := r.take(h, "k"); ok {
			passed++
		}
		if ok, _ := e.take(h, "k"); ok {
			exact++
		}
	}
	want(t, "by line", passed <= 40 && passed >= 10, true)
	want(t, "exact", exact, 10)
	await.For(t, "it is told", func() bool { return strings.Contains(h.log.String(), "out of reach") })
	s.Again()
	await.For(t, "it is found", func() bool { return h.State().Up })
}
