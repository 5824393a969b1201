package limit

import (
	"testing"
	"time"
)

// benchKinds are the algorithms that are measured, with what a key has used of
// its limit before.
var benchKinds = []struct {
	name string
	make func(t testing.TB) Limit
	used int
}{
	{"bucket", func(t testing.TB) Limit { return mustRate(t, 1000, time.Second, 1000) }, 1},
	{"log5", func(t testing.TB) Limit { return mustWindow(t, SlidingLog, 5, time.Minute) }, 3},
	{"log100", func(t testing.TB) Limit { return mustWindow(t, SlidingLog, 100, time.Minute) }, 20},
	{"log10000", func(t testing.TB) Limit { return mustWindow(t, SlidingLog, 10_000, time.Minute) }, 20},
	{"counter1000", func(t testing.TB) Limit { return mustWindow(t, SlidingCounter, 1000, time.Minute) }, 32},
	{"fixed", func(t testing.TB) Limit { return kinds(t, 1000)["fixed-window"] }, 1},
}

// BenchmarkKinds is a decision for one of so many keys of one limit, which come
// in turn and are admitted or refused as a minute passes in between.
func BenchmarkKinds(b *testing.B) {
	for _, kind := range benchKinds {
		for _, size := range []struct {
			name string
			n    int
		}{{"1", 1}, {"1M", 1 << 20}} {
			b.Run(kind.name+"/"+size.name, func(b *testing.B) { benchKind(b, kind.make(b), kind.used, size.n) })
		}
	}
}

func benchKind(b *testing.B, l Limit, used, n int) {
	s := NewStore(4 << 30)
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = s.numbered(uint64(i))
	}
	var charge [1]Charge
	now, step := Ticks(0), FromDuration(time.Minute)/uint64(max(used, 2)*n)
	take := func(i int) {
		charge[0] = Charge{Key: keys[i], Limit: &l}
		s.Take(now, charge[:])
		now += step
	}
	for i := range n * max(used, 2) {
		take(i % n)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		take(i * 7919 % n)
	}
}

// BenchmarkNewKeys is the first decision of a key in a store that is full of
// keys that asked once.
func BenchmarkNewKeys(b *testing.B) {
	for _, kind := range benchKinds {
		b.Run(kind.name, func(b *testing.B) {
			s, l := NewStore(32<<20), kind.make(b)
			var charge [1]Charge
			take := func(i int) {
				charge[0] = Charge{Key: s.numbered(uint64(i)), Limit: &l}
				s.Take(0, charge[:])
			}
			const full = 500_000
			for i := range full {
				take(i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				take(full + i)
			}
		})
	}
}
