package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The short way of deciding is the long one: the same answers and the same
// states, whatever figures take turns at a bucket.
func TestTakeBucketsIsTake(t *testing.T) {
	met := 0
	rapid.Check(t, func(t *rapid.T) {
		short, long := NewStore(1<<20), NewStore(1<<20)
		figures := drawFigures(t)
		now := Ticks(rapid.Uint64().Draw(t, "epoch"))
		keys := []Key{{1 << 63, 1 << 17}, {1 << 62, 2 << 17}, {1 << 61, 3 << 17}}
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += FromDuration(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "pause")))
			var charges [2][]Charge
			for i := range rapid.IntRange(1, len(keys)).Draw(t, "charges") {
				c := Charge{Key: keys[i], Limit: rapid.SampledFrom(figures).Draw(t, "figures"), Watch: rapid.IntRange(0, 3).Draw(t, "watch") == 0}
				charges[0], charges[1] = append(charges[0], c), append(charges[1], c)
			}
			may := rapid.IntRange(0, 4).Draw(t, "may") > 0
			got, done := short.takeBuckets(now, charges[0], may)
			if !done { // some bucket is new
				got = short.takeAny(now, charges[0], may)
			} else {
				met++
			}
			if want := long.takeAny(now, charges[1], may); got != want {
				t.Fatalf("decided %v, want %v", got, want)
			}
			for i := range charges[0] {
				if charges[0][i] != charges[1][i] {
					t.Fatalf("charge %d:\n%+v, want\n%+v", i, charges[0][i], charges[1][i])
				}
				k := charges[0][i].Key
				a, b := short.shard(k).buckets.find(k), long.shard(k).buckets.find(k)
				if (a == nil) != (b == nil) || a != nil && *a != *b {
					t.Fatalf("bucket %d: %v, want %v", i, a, b)
				}
			}
		}
	})
	if met == 0 {
		t.Error("the short way was never taken")
	}
}

// drawFigures returns limits of one bucket: plain, with a soft part, counting
// refusals, and tight ones that have no room for the debt of others.
func drawFigures(t *rapid.T) (all []*Limit) {
	for range 4 {
		amount := rapid.Int64Range(1, 50).Draw(t, "amount")
		l, err := NewRate(amount, time.Duration(rapid.IntRange(1, 20).Draw(t, "interval"))*time.Second, rapid.Int64Range(1, 30).Draw(t, "burst"))
		if err != nil {
			t.Fatal(err)
		}
		if soft, err := l.Soft(rapid.IntRange(1, 100).Draw(t, "soft")); err == nil && rapid.Bool().Draw(t, "is soft") {
			l = soft
		}
		if rapid.IntRange(0, 2).Draw(t, "always") == 0 {
			l = l.CountRefused()
		}
		all = append(all, &l)
	}
	return all
}

// Without an account a decision of buckets that are there takes the short way up
// to its bound, and the long one beyond; neither allocates.
func TestShortTakeAllocatesNothing(t *testing.T) {
	s, l := NewStore(0), mustRate(t, 1000, time.Second, 1_000_000)
	for _, n := range []int{1, mostBuckets, mostBuckets + 1} {
		charges := make([]Charge, n)
		for i := range charges {
			charges[i] = Charge{Key: s.Key([]byte{byte(i)}), Limit: &l}
		}
		s.Take(0, charges)
		if allocs := testing.AllocsPerRun(1000, func() { s.Take(0, charges) }); allocs > 0 {
			t.Errorf("%d charges: %v allocations", n, allocs)
		}
	}
}
