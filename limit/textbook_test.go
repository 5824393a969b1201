package limit

import (
	"testing"
	"time"
)

// The figures that textbooks give for each algorithm, exactly.

// fixed returns a function that asks a key of n in fixed windows at a
// time of day and says how many passed.
func fixed(t *testing.T, n int64, window time.Duration) (ask func(at string, times int) int) {
	t.Helper()
	wall := &wallClock{base: time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)}
	c, err := NewAligned(window, wall.now)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewTally(n, c)
	if err != nil {
		t.Fatal(err)
	}
	k := &direct{s: new(Tally), l: l, wall: wall}
	wall.set(0)
	return func(at string, times int) (passed int) {
		t.Helper()
		clock, err := time.Parse("15:04:05", at)
		if err != nil {
			t.Fatal(err)
		}
		now := FromDuration(clock.Sub(time.Date(0, 1, 1, 10, 0, 0, 0, time.UTC)))
		for range times {
			if first(k.take(now)) {
				passed++
			}
		}
		return passed
	}
}

func wantPassed(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d passed, want %d", what, got, want)
	}
}

// RC-083: 100 + 100 within two seconds at the edge of a fixed window.
func TestFixedWindowEdge(t *testing.T) {
	ask := fixed(t, 100, time.Minute)
	wantPassed(t, "10:00:59", ask("10:00:59", 150), 100)
	wantPassed(t, "10:01:00", ask("10:01:00", 150), 100)
	wantPassed(t, "10:01:59", ask("10:01:59", 1), 0)
	wantPassed(t, "10:02:00", ask("10:02:00", 1), 1)
}

// 5 a minute: 5 at 10:00:59 and 5 at 10:01:00.
func TestFixedWindowFive(t *testing.T) {
	ask := fixed(t, 5, time.Minute)
	wantPassed(t, "10:00:59", ask("10:00:59", 10), 5)
	wantPassed(t, "10:01:00", ask("10:01:00", 10), 5)
}

// 10 a minute lets 20 through in two seconds.
func TestFixedWindowTen(t *testing.T) {
	ask := fixed(t, 10, time.Minute)
	wantPassed(t, "in two seconds", ask("10:00:58", 0)+ask("10:00:59", 20)+ask("10:01:00", 20), 20)
}

// The same three at a sliding log and counter: the second half is refused.
func TestSlidingWindowEdges(t *testing.T) {
	for _, n := range []int64{5, 10, 100} {
		for name, k := range windows(t, n, time.Minute) {
			passed := 0
			for _, at := range []time.Duration{59 * time.Second, 60 * time.Second} {
				for range n {
					if first(k.take(FromDuration(at))) {
						passed++
					}
				}
			}
			wantPassed(t, name, passed, int(n))
		}
	}
}

// Capacity 20, refilled at 10 a second.
func TestBucketOfTwenty(t *testing.T) {
	k := &direct{s: new(Bucket), l: mustRate(t, 10, time.Second, 20)}
	ask := func(at time.Duration, times int) (passed int) {
		for range times {
			if first(k.take(FromDuration(at))) {
				passed++
			}
		}
		return passed
	}
	wantPassed(t, "at once", ask(0, 30), 20)
	wantPassed(t, "after 100 ms", ask(100*time.Millisecond, 5), 1)
	wantPassed(t, "after 1 s more", ask(1100*time.Millisecond, 30), 10)
	wantPassed(t, "after an hour", ask(time.Hour, 30), 20)
}

// Two requests in the same instant are two in a log, not one.
func TestLogMembersAreUnique(t *testing.T) {
	k := &direct{s: new(Log), l: mustWindow(t, SlidingLog, 3, time.Minute)}
	passed := 0
	for range 5 {
		if first(k.take(1000)) {
			passed++
		}
	}
	wantPassed(t, "in one instant", passed, 3)
}

// textbook is the sliding counter of textbooks: two windows of the clock, of
// which the one before counts for the share of it that the last window's length
// still covers.
type textbook struct {
	window      time.Duration
	begin       time.Duration
	now, before int64
}

// estimate returns what the textbook takes to have come in the last window.
func estimate(current, before int64, into, window time.Duration) float64 {
	return float64(current) + float64(before)*(1-float64(into)/float64(window))
}

func (b *textbook) take(at time.Duration, n int64) bool {
	switch begin := at.Truncate(b.window); {
	case begin == b.begin:
	case begin == b.begin+b.window:
		b.begin, b.now, b.before = begin, 0, b.now
	default:
		b.begin, b.now, b.before = begin, 0, 0
	}
	if estimate(b.now, b.before, at-b.begin, b.window) >= float64(n) {
		return false
	}
	b.now++
	return true
}

// 3 now and 5 before at 15 s into the minute are estimated as 3 + 5 × 75 % =
// 6.75 and refused at 5. The counter here refuses at 5 too, for it counts: of 5
// that came evenly in the minute before, 4 came in the last 60 s.
func TestEstimate(t *testing.T) {
	if e := estimate(3, 5, 15*time.Second, time.Minute); e != 6.75 {
		t.Fatalf("estimated as %v, want 6.75", e)
	}
	b := textbook{window: time.Minute, begin: time.Minute, now: 3, before: 5}
	if b.take(75*time.Second, 5) {
		t.Error("the textbook admits at 5 what it estimates as 6.75")
	}
	k := &direct{s: new(Counter), l: mustWindow(t, SlidingCounter, 100, time.Minute)}
	for _, s := range []int{6, 18, 30, 42, 54, 62, 66, 70} {
		k.take(FromDuration(time.Duration(s) * time.Second))
	}
	k.l = mustWindow(t, SlidingCounter, 5, time.Minute)
	if ok, a := k.take(FromDuration(75 * time.Second)); ok || a.Remaining != 0 {
		t.Errorf("the counter admits at 5: %+v", a)
	}
	k.l = mustWindow(t, SlidingCounter, 8, time.Minute)
	if ok, a := k.take(FromDuration(75 * time.Second)); !ok || a.Remaining != 0 {
		t.Errorf("of the 7 that came in the last minute the counter made more than 7: %v %+v", ok, a)
	}
}

// TestTextbookCounter is why: the textbook's estimate takes requests to come
// evenly. Where they come at the end of one window and as the estimate falls in
// the next, it admits far more than N in a window; the counter never does.
func TestTextbookCounter(t *testing.T) {
	const n = 100
	b, k := textbook{window: time.Minute}, &direct{s: new(Counter), l: mustWindow(t, SlidingCounter, n, time.Minute)}
	var theirs, ours []time.Duration
	for at := 59 * time.Second; at < 118*time.Second; at += 10 * time.Millisecond {
		if b.take(at, n) {
			theirs = append(theirs, at)
		}
		if first(k.take(FromDuration(at))) {
			ours = append(ours, at)
		}
	}
	if got := busiest(theirs, time.Minute); got < 190 {
		t.Errorf("the textbook admits %d of %d in its busiest window: no reason to count otherwise", got, n)
	}
	if got := busiest(ours, time.Minute); got > n {
		t.Errorf("the counter admits %d of %d in its busiest window", got, n)
	}
}

// busiest returns how many of moments the fullest window (t−w, t] holds.
func busiest(moments []time.Duration, w time.Duration) (most int) {
	for i, last := range moments {
		n := 0
		for _, m := range moments[:i+1] {
			if m > last-w {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
