package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/logbuffer"
	"github.com/headgate/headgate/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is one member with a store of its own, and what it says.
type host struct {
	*Member
	t     *testing.T
	store *limit.Store
	log   logbuffer.Buffer
	end   context.CancelFunc
	ended chan struct{}
}

var secret = []byte("a secret that all hosts share")

// join starts a member of the fleet at s.
func join(t *testing.T, addr, name string, change ...func(*Options)) *host {
	t.Helper()
	o := Options{Name: "test", Secret: secret, Addresses: []string{addr}, Host: name}
	for _, c := range change {
		c(&o)
	}
	begin := time.Now()
	h := &host{t: t, store: limit.NewStore(1 << 22), ended: make(chan struct{})}
	m, err := Join(o, h.store, func() limit.Ticks { return limit.FromDuration(time.Since(begin)) }, slog.New(slog.NewTextHandler(&h.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	h.Member = m
	ctx, end := context.WithCancel(context.Background())
	h.end = end
	go func() { m.Run(ctx); close(h.ended) }()
	t.Cleanup(h.stop)
	return h
}

func (h *host) stop() { h.end(); <-h.ended }

// fleetOf starts n members and waits until they know each other.
func fleetOf(t *testing.T, addr string, n int) (all []*host) {
	t.Helper()
	for i := range n {
		all = append(all, join(t, addr, fmt.Sprint("host", i)))
	}
	for _, h := range all {
		await.For(t, "the hosts know each other", func() bool { return h.State().Up && len(h.State().Hosts) == n })
	}
	return all
}

// rule is a limit that the hosts share.
type rule struct {
	name   string
	limits map[*host]*limit.Limit
	accs   map[*host]*limit.Account
}

func newRule(t *testing.T, hosts []*host, name string, l limit.Limit, scope limit.Scope, out limit.Outage) *rule {
	t.Helper()
	r := &rule{name, map[*host]*limit.Limit{}, map[*host]*limit.Account{}}
	for _, h := range hosts {
		shared, err := l.Shared(scope, h.Facts())
		if err != nil {
			t.Fatal(err)
		}
		shared = shared.Out(out)
		r.limits[h] = &shared
		r.accs[h] = h.store.Account(h.store.Key([]byte(name)), shared, 0)
	}
	return r
}

// take asks for one request of key at h.
func (r *rule) take(h *host, key string) (bool, limit.Charge) {
	c := []limit.Charge{{Limit: r.limits[h], Account: r.accs[h], Key: r.accs[h].Key(h.store.Key([]byte(key)))}}
	ok := h.store.Take(h.clock(), c)
	if !ok && limit.Asking(c) {
		ok = h.Decide(c)
	}
	return ok, c[0]
}

func rate(t *testing.T, n int64, per time.Duration, burst int64) limit.Limit {
	t.Helper()
	l, err := limit.NewRate(n, per, burst)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// offer sends requests of key at so many a second to hosts in turn for a time,
// and returns how many passed.
func (r *rule) offer(hosts []*host, key string, perSecond int, length time.Duration) (passed int) {
	begin := time.Now()
	for n := 0; ; n++ {
		due := time.Duration(n) * time.Second / time.Duration(perSecond)
		if due >= length {
			return passed
		}
		time.Sleep(time.Until(begin.Add(due)))
		if ok, _ := r.take(hosts[n%len(hosts)], key); ok {
			passed++
		}
	}
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
