// Command fleet loads a Redis with decisions of one host, by Headgate's credit
// lines and by go-redis/redis_rate, and prints what they cost as JSON lines. The
// benchmark's fleet part runs it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/fleet"
	"github.com/headgate/headgate/limit"
)

// Line is one measured load.
type Line struct {
	Who      string  `json:"who"`
	Rate     int     `json:"rate"` // requests a second
	Keys     int     `json:"keys"`
	Requests int     `json:"requests"`
	Calls    float64 `json:"calls"`     // commands that Redis ran of it, a request
	RedisCPU float64 `json:"redis_cpu"` // microseconds a request
	OwnCPU   float64 `json:"own_cpu"`
	P50      float64 `json:"p50"` // of a decision, microseconds
	P99      float64 `json:"p99"`
	Refused  int     `json:"refused"`
}

func main() {
	address := flag.String("redis", "127.0.0.1:6379", "Redis, which is emptied")
	length := flag.Duration("for", 3*time.Second, "how long each load lasts")
	state := flag.String("state", "alive", "how Redis fares; where it is not alive, one load is measured, and Redis not asked")
	flag.Parse()
	client := redis.NewClient(&redis.Options{Addr: *address})
	out := json.NewEncoder(os.Stdout)
	if *state == "moves" {
		all, err := moves(*address, client)
		if err != nil {
			fatal(err)
		}
		for _, m := range all {
			out.Encode(m)
		}
		return
	}
	loads := []struct{ rate, keys int }{{1000, 100}, {1000, 10_000}, {1000, 1_000_000}, {10_000, 100}, {10_000, 10_000}, {10_000, 1_000_000}}
	if *state != "alive" {
		loads = loads[3:4]
	}
	for _, l := range loads {
		h, err := newHost(*address)
		if err != nil {
			fatal(err)
		}
		limiters := []limiter{{"credit line", h.lines}, {"exact", h.exact}}
		if *state == "alive" {
			limiters = append(limiters, limiter{"redis_rate", peer(client)})
		}
		for _, who := range limiters {
			line, err := measure(client, who, l.rate, l.keys, *length, *state)
			if err != nil {
				fatal(err)
			}
			out.Encode(line)
		}
		h.stop()
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "fleet:", err)
	os.Exit(1)
}

type limiter struct {
	name  string
	takes func(key string) bool
}

// perKey is each key's limit: large, as the load on a key is far below it but for
// 100 keys at the highest rate, which come to a tenth of it.
const perKey = 1000

// host is one member of a fleet.
type host struct {
	member *fleet.Member
	store  *limit.Store
	clock  func() limit.Ticks
	end    context.CancelFunc
	ended  chan struct{}
	kinds  map[limit.Scope]kind
}

type kind struct {
	limit   *limit.Limit
	account *limit.Account
}

func newHost(address string) (*host, error) {
	begin := time.Now()
	h := &host{store: limit.NewStore(limit.DefaultMemory), ended: make(chan struct{}), kinds: map[limit.Scope]kind{}}
	h.clock = func() limit.Ticks { return limit.FromDuration(time.Since(begin)) }
	o := fleet.Options{Name: "bench", Secret: []byte("a secret of this benchmark"), Addresses: []string{address}, Host: "bench"}
	m, err := fleet.Join(o, h.store, h.clock, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	h.member = m
	for _, scope := range []limit.Scope{limit.Lines, limit.Exact} {
		l, err := limit.NewRate(perKey, time.Second, perKey)
		if err == nil {
			l, err = l.Shared(scope, m.Facts())
		}
		if err != nil {
			return nil, err
		}
		h.kinds[scope] = kind{&l, h.store.Account(h.store.Key([]byte(strconv.Itoa(int(scope)))), l, 0)}
	}
	ctx, end := context.WithCancel(context.Background())
	h.end = end
	go func() {
		m.Run(ctx)
		close(h.ended)
	}()
	for until := time.Now().Add(2 * time.Second); !m.State().Up && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	return h, nil
}

func (h *host) stop() { h.end(); <-h.ended }

func (h *host) lines(key string) bool { return h.take(limit.Lines, key) }
func (h *host) exact(key string) bool { return h.take(limit.Exact, key) }

func (h *host) take(scope limit.Scope, key string) bool {
	k := h.kinds[scope]
	c := [1]limit.Charge{{Limit: k.limit, Account: k.account, Key: k.account.Key(h.store.Key([]byte(key)))}}
	ok := h.store.Take(h.clock(), c[:])
	if !ok && limit.Asking(c[:]) {
		ok = h.member.Decide(c[:])
	}
	return ok
}

func peer(client *redis.Client) func(string) bool {
	l := redis_rate.NewLimiter(client)
	return func(key string) bool {
		r, err := l.Allow(context.Background(), key, redis_rate.PerSecond(perKey))
		return err != nil || r.Allowed > 0
	}
}

// measure offers rate requests a second over keys to who, from a few goroutines
// so that one slow decision does not hold up the others.
func measure(client *redis.Client, who limiter, rate, keys int, length time.Duration, state string) (Line, error) {
	line := Line{Who: who.name, Rate: rate, Keys: keys}
	var before, after usage
	var err error
	if state == "alive" {
		if before, err = usageOf(client); err != nil {
			return line, err
		}
	}
	own := cpu()
	const workers = 32
	type outcome struct {
		took    []time.Duration
		refused int
	}
	done := make(chan outcome, workers)
	begin := time.Now()
	for w := range workers {
		go func() {
			var o outcome
			for n := w; ; n += workers {
				due := time.Duration(n) * time.Second / time.Duration(rate)
				if due >= length {
					break
				}
				time.Sleep(time.Until(begin.Add(due)))
				start := time.Now()
				if !who.takes(strconv.Itoa(rand.IntN(keys))) {
					o.refused++
				}
				o.took = append(o.took, time.Since(start))
			}
			done <- o
		}()
	}
	var took []time.Duration
	for range workers {
		o := <-done
		took = append(took, o.took...)
		line.Refused += o.refused
	}
	ownUsed := cpu() - own
	if state == "alive" {
		if after, err = usageOf(client); err != nil {
			return line, err
		}
	}
	slices.Sort(took)
	n := float64(len(took))
	micro := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	line.Requests = len(took)
	line.P50, line.P99 = micro(took[len(took)/2]), micro(took[len(took)*99/100])
	line.OwnCPU = micro(ownUsed) / n
	line.Calls, line.RedisCPU = float64(after.scripts-before.scripts)/n, micro(after.cpu-before.cpu)/n
	return line, nil
}

// usage is what Redis has done since it started.
type usage struct {
	scripts int64
	cpu     time.Duration
}

func usageOf(client *redis.Client) (u usage, err error) {
	text, err := client.Info(context.Background(), "commandstats", "cpu").Result()
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "cmdstat_evalsha", "cmdstat_eval":
			_, calls, _ := strings.Cut(value, "calls=")
			calls, _, _ = strings.Cut(calls, ",")
			n, _ := strconv.ParseInt(calls, 10, 64)
			u.scripts += n
		case "used_cpu_user", "used_cpu_sys":
			s, _ := strconv.ParseFloat(value, 64)
			u.cpu += time.Duration(s * float64(time.Second))
		}
	}
	return u, nil
}

// cpu is what this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
