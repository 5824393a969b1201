package limit

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTakeModel compares Take with arithmetic that cannot overflow.
func TestTakeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Uint64().Draw(t, "now")
		debt := rapid.Int64Range(-1<<62, 1<<62).Draw(t, "debt")
		cost := rapid.Uint64Range(0, 1<<62).Draw(t, "cost")
		burst := rapid.Uint64Range(0, 1<<62-1).Draw(t, "burst")
		if edge := int64(burst) - int64(cost); rapid.Bool().Draw(t, "at the edge") && edge > -1<<62 {
			debt = edge + rapid.Int64Range(-1, 1).Draw(t, "beside")
		}
		tat := now + uint64(debt)
		next, ok := Take(tat, now, cost, burst)

		sum := new(big.Int).Add(big.NewInt(max(debt, 0)), new(big.Int).SetUint64(cost))
		if fits := sum.Cmp(new(big.Int).SetUint64(burst)) <= 0; ok != fits {
			t.Fatalf("debt %d + cost %d against burst %d: %v", debt, cost, burst, ok)
		}
		if !ok && next != tat {
			t.Fatalf("refused, yet %d became %d", tat, next)
		}
		if ok && next-now != sum.Uint64() {
			t.Fatalf("debt %d after, want %v", next-now, sum)
		}
	})
}

func TestWaitOfWhatNeverFits(t *testing.T) {
	if _, ok := Wait(0, 0, 11, 10); ok {
		t.Fatal("a cost above the burst never fits")
	}
	if w, ok := Wait(10, 0, 10, 10); !ok || w != 10 {
		t.Fatalf("wait %d %v, want 10", w, ok)
	}
	if d := ToDuration(65); d != 2*time.Nanosecond {
		t.Fatalf("65 ticks are %v, want them rounded up to 2ns", d)
	}
}

// RC-055: at high rates the cost of one never becomes nothing.
func TestHighRatesAdmitTheirBurst(t *testing.T) {
	for _, rate := range []int64{999_999, 1_000_001, 5_000_000, 100_000_000} {
		l, now, passed := mustRate(t, rate, time.Second, 10), Ticks(1<<40), 0
		k := &direct{s: new(Bucket), l: l}
		for range 10_000 {
			if first(k.take(now)) {
				passed++
			}
		}
		if passed != 10 {
			t.Errorf("%d/s: %d passed with no time passing, want 10", rate, passed)
		}
	}
}

// RC-057: after any idle time the bucket is full, and no fuller.
func TestIdle(t *testing.T) {
	const day = 24 * time.Hour
	rates := []struct {
		amount, burst int64
		per           time.Duration
	}{{1, 3, time.Hour}, {1_000_000, 100, time.Second}}
	for _, r := range rates {
		for _, days := range []int{0, 6, 50, 365, 300 * 365} {
			s := NewStore(1 << 16)
			l := mustRate(t, r.amount, r.per, r.burst)
			k := &inStore{s: s, k: s.Key(AppendPart(nil, 'c', []byte("idle"))), l: l}
			now := FromDuration(5 * time.Second)
			for range r.burst + 1 {
				k.take(now)
			}
			now += FromDuration(max(time.Duration(r.burst)*r.per, time.Hour))
			for range days {
				now += FromDuration(day)
				s.Sweep(now)
			}
			for i := range r.burst {
				ok, a := k.take(now)
				if !ok || a.Remaining != r.burst-1-i {
					t.Fatalf("%s after %d days: take %d: %v, %d left", text(l), days, i, ok, a.Remaining)
				}
			}
			if first(k.take(now)) {
				t.Fatalf("%s after %d days: more than the burst", text(l), days)
			}
		}
	}
}

// RC-057 without a sweep: right up to the 4.5 years that signed ticks reach.
func TestIdleUnswept(t *testing.T) {
	for _, idle := range []time.Duration{time.Hour, 6 * 24 * time.Hour, 49*24*time.Hour + 17*time.Hour, year, 4 * year} {
		k := &direct{s: new(Bucket), l: mustRate(t, 1, time.Minute, 2)}
		now := Ticks(1<<64 - 1<<40)
		k.take(now)
		k.take(now)
		now += FromDuration(idle)
		passed := 0
		for range 5 {
			if first(k.take(now)) {
				passed++
			}
		}
		if passed != 2 {
			t.Errorf("after %v %d passed at once, want the burst of 2", idle, passed)
		}
	}
}

