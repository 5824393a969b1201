package daemon

import (
	"context"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/limit"
)

// httpCounts adds the counters of the child that runs to those of the ones
// that died, so that none ever falls.
type httpCounts struct {
	dead, live   map[string]l7.Counters  // by rule
	deadA, liveA map[int]uint64          // by status code
	deadE, liveE map[l7.EndReason]uint64 // connections ended without an answer
	deadF, liveF uint64                  // faults
	fleet        *l7.FleetState          // of the child that runs
	hidden       l7.Hidden               // the same
	deadL, liveL uint64                  // lines of the access log that were lost
	deadB, liveB limit.Stats             // of the dead only what never falls
	held         map[string]limit.Held   // by rule, of the child that runs
}

func newHTTPCounts() httpCounts {
	return httpCounts{
		dead: map[string]l7.Counters{}, live: map[string]l7.Counters{},
		deadA: map[int]uint64{}, liveA: map[int]uint64{},
		deadE: map[l7.EndReason]uint64{}, liveE: map[l7.EndReason]uint64{},
	}
}

// take stores what the child answered, of rules that exist and codes that HTTP
// has: a child that was taken over must not grow the daemon's memory.
func (c *httpCounts) take(a answer, rules []config.Rule) {
	c.held = map[string]limit.Held{}
	for _, r := range rules {
		if n, ok := a.Rules[r.Name]; ok {
			c.live[r.Name] = atLeast(c.live[r.Name], n)
		}
		if h, ok := a.Held[r.Name]; ok {
			c.held[r.Name] = h
		}
	}
	c.liveF = max(c.liveF, a.Faults)
	for _, reason := range l7.EndReasons {
		c.liveE[reason] = max(c.liveE[reason], a.Ended[reason])
	}
	c.liveL = max(c.liveL, a.Lost)
	c.fleet, c.hidden = a.Fleet, a.Hidden
	b := a.Buckets
	b.Evicted, b.Overflowed = max(c.liveB.Evicted, b.Evicted), max(c.liveB.Overflowed, b.Overflowed)
	c.liveB = b
	for code, n := range a.Answers {
		if code >= 100 && code <= 999 {
			c.liveA[code] = max(c.liveA[code], n)
		}
	}
}

// bank keeps the counters of a child that is gone.
func (c *httpCounts) bank() {
	c.dead, c.deadA = c.total()
	c.live, c.liveA = map[string]l7.Counters{}, map[int]uint64{}
	c.deadE, c.liveE = c.ended(), map[l7.EndReason]uint64{}
	c.deadF, c.liveF = c.faults(), 0
	c.deadL, c.liveL = c.lost(), 0
	all := c.buckets()
	c.held = nil
	c.deadB, c.liveB = limit.Stats{Evicted: all.Evicted, Overflowed: all.Overflowed}, limit.Stats{}
}

// prune forgets rules that are gone.
func (c *httpCounts) prune(rules []config.Rule) {
	names := make(map[string]bool, len(rules))
	for _, r := range rules {
		names[r.Name] = true
	}
	for _, m := range []map[string]l7.Counters{c.dead, c.live} {
		for name := range m {
			if !names[name] {
				delete(m, name)
			}
		}
	}
}

func (c *httpCounts) total() (map[string]l7.Counters, map[int]uint64) {
	rules, codes := map[string]l7.Counters{}, map[int]uint64{}
	for _, m := range []map[string]l7.Counters{c.dead, c.live} {
		for name, n := range m {
			t := rules[name]
			t.Passed += n.Passed
			t.Refused += n.Refused
			t.Watched += n.Watched
			t.Over += n.Over
			rules[name] = t
		}
	}
	for _, m := range []map[int]uint64{c.deadA, c.liveA} {
		for code, n := range m {
			codes[code] += n
		}
	}
	return rules, codes
}

func (c *httpCounts) ended() map[l7.EndReason]uint64 {
	all := make(map[l7.EndReason]uint64, len(l7.EndReasons))
	for _, reason := range l7.EndReasons {
		all[reason] = c.deadE[reason] + c.liveE[reason]
	}
	return all
}

func (c *httpCounts) lost() uint64 { return c.deadL + c.liveL }

// endedByName is ended as people see it: what never happened is left out.
func (c *httpCounts) endedByName() map[string]uint64 {
	all := map[string]uint64{}
	for reason, n := range c.ended() {
		if n > 0 {
			all[string(reason)] = n
		}
	}
	return all
}

func (c *httpCounts) faults() uint64 { return c.deadF + c.liveF }

// buckets is how the store of the child that runs fares, with the evictions and
// overflows of all.
func (c *httpCounts) buckets() limit.Stats {
	b := c.liveB
	b.Evicted += c.deadB.Evicted
	b.Overflowed += c.deadB.Overflowed
	return b
}

// atLeast is n, but in no part below old: answers may overtake each other.
func atLeast(old, n l7.Counters) l7.Counters {
	n.Passed = max(n.Passed, old.Passed)
	n.Refused = max(n.Refused, old.Refused)
	n.Watched = max(n.Watched, old.Watched)
	n.Over = max(n.Over, old.Over)
	return n
}

// steadyTime is how long a child must live for its death to be no crash loop.
const steadyTime = 10 * time.Second

// backoff is the pause before the next child, after so many deaths in a row.
// The first ones are made good at once: every pause is a wait for clients.
func backoff(deaths int) time.Duration {
	const free, first, most = 3, 50 * time.Millisecond, time.Second
	if deaths <= free {
		return 0
	}
	return min(most, first<<min(deaths-free-1, 10))
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
