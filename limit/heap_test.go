package limit

import (
	"os"
	"runtime"
	"testing"
	"time"
)

// A typical key takes at most 96 bytes of the heap, whatever counts it, and the
// store says how many it takes. The worst are a log that is full, 2 bytes a request,
// and a counter of 16 groups that each hold more than 65535.
func TestBytesAKey(t *testing.T) {
	minute := func(a Algorithm, n int64) Limit { return mustWindow(t, a, n, time.Minute) }
	for _, c := range []struct {
		name  string
		l     Limit
		times int // spread evenly over the window
		most  float64
	}{
		{"token-bucket", mustRate(t, 1, time.Hour, 100), 1, 64},
		{"fixed-window", kinds(t, 100)["fixed-window"], 1, 80},
		{"log, 1 of 5", minute(SlidingLog, 5), 1, 64},
		{"log, 3 of 5", minute(SlidingLog, 5), 3, 64},
		{"log, 20 of 100", minute(SlidingLog, 100), 20, 96},
		{"log, 100 of 100", minute(SlidingLog, 100), 100, 290},
		{"counter, 1 of 1000", minute(SlidingCounter, 1000), 1, 64},
		{"counter, 32 of 1000", minute(SlidingCounter, 1000), 32, 96},
	} {
		t.Run(c.name, func(t *testing.T) {
			keys := 1_000_000
			if c.times > 5 && os.Getenv("HEADGATE_SOAK") == "" {
				keys = 700_000
				if c.times > 32 {
					keys = 200_000
				}
			}
			before := heap()
			s := NewStore(2 << 30)
			fill(s, &c.l, keys, c.times)
			taken := float64(heap()-before) / float64(keys)
			st := s.Stats()
			said := float64(st.Bytes) / float64(keys)
			t.Logf("%.1f bytes a key of the heap, %.1f by the store's count", taken, said)
			if int(st.Keys) != keys || taken > c.most || said > c.most || taken > said*1.05+2 {
				t.Errorf("%d keys, %.1f bytes each, %.1f by the store's count; want at most %.0f", st.Keys, taken, said, c.most)
			}
			runtime.KeepAlive(s)
		})
	}
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers have freed
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fill charges each key so many times, evenly over l's window.
func fill(s *Store, l *Limit, keys, times int) {
	step := FromDuration(min(l.Window(), time.Hour)) / uint64(times+1)
	for i := range keys {
		c := [1]Charge{{Key: s.numbered(uint64(i)), Limit: l}}
		for j := range times {
			s.Take(uint64(j+1)*step, c[:])
		}
	}
}

// RC-038: made-up keys, ten million with HEADGATE_SOAK, against a store of the
// default bound. Who is refused stays refused, nothing passes uncounted, and the
// heap holds the store to its bound.
func TestFloodOfMillions(t *testing.T) {
	victims, strangers, memory := 1000, 300_000, 32<<20
	if os.Getenv("HEADGATE_SOAK") != "" {
		strangers, memory = 10_000_000, DefaultMemory
	}
	for name, l := range kinds(t, 10) {
		t.Run(name, func(t *testing.T) {
			before := heap()
			s := NewStore(memory)
			a, key := account(s, "rule", l, 0)
			for n := range victims {
				for range 11 {
					ask(s, a, key(-1-n), &l, 1)
				}
			}
			flood(t, s, a, &l, strangers)
			taken, st := int64(heap()-before), s.Stats()
			t.Logf("%d keys in %d bytes, %d of the heap, %d evicted", st.Keys, st.Bytes, taken, st.Evicted)
			if st.Bytes > uint64(memory) || taken > int64(memory)*21/20 {
				t.Errorf("%d bytes, %d of the heap, bound %d", st.Bytes, taken, memory)
			}
			if st.Keys+st.Evicted != uint64(victims+strangers) {
				t.Errorf("%d kept and %d evicted of %d", st.Keys, st.Evicted, victims+strangers)
			}
			for n := range victims {
				if ok, c := ask(s, a, key(-1-n), &l, 1); ok || c.Shared {
					t.Fatalf("victim %d was forgotten", n)
				}
			}
			runtime.KeepAlive(s)
		})
	}
}

// flood asks once for each of so many keys.
func flood(t *testing.T, s *Store, a *Account, l *Limit, keys int) {
	t.Helper()
	for n := range uint64(keys) {
		c := [1]Charge{{Key: a.Key(s.numbered(n)), Limit: l, Account: a}}
		if !s.Take(1, c[:]) || c[0].Shared {
			t.Fatalf("stranger %d: shared %v, refused %v", n, c[0].Shared, c[0].Refused)
		}
	}
}
