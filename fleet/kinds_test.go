package fleet

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/redisrig"
	"github.com/headgate/headgate/limit"
)

// hostsOf starts two members that know each other.
func hostsOf(t *testing.T, addr string, change func(*Options)) (all []*host) {
	t.Helper()
	for i := range 2 {
		all = append(all, join(t, addr, fmt.Sprint("host", i), change))
	}
	for _, h := range all {
		await.For(t, "the hosts know each other", func() bool { return h.State().Up && len(h.State().Hosts) == 2 })
	}
	return all
}

// shares fails unless hosts admit 6 of each of many keys, by question and by
// line, and none is counted twice: the keys lie in all shards.
func shares(t *testing.T, hosts []*host, keys string) {
	t.Helper()
	exact := newRule(t, hosts, "exact"+keys, must(limit.NewWindow(limit.SlidingLog, 6, time.Hour)), limit.Exact, limit.Share)
	lines := newRule(t, hosts, "lines"+keys, rate(t, 6, time.Hour, 6), limit.Lines, limit.Share)
	checked := 0
	for k := range 20 {
		byLine, late := 0, hosts[0].Counts.Late.Load()+hosts[1].Counts.Late.Load()
		passed := 0
		for n := range 12 {
			if ok, _ := exact.take(hosts[n%2], fmt.Sprint(keys, k)); ok {
				passed++
			}
			if ok, _ := lines.take(hosts[n%2], fmt.Sprint(keys, k)); ok {
				byLine++
			}
		}
		if late != hosts[0].Counts.Late.Load()+hosts[1].Counts.Late.Load() {
			continue // decided without Redis now and then: the machine is busy
		}
		checked++
		if passed != 6 || byLine < 6 || byLine > 8 {
			t.Errorf("key %d: %d and %d passed, want 6", k, passed, byLine)
		}
	}
	if checked == 0 {
		t.Error("Redis never answered in time")
	}
}

// RC-029: on a Cluster, keys are spread over its nodes, and a decision whose limits lie
// in different slots takes of all or of none.
func TestCluster(t *testing.T) {
	t.Parallel()
	addresses := redisrig.Cluster(t)
	hosts := hostsOf(t, addresses[0], func(o *Options) { o.Cluster, o.Addresses, o.Deadline = true, addresses, 50*time.Millisecond })
	shares(t, hosts, "k")
	wide := newRule(t, hosts, "wide", must(limit.NewWindow(limit.SlidingLog, 50, time.Hour)), limit.Exact, limit.Share)
	narrow := newRule(t, hosts, "narrow", must(limit.NewWindow(limit.SlidingLog, 2, time.Hour)), limit.Exact, limit.Share)
	h := hosts[0]
	both := func(key string) bool {
		var c []limit.Charge
		for _, r := range []*rule{wide, narrow} {
			c = append(c, limit.Charge{Limit: r.limits[h], Account: r.accs[h], Key: r.accs[h].Key(h.store.Key([]byte(key)))})
		}
		ok := h.store.Take(h.clock(), c)
		if !ok && limit.Asking(c) {
			ok = h.Decide(c)
		}
		return ok
	}
	for k := range 10 {
		key := fmt.Sprint("both", k)
		passed := 0
		for range 8 {
			if both(key) {
				passed++
			}
		}
		want(t, "passed by both", passed, 2)
		looks := int64(0)
		// Of the six that the narrow one refused, nothing stays with the wide one.
		await.For(t, "what was refused is given back", func() bool {
			_, c := wide.take(h, key)
			taken := 50 - c.Answer.Remaining
			looks++
			return taken == 2+looks
		})
	}
	want(t, "calls that failed", h.Counts.Failures.Load(), 0)
}

// RC-064: sentinels fail over to the replica; the hosts go on with their share
// meanwhile and count together again on the new primary.
func TestSentinel(t *testing.T) {
	t.Parallel()
	primary, sentinel := redisrig.Watched(t, "main")
	hosts := hostsOf(t, sentinel, func(o *Options) { o.Sentinel, o.Deadline = "main", 50*time.Millisecond })
	shares(t, hosts, "before")
	primary.Kill()
	for _, h := range hosts {
		await.For(t, "the outage is seen", func() bool { return !h.State().Up })
	}
	for _, h := range hosts {
		await.For(t, "the new primary is found", func() bool { return h.State().Up && len(h.State().Hosts) == 2 })
	}
	shares(t, hosts, "after")
}

// Redis behind TLS is trusted by its certificate only.
func TestTLS(t *testing.T) {
	t.Parallel()
	s, ca := redisrig.TLS(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	hosts := hostsOf(t, s.Addr, func(o *Options) {
		o.TLS, o.Deadline = &tls.Config{RootCAs: pool, ServerName: "redis"}, 50*time.Millisecond
	})
	shares(t, hosts, "k")
	stranger := join(t, s.Addr, "stranger", func(o *Options) { o.TLS = &tls.Config{ServerName: "redis"} })
	await.For(t, "it says why it stays away", func() bool { return stranger.Counts.Failures.Load() > 0 })
	want(t, "up", stranger.State().Up, false)
}
