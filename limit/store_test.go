package limit

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

func (s *Store) numbered(n uint64) Key {
	return s.Key(AppendPart(nil, 'n', binary.LittleEndian.AppendUint64(nil, n)))
}

// RC-059: what one refuses costs the others nothing.
func TestAllOrNothing(t *testing.T) {
	s := NewStore(1 << 20)
	second, day := mustRate(t, 1, time.Second, 1), mustRate(t, 100, 24*time.Hour, 100)
	passed := 0
	var daily Answer
	for i := range 200 { // 10 a second for 20 s
		c := []Charge{{Key: s.numbered(1), Limit: &second}, {Key: s.numbered(2), Limit: &day}}
		if s.Take(FromDuration(time.Duration(i)*100*time.Millisecond), c) {
			passed++
		}
		daily = c[1].Answer
	}
	if passed != 20 || daily.Remaining != 80 {
		t.Fatalf("%d passed, %d left of the day's 100; want 20 and 80", passed, daily.Remaining)
	}
}

// TestTakeModel compares decisions over several limits of all kinds with keys
// kept one by one.
func TestTakeManyModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewStore(1 << 22)
		n := rapid.IntRange(1, 20).Draw(t, "limits")
		limits, model := make([]Limit, n), make([]state, n)
		kinds := subjects()
		for i := range limits {
			limits[i] = kinds[2*rapid.IntRange(0, len(kinds)/2-1).Draw(t, "kind")].limit(t)
			model[i] = newState(limits[i].algorithm)
		}
		now := start(t)
		for range 60 {
			now += rapid.Uint64Range(0, FromDuration(limits[0].Window())).Draw(t, "step")
			kinds[0].wall.set(now)
			charges, picked := []Charge{}, []int{}
			for i := range limits {
				if rapid.Bool().Draw(t, "asks") {
					picked = append(picked, i)
					charges = append(charges, Charge{Key: s.numbered(uint64(i)), Limit: &limits[i], Watch: rapid.Bool().Draw(t, "watch")})
				}
			}
			want := true
			for j, i := range picked {
				want = want && (charges[j].Watch || model[i].wait(now, &limits[i]) == 0)
			}
			if got := s.Take(now, charges); got != want {
				t.Fatalf("took %v, want %v", got, want)
			}
			for j, i := range picked {
				refused := model[i].wait(now, &limits[i]) > 0
				if want && !refused {
					model[i].charge(now, &limits[i])
				}
				if a := model[i].answer(now, &limits[i]); charges[j].Refused != refused || charges[j].Answer != a {
					t.Fatalf("limit %d: refused %v %+v, want %v %+v", i, charges[j].Refused, charges[j].Answer, refused, a)
				}
			}
		}
	})
}

// RC-025a: 500 at once against a limit of 50 over three limits at a time that
// are named in different orders.
func TestParallelExact(t *testing.T) {
	for round := range 20 {
		s := NewStore(1 << 24)
		fifty := []Limit{
			mustRate(t, 1, time.Minute, 50),
			mustWindow(t, SlidingLog, 50, time.Minute),
			mustWindow(t, SlidingCounter, 50, time.Minute),
		}
		wide := mustRate(t, 1, time.Minute, 400)
		var passed atomic.Int64
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				c := []Charge{{Key: s.numbered(9), Limit: &wide}}
				for j := range fifty {
					c = append(c, Charge{Key: s.numbered(uint64(j)), Limit: &fifty[j]})
				}
				c[0], c[i%4] = c[i%4], c[0]
				if s.Take(1, c) {
					passed.Add(1)
				}
			})
		}
		wg.Wait()
		c := []Charge{{Key: s.numbered(9), Limit: &wide}}
		s.Take(1, c)
		if passed.Load() != 50 || c[0].Answer.Remaining != 349 {
			t.Fatalf("round %d: %d passed, %d left of the wide one; want 50 and 349", round, passed.Load(), c[0].Answer.Remaining)
		}
	}
}

// TestMemoryIsBounded floods a store with new keys of each kind.
func TestMemoryIsBounded(t *testing.T) {
	const bound = 1 << 20
	limits := map[string]Limit{
		"bucket":  mustRate(t, 10, time.Minute, 10),
		"log":     mustWindow(t, SlidingLog, 10, time.Minute),
		"counter": mustWindow(t, SlidingCounter, 10, time.Minute),
	}
	for name, l := range limits {
		t.Run(name, func(t *testing.T) {
			s := NewStore(bound)
			heavy := &inStore{s: s, k: s.numbered(1 << 40), l: l}
			for range 10 {
				heavy.take(0)
			}
			for i := range uint64(100_000) {
				k := &inStore{s: s, k: s.numbered(i), l: l}
				if !first(k.take(0)) {
					t.Fatal("a new key was refused")
				}
			}
			st := s.Stats()
			if st.Bytes > bound || st.Evicted+st.Keys != 100_001 {
				t.Fatalf("%+v: over the bound, or evictions not counted", st)
			}
			if first(heavy.take(0)) {
				t.Fatal("who had spent all was forgotten")
			}
			s.Sweep(FromDuration(time.Hour))
			if st := s.Stats(); st.Keys != 0 || st.Bytes != 0 {
				t.Fatalf("after an hour's idleness %+v", st)
			}
		})
	}
}

