package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// kinds returns a limit of n an hour of each algorithm.
func kinds(t testing.TB, n int64) map[string]Limit {
	t.Helper()
	wall := func() time.Time { return time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC) }
	hours, err := NewAligned(time.Hour, wall)
	if err != nil {
		t.Fatal(err)
	}
	days, err := NewCalendar(Day, time.UTC, 0, wall)
	if err != nil {
		t.Fatal(err)
	}
	window, err := NewTally(n, hours)
	if err != nil {
		t.Fatal(err)
	}
	quota, err := NewTally(n, days)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]Limit{
		"token-bucket": mustRate(t, n, time.Hour, n), "sliding-log": mustWindow(t, SlidingLog, n, time.Hour),
		"sliding-counter": mustWindow(t, SlidingCounter, n, time.Hour), "fixed-window": window, "quota": quota,
	}
}

// Up to the soft part above the line is admitted and marked, more is refused.
func TestSoft(t *testing.T) {
	for name, l := range kinds(t, 20) {
		t.Run(name, func(t *testing.T) {
			soft, err := l.Soft(10)
			if err != nil {
				t.Fatal(err)
			}
			k := &direct{s: newState(l.algorithm), l: soft}
			for i := range int64(25) {
				ok, a := k.take(1)
				want := Answer{Remaining: max(0, 19-i), Over: i >= 20}
				if ok != (i < 22) || a.Over != want.Over || a.Remaining != want.Remaining {
					t.Fatalf("request %d: %v %+v, want %+v", i+1, ok, a, want)
				}
				if (a.Wait == 0) != (i < 21) || (a.Under == 0) != (i < 19) || a.Under < a.Wait {
					t.Fatalf("request %d: wait %v, under %v", i+1, ToDuration(a.Wait), ToDuration(a.Under))
				}
			}
			_, a := k.take(1)
			if ok, after := k.take(1 + a.Under); !ok || after.Over {
				t.Errorf("after %v: %v %+v, want it below the line", ToDuration(a.Under), ok, after)
			}
		})
	}
}

func TestSoftFigures(t *testing.T) {
	l := mustWindow(t, SlidingLog, 9, time.Minute)
	for _, percent := range []int{0, -1, 101, 11} {
		if _, err := l.Soft(percent); err == nil {
			t.Errorf("soft %d%% of 9 was accepted", percent)
		}
	}
	if soft, err := l.Soft(12); err != nil || soft.most != 10 {
		t.Errorf("12%% of 9: %d, %v; want one more", soft.most, err)
	}
	if _, err := mustWindow(t, SlidingCounter, 1<<32-1, time.Minute).Soft(1); err == nil {
		t.Error("a counter that cannot hold its soft part was accepted")
	}
}

// What is refused is charged where a limit says so: who does not stop asking
// stays out, who pauses for the wait gets in.
func TestCountRefused(t *testing.T) {
	for name, l := range kinds(t, 10) {
		t.Run(name, func(t *testing.T) {
			k := &inStore{s: NewStore(1 << 20), k: Key{1, 1 << 20}, l: l.CountRefused()}
			passed, now := 0, Ticks(1)
			var a Answer
			for range 4 * 60 * 3 { // every 5 s, for an hour less a little
				var ok bool
				if ok, a = k.take(now); ok {
					passed++
				}
				now += FromDuration(4900 * time.Millisecond)
			}
			if passed != 10 || a.Wait == 0 || a.Remaining != 0 {
				t.Fatalf("%d passed of those who never paused, want 10; then %+v", passed, a)
			}
			_, a = k.take(now)
			if ok, _ := k.take(now + a.Wait); !ok {
				t.Errorf("refused after a pause of %v", ToDuration(a.Wait))
			}
		})
	}
}

// By property: with refused requests counted, one is refused if N came in the
// window before it, refused ones included, and only if N came in the window and a
// step of the log's grid.
func TestCountRefusedModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawWindow(t, SlidingLog)
		k := &inStore{s: NewStore(1 << 16), k: Key{1, 1 << 20}, l: l.CountRefused()}
		now, asked := start(t), []Ticks{}
		for _, step := range steps(t, l) {
			now += step
			recent, almost := int64(0), int64(0)
			for _, at := range asked {
				if now-at < l.window {
					recent++
				}
				if now-at < l.window+coarse(l.window) {
					almost++
				}
			}
			asked = append(asked, now)
			if ok, _ := k.take(now); ok && recent >= l.quota || !ok && almost < l.quota {
				t.Fatalf("%v with %d of %d in the window, %d and a step", ok, recent, l.quota, almost)
			}
		}
	})
}

// A rule that counts what is refused is charged also for what another refuses.
func TestCountRefusedByOthers(t *testing.T) {
	s := NewStore(1 << 20)
	abuse, tight := mustWindow(t, SlidingLog, 5, time.Hour).CountRefused(), mustWindow(t, SlidingLog, 1, time.Hour)
	plain := mustWindow(t, SlidingLog, 5, time.Hour)
	var c []Charge
	for range 4 {
		c = []Charge{{Key: s.numbered(1), Limit: &abuse}, {Key: s.numbered(2), Limit: &tight}, {Key: s.numbered(3), Limit: &plain}}
		s.Take(1, c)
	}
	if got := []int64{c[0].Answer.Remaining, c[1].Answer.Remaining, c[2].Answer.Remaining}; got[0] != 1 || got[1] != 0 || got[2] != 4 {
		t.Errorf("left %v, want 1 of the one that counts refusals, 0 and 4", got)
	}
}

func TestResetAndGrant(t *testing.T) {
	for name, l := range kinds(t, 10) {
		t.Run(name, func(t *testing.T) {
			s := NewStore(1 << 20)
			k := &inStore{s: s, k: s.numbered(1), l: l}
			if s.Reset(k.k, &l) || s.Grant(1, k.k, &l, 3) != 0 {
				t.Error("something was there of a key that never asked")
			}
			for range 15 {
				k.take(1)
			}
			if a, known := s.Look(1, k.k, &l); !known || a.Wait == 0 || a.Remaining != 0 {
				t.Errorf("looked at: %v %+v", known, a)
			}
			if given := s.Grant(1, k.k, &l, 3); given != 3 {
				t.Errorf("granted %d, want 3", given)
			}
			if passed := countPassed(k, 10); passed != 3 {
				t.Errorf("%d passed after a grant of 3", passed)
			}
			if given := s.Grant(1, k.k, &l, 1000); given != 10 {
				t.Errorf("granted %d, want the 10 that were spent", given)
			}
			if passed := countPassed(k, 20); passed != 10 {
				t.Errorf("%d passed when all was given back", passed)
			}
			if !s.Reset(k.k, &l) {
				t.Error("there was nothing to reset")
			}
			if a, known := s.Look(1, k.k, &l); known || a.Remaining != 10 {
				t.Errorf("after reset: %v %+v", known, a)
			}
			if passed := countPassed(k, 20); passed != 10 {
				t.Errorf("%d passed after reset", passed)
			}
		})
	}
}

func countPassed(k key, times int) (passed int) {
	for range times {
		if first(k.take(1)) {
			passed++
		}
	}
	return passed
}
