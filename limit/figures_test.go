package limit

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFiguresPrecision(t *testing.T) {
	cases := []struct {
		amount   int64
		interval time.Duration
		bytes    bool
	}{
		{1, time.Hour, false}, {5, time.Minute, false}, {7, time.Second, false},
		{999_999, time.Second, false}, {99_999_999, time.Second, false}, {100_000_000, time.Second, false},
		{1000, time.Second, true}, {125_000, time.Second, true}, {1_234_567_891, time.Second, true},
		{50_000_000_000, time.Second, true},
	}
	for _, c := range cases {
		f, err := NewFigures(c.amount, c.interval, 1, c.bytes)
		if err != nil {
			t.Fatalf("%d per %v: %v", c.amount, c.interval, err)
		}
		checkPrecision(t, f, c.amount, c.interval, c.bytes)
	}
}

func TestFiguresPrecisionProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Bool().Draw(t, "bytes")
		slow, fast := 1.0/3600, 1e8
		if bytes {
			slow, fast = 1000, 5e10
		}
		rate := math.Exp(rapid.Float64Range(math.Log(slow), math.Log(fast)).Draw(t, "log rate"))
		interval := time.Hour
		if rate > 1 {
			interval = time.Second
		}
		amount := max(1, int64(rate*interval.Seconds()))
		f, err := NewFigures(amount, interval, 1, bytes)
		if err != nil {
			t.Fatal(err)
		}
		checkPrecision(t, f, amount, interval, bytes)
	})
}

// checkPrecision compares costs with exact fractions.
func checkPrecision(t interface{ Fatalf(string, ...any) }, f Figures, amount int64, interval time.Duration, bytes bool) {
	lengths := []uint64{1}
	if bytes {
		lengths = []uint64{1, 60, 64, 1514, 9000, 65535, MaxUnits}
	}
	for _, n := range lengths {
		want := new(big.Rat).Mul(big.NewRat(int64(interval), amount), new(big.Rat).SetInt(new(big.Int).SetUint64(n*64)))
		exact, _ := want.Float64()
		if got := float64(f.Cost(n)); math.Abs(got-exact) > max(0.001*exact, 0.5001) {
			t.Fatalf("%d per %v, length %d: %v ticks, exactly %v", amount, interval, n, got, exact)
		}
		if !bytes && math.Abs(float64(f.Cost(n))-exact) > 0.001*exact {
			t.Fatalf("%d per %v: off by more than 0.1 %%", amount, interval)
		}
	}
	if hi := new(big.Int).Mul(new(big.Int).SetUint64(f.Mult), new(big.Int).SetUint64(lengths[len(lengths)-1])); hi.BitLen() > 63 {
		t.Fatalf("%d per %v: the product needs %d bits", amount, interval, hi.BitLen())
	}
}

// TestFiguresRound pins what the C bucket is given: nearest, not down.
func TestFiguresRound(t *testing.T) {
	f, err := NewFigures(3_000_000, time.Second, 2, true) // 21333.3 ticks a byte
	if err != nil {
		t.Fatal(err)
	}
	if f.Burst != 42667 || f.Cost(1) != 21333 || f.Cost(2) != 42667 || f.Cost(1514) != 32298667 {
		t.Fatalf("%+v, costs %d, %d, %d", f, f.Cost(1), f.Cost(2), f.Cost(1514))
	}
}

func TestFiguresRefused(t *testing.T) {
	cases := []struct {
		name     string
		amount   int64
		interval time.Duration
		burst    int64
		bytes    bool
		want     string
	}{
		{"RC-022 burst 0", 1, time.Second, 0, false, "burst 0: the smallest is 1"},
		{"burst negative", 1, time.Second, -3, false, "the smallest is 1"},
		{"rate 0", 0, time.Second, 1, false, "rate 0: the smallest is 1"},
		{"no interval", 1, 0, 1, false, "interval"},
		{"RC-055 a billion a second", 1_000_000_000, time.Second, 10, false, "too large to count exactly"},
		{"RC-055 a billion and one", 1_000_000_001, time.Second, 10, false, "too large to count exactly"},
		{"just above the largest", 100_000_001, time.Second, 10, false, "too large"},
		{"401 Gbit/s", 50_125_000_000, time.Second, 10, true, "too large"},
		{"the largest numbers", math.MaxInt64, math.MaxInt64, math.MaxInt64, false, "too large"},
		{"burst of over a year", 1, time.Hour, 9000, false, "more than a year"},
		{"burst overflows", 1, time.Hour, math.MaxInt64, false, "more than a year"},
		{"one in two years", 1, 2 * 365 * 24 * time.Hour, 1, false, "more than a year"},
		{"a packet takes over a year", 1, time.Hour, 1, true, "more than a year"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewFigures(c.amount, c.interval, c.burst, c.bytes)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := NewFigures(1, 365*24*time.Hour, 1, false); err != nil {
		t.Fatalf("1 a year: %v", err)
	}
}

func TestWindowRefused(t *testing.T) {
	cases := []struct {
		name   string
		a      Algorithm
		n      int64
		window time.Duration
		want   string
	}{
		{"limit 0", SlidingLog, 0, time.Minute, "the smallest is 1"},
		{"no window", SlidingLog, 1, 0, "window"},
		{"window of two years", SlidingLog, 1, 2 * year, "window"},
		{"log too large", SlidingLog, MaxLog + 1, time.Minute, "use sliding-counter"},
		{"counter too large", SlidingCounter, 1 << 32, time.Minute, "up to 4294967295"},
		{"bucket", TokenBucket, 1, time.Minute, "by sliding log"},
	}
	for _, c := range cases {
		if _, err := NewWindow(c.a, c.n, c.window); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}