func TestHoldInStore(t *testing.T) {
	s := NewStore(1 << 16)
	for m := range uint64(MaxHeld) {
		if !s.Hold(s.numbered(1), s.numbered(m), 0, 100) || !s.Hold(s.numbered(2), s.numbered(m), 0, 100) {
			t.Fatal("refused although there was room")
		}
	}
	if s.Hold(s.numbered(1), s.numbered(100), 99, 200) || !s.Hold(s.numbered(1), s.numbered(100), 100, 200) {
		t.Fatal("a place must be free at its end, not before")
	}
}

// RC-092: no two lists of parts share a key, however their bytes are cut.
func TestPartsNeverMeet(t *testing.T) {
	h := NewHasher()
	list := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'c', 'k'}), 0, 4), 0, 4)
	build := func(parts [][]byte) (b []byte) {
		for _, p := range parts {
			b = AppendPart(b, 'c', p)
		}
		return b
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := list.Draw(t, "a"), list.Draw(t, "b")
		same := len(a) == len(b)
		for i := 0; same && i < len(a); i++ {
			same = bytes.Equal(a[i], b[i])
		}
		if meet := h.Sum(build(a)) == h.Sum(build(b)); meet != same {
			t.Fatalf("keys meet: %v", meet)
		}
	})
	if other := NewHasher(); other.Sum(nil) == h.Sum(nil) {
		t.Fatal("two hashers make the same keys")
	}
}

func TestTakeAllocatesNothing(t *testing.T) {
	s := NewStore(1 << 20)
	charges := benchCharges(t, s, 8)
	s.Take(0, charges)
	if n := testing.AllocsPerRun(1000, func() { s.Take(0, charges) }); n != 0 {
		t.Fatalf("%v allocations a decision", n)
	}
}

func benchCharges(t testing.TB, s *Store, n int) []Charge {
	l := mustRate(t, 1_000_000, time.Second, 1_000_000)
	charges := make([]Charge, n)
	for i := range charges {
		charges[i] = Charge{Key: s.numbered(uint64(i)), Limit: &l}
	}
	return charges
}

func BenchmarkTake1(b *testing.B) { benchTake(b, 1) }
func BenchmarkTake8(b *testing.B) { benchTake(b, 8) }

func benchTake(b *testing.B, n int) {
	s, begin := NewStore(0), time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		charges := benchCharges(b, s, n)
		for pb.Next() {
			s.Take(FromDuration(time.Since(begin)), charges)
		}
	})
}

// BenchmarkTakeMany is a decision for one of a million keys.
func BenchmarkTakeMany(b *testing.B) {
	s, begin := NewStore(0), time.Now()
	l := mustRate(b, 1, time.Second, 10)
	for i := range uint64(1_000_000) {
		(&inStore{s: s, k: s.numbered(i), l: l}).take(0)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		var charge [1]Charge
		var part [16]byte
		for i := uint64(0); pb.Next(); i += 7919 {
			binary.LittleEndian.PutUint64(part[2:], i%1_000_000)
			charge[0] = Charge{Key: s.Key(append(AppendPart(part[:0], 'n', nil), part[2:10]...)), Limit: &l}
			s.Take(FromDuration(time.Since(begin)), charge[:])
		}
	})
}

// BenchmarkTimeRate is what BenchmarkTake1 is compared with.
func BenchmarkTimeRate(b *testing.B) {
	l := rate.NewLimiter(1_000_000, 1_000_000)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Allow()
		}
	})
}

// Refuses does what a refusal does, and leaves what it would admit alone.
func TestRefuses(t *testing.T) {
	s := NewStore(1 << 20)
	l, err := NewRate(2, time.Second, 2)
	if err != nil {
		t.Fatal(err)
	}
	c := []Charge{{Key: s.Key([]byte("a")), Limit: &l}, {Key: s.Key([]byte("b")), Limit: &l, Watch: true}}
	for range 5 {
		if s.Refuses(0, c) {
			t.Fatal("refuses what has room")
		}
	}
	for range 2 {
		if !s.Take(0, c) {
			t.Fatal("Refuses has charged")
		}
	}
	if !s.Refuses(0, c) || !c[0].Refused || c[0].Answer.Wait == 0 {
		t.Errorf("admits what has no room: %+v", c[0])
	}
}
