package http

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	sethvargo "github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/limit"
)

// Everyone is asked for a key in turn out of so many, by figures that admit all
// of them and keep what was spent for days: what is measured is a decision, of a
// key that is known, not a refusal.
const (
	perSecond = 1_000
	burst     = 1_000_000_000
	period    = burst / perSecond * time.Second
)

var sizes = []struct {
	name string
	keys int
}{{"1", 1}, {"100k", 100_000}, {"1M", 1_000_000}}

// contenders make what decides for the key of a number.
var contenders = []struct {
	name string
	make func(b *testing.B, keys []string) (take func(i int))
}{
	{"headgate", newHeadgate}, {"x-time-rate", newTimeRate}, {"sethvargo", newSethvargo},
	{"throttled", newThrottled}, {"ulule", newUlule},
}

func BenchmarkDecide(b *testing.B) {
	for _, size := range sizes {
		keys := make([]string, size.keys)
		for i := range keys {
			keys[i] = "client-" + strconv.Itoa(i)
		}
		for _, c := range contenders {
			b.Run(c.name+"/"+size.name, func(b *testing.B) {
				take := c.make(b, keys)
				for i := range keys {
					take(i) // everyone is known
				}
				b.SetParallelism(1)
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := rand.IntN(len(keys)); pb.Next(); i = (i + 7919) % len(keys) {
						take(i)
					}
				})
			})
		}
	}
}

// BenchmarkRules8 is a request that eight rules are charged for.
func BenchmarkRules8(b *testing.B) {
	store, l := limit.NewStore(0), headgateLimit(b)
	begin := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		charges := make([]limit.Charge, 8)
		for i := range charges {
			key := store.Key(limit.AppendPart(nil, 'r', []byte{byte(i)}))
			charges[i] = limit.Charge{Key: key, Limit: &l}
		}
		for pb.Next() {
			store.Take(limit.FromDuration(time.Since(begin)), charges)
		}
	})
}

func headgateLimit(b *testing.B) limit.Limit {
	l, err := limit.NewRate(perSecond, time.Second, burst)
	if err != nil {
		b.Fatal(err)
	}
	return l
}

func newHeadgate(b *testing.B, keys []string) func(int) {
	store, l, begin := limit.NewStore(0), headgateLimit(b), time.Now()
	return func(i int) {
		var room [64]byte
		charge := [1]limit.Charge{{Key: store.Key(append(room[:0], keys[i]...)), Limit: &l}}
		store.Take(limit.FromDuration(time.Since(begin)), charge[:])
	}
}

// newTimeRate keeps limiters in a map, as everyone who uses the package does.
func newTimeRate(_ *testing.B, keys []string) func(int) {
	if len(keys) == 1 {
		l := rate.NewLimiter(perSecond, burst)
		return func(int) { l.Allow() }
	}
	var all sync.Map
	return func(i int) {
		l, ok := all.Load(keys[i])
		if !ok {
			l, _ = all.LoadOrStore(keys[i], rate.NewLimiter(perSecond, burst))
		}
		l.(*rate.Limiter).Allow()
	}
}

func newSethvargo(b *testing.B, keys []string) func(int) {
	store, err := sethvargo.New(&sethvargo.Config{Tokens: burst, Interval: period})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close(context.Background()) })
	ctx := context.Background()
	return func(i int) { store.Take(ctx, keys[i]) }
}

func newThrottled(b *testing.B, keys []string) func(int) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		b.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(perSecond), MaxBurst: burst})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	return func(i int) { l.RateLimitCtx(ctx, keys[i], 1) }
}

func newUlule(_ *testing.B, keys []string) func(int) {
	l := ulule.New(memory.NewStore(), ulule.Rate{Period: period, Limit: burst})
	ctx := context.Background()
	return func(i int) { l.Get(ctx, keys[i]) }
}