// RC-091: slow and sub-second rates give their tokens at the right moment.
func TestSlowRates(t *testing.T) {
	cases := []struct {
		amount int64
		per    time.Duration
		each   time.Duration
	}{
		{5, time.Minute, 12 * time.Second},
		{3, 24 * time.Hour, 8 * time.Hour},
		{1, time.Hour, time.Hour},
		{10, 250 * time.Millisecond, 25 * time.Millisecond},
	}
	for _, c := range cases {
		k, now := &direct{s: new(Bucket), l: mustRate(t, c.amount, c.per, 1)}, Ticks(77)
		k.take(now)
		for i := range 3 {
			now += FromDuration(c.each)
			if first(k.take(now - FromDuration(c.each/1000))) {
				t.Errorf("%d/%v: token %d came early", c.amount, c.per, i)
			}
			if !first(k.take(now)) {
				t.Errorf("%d/%v: token %d did not come after %v", c.amount, c.per, i, c.each)
			}
		}
	}
}

// RC-118: a bucket admits burst + rate·T; RC-023: asking without pause does
// not keep anyone out.
func TestOpenLoop(t *testing.T) {
	cases := []struct {
		name       string
		l          Limit
		every, all time.Duration
		low, high  int
	}{
		{"RC-118", mustRate(t, 10, time.Second, 10), 10 * time.Millisecond, 10 * time.Second, 108, 112},
		{"RC-023", mustRate(t, 10, time.Minute, 10), 200 * time.Millisecond, 10 * time.Minute, 109, 110},
	}
	for _, c := range cases {
		k, passed := &direct{s: new(Bucket), l: c.l}, 0
		for at := time.Duration(0); at <= c.all; at += c.every {
			if first(k.take(FromDuration(at))) {
				passed++
			}
		}
		if passed < c.low || passed > c.high {
			t.Errorf("%s: %d passed, want %d to %d", c.name, passed, c.low, c.high)
		}
	}
}

// RC-030: new figures bind at once and keep the debt.
func TestNewFiguresKeepDebt(t *testing.T) {
	cases := []struct {
		name string
		to   Limit
		left int64
	}{
		{"raised", mustRate(t, 200, time.Minute, 200), 100},
		{"lowered", mustRate(t, 10, time.Minute, 10), 0},
		{"longer interval", mustRate(t, 100, time.Hour, 100), 0},
		{"burst alone raised", mustRate(t, 100, time.Minute, 150), 50},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k, now := &direct{s: new(Bucket), l: mustRate(t, 100, time.Minute, 100)}, Ticks(1)
			for range 100 {
				k.take(now)
			}
			k.l = c.to
			var passed int64
			for ; first(k.take(now)); passed++ {
			}
			// The debt is rounded up when it is converted: one may be missing.
			if passed > c.left || passed < c.left-1 {
				t.Fatalf("%d passed at once, want %d", passed, c.left)
			}
			_, a := k.take(now)
			if !first(k.take(now + a.Wait)) {
				t.Fatalf("refused after the wait of %v", ToDuration(a.Wait))
			}
		})
	}
}

// Two figures that take turns at one bucket, as overrides make them, lose no
// debt: neither gains by the other's being asked in between.
func TestFiguresTakeTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Limit {
			n := rapid.Int64Range(1, 200).Draw(t, name)
			l, err := NewRate(n, rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "per"), n)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		wide, narrow := draw("wide"), draw("narrow")
		k, now := &direct{s: new(Bucket), l: wide}, Ticks(1)
		var passed int64
		for range rapid.IntRange(1, 600).Draw(t, "asks") {
			k.l = wide
			if rapid.Bool().Draw(t, "narrow") {
				k.l = narrow
			}
			if first(k.take(now)) {
				passed++
			}
		}
		if most := max(wide.Quota(), narrow.Quota()); passed > most {
			t.Fatalf("%d passed at once, the most is %d", passed, most)
		}
		for _, k.l = range []Limit{wide, narrow} {
			_, a := k.take(now)
			if ok, _ := k.take(now + a.Wait); !ok {
				t.Fatalf("refused after the wait of %v", ToDuration(a.Wait))
			}
		}
	})
}
