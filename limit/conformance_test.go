package limit

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// subject is one way to keep one key, held to the suite below.
type subject struct {
	name  string
	limit func(t *rapid.T) Limit
	store bool
	wall  *wallClock // follows the moments that keys are asked at
}

func subjects() (all []subject) {
	wall := new(wallClock)
	kinds := []struct {
		name string
		draw func(t *rapid.T) Limit
	}{
		{"token-bucket", drawRate},
		{"fixed-window", wall.drawFixed},
		{"quota", wall.drawQuota},
		{"sliding-log", func(t *rapid.T) Limit { return drawWindow(t, SlidingLog) }},
		{"sliding-counter", func(t *rapid.T) Limit { return drawWindow(t, SlidingCounter) }},
	}
	for _, k := range kinds {
		all = append(all, subject{k.name, k.draw, false, wall}, subject{k.name + "/store", k.draw, true, wall})
	}
	return all
}

func drawRate(t *rapid.T) Limit {
	l, err := NewRate(rapid.Int64Range(1, 1000).Draw(t, "amount"),
		time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "interval")),
		rapid.Int64Range(1, 40).Draw(t, "burst"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func drawWindow(t *rapid.T, a Algorithm) Limit {
	l, err := NewWindow(a, rapid.Int64Range(1, 40).Draw(t, "n"),
		time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "window")))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// key is one bucket key under test.
type key interface {
	take(now Ticks) (bool, Answer)
}

type direct struct {
	s    state
	l    Limit
	wall *wallClock // nil: none is asked
}

func (d *direct) take(now Ticks) (bool, Answer) {
	d.wall.set(now)
	ok := d.s.wait(now, &d.l) == 0
	if ok {
		d.s.charge(now, &d.l)
	}
	return ok, d.s.answer(now, &d.l)
}

type inStore struct {
	s    *Store
	k    Key
	l    Limit
	wall *wallClock
}

func (d *inStore) take(now Ticks) (bool, Answer) {
	d.wall.set(now)
	c := []Charge{{Key: d.k, Limit: &d.l}}
	ok := d.s.Take(now, c)
	return ok, c[0].Answer
}

func (s subject) key(l Limit) key {
	if s.store {
		store := NewStore(1 << 16)
		return &inStore{store, store.Key(AppendPart(nil, 'c', []byte("one"))), l, s.wall}
	}
	return &direct{newState(l.algorithm), l, s.wall}
}

// start is drawn so that the clock wraps within a test now and then.
func start(t *rapid.T) Ticks {
	return rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(1<<64-1<<44, 1<<64-1), rapid.Just(uint64(0))).Draw(t, "start")
}

// steps draws pauses around what matters to l: none, its cost, its window.
func steps(t *rapid.T, l Limit) []Ticks {
	window := FromDuration(l.Window())
	step := rapid.OneOf(
		rapid.Just(uint64(0)),
		rapid.Uint64Range(0, max(1, window/uint64(2*l.quota))),
		rapid.Uint64Range(0, 3*window/2),
		rapid.Just(window), rapid.Just(window-1), rapid.Just(max(1, l.cost)),
	)
	all := rapid.SliceOfN(step, 1, 200).Draw(t, "steps")
	if l.calendar != nil {
		for i := range all {
			all[i] -= all[i] % ticksPerNano // the wall clock shows no less
		}
	}
	return all
}

// most returns how many l admits at most in any time that holds both first and
// last.
func most(l Limit, first, last Ticks) int64 {
	if l.algorithm == TokenBucket {
		return int64((l.burst + last - first) / l.cost)
	}
	return l.quota * int64((last-first)/l.window+1)
}

// mostInPeriod fails if more than the limit were admitted in the period of the
// last of walls.
func mostInPeriod(t *rapid.T, l Limit, walls []time.Time) {
	start, end := l.calendar.cut.around(walls[len(walls)-1])
	n := int64(0)
	for _, w := range walls {
		if !w.Before(start) && w.Before(end) {
			n++
		}
	}
	if n > l.quota {
		t.Fatalf("%d admitted from %v to %v, at most %d", n, start, end, l.quota)
	}
}

func TestConformance(t *testing.T) {
	for _, s := range subjects() {
		t.Run(s.name, func(t *testing.T) {
			t.Run("bound in any time", rapid.MakeCheck(s.bound))
			t.Run("wait is true", rapid.MakeCheck(s.waits))
			t.Run("refused is free, RC-023", rapid.MakeCheck(s.refusedIsFree))
			t.Run("all back after reset", rapid.MakeCheck(s.resets))
		})
	}
}

func (s subject) bound(t *rapid.T) {
	l := s.limit(t)
	k, now := s.key(l), start(t)
	var admitted []Ticks
	var walls []time.Time
	for _, step := range steps(t, l) {
		now += step
		ok, a := k.take(now)
		if a.Remaining < 0 || a.Remaining > l.quota || (a.Remaining > 0) != (a.Wait == 0) {
			t.Fatalf("answer %+v for quota %d", a, l.quota)
		}
		if !ok {
			continue
		}
		admitted, walls = append(admitted, now), append(walls, s.wall.now())
		if l.calendar != nil {
			mostInPeriod(t, l, walls)
			continue
		}
		for i, first := range admitted {
			if n := int64(len(admitted) - i); n > most(l, first, now) {
				t.Fatalf("%d admitted in %d ticks, at most %d: %+v", n, now-first, most(l, first, now), l)
			}
		}
	}
}

func (s subject) waits(t *rapid.T) {
	l := s.limit(t)
	k, now := s.key(l), start(t)
	for _, step := range steps(t, l) {
		now += step
		ok, a := k.take(now)
		if ok {
			continue
		}
		if a.Wait == 0 || a.Wait > a.Reset {
			t.Fatalf("refused with wait %d, reset %d", a.Wait, a.Reset)
		}
		if early, _ := k.take(now + a.Wait - 1); early {
			t.Fatalf("admitted a tick before the wait of %d was over", a.Wait)
		}
		if now += a.Wait; !first(k.take(now)) {
			t.Fatalf("refused after the wait of %d", a.Wait)
		}
	}
}

func (s subject) refusedIsFree(t *rapid.T) {
	l := s.limit(t)
	once, often, now := s.key(l), s.key(l), start(t)
	for _, step := range steps(t, l) {
		now += step
		ok, a := once.take(now)
		for range 3 {
			ok2, a2 := often.take(now)
			if ok2 != ok || ok2 && a2 != a {
				t.Fatalf("asked again and again: %v %+v, else %v %+v", ok2, a2, ok, a)
			}
			if ok2 {
				break
			}
		}
	}
}

func (s subject) resets(t *rapid.T) {
	l := s.limit(t)
	k, now := s.key(l), start(t)
	var a Answer
	for _, step := range steps(t, l) {
		now += step
		_, a = k.take(now)
	}
	now += a.Reset
	for i := range l.quota {
		if !first(k.take(now)) {
			t.Fatalf("%d of %d after all was back", i, l.quota)
		}
	}
	if first(k.take(now)) {
		t.Fatalf("more than %d at once", l.quota)
	}
}

func first(ok bool, _ Answer) bool { return ok }

func mustRate(t testing.TB, amount int64, per time.Duration, burst int64) Limit {
	t.Helper()
	l, err := NewRate(amount, per, burst)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustWindow(t interface {
	Helper()
	Fatal(...any)
}, a Algorithm, n int64, per time.Duration) Limit {
	t.Helper()
	l, err := NewWindow(a, n, per)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func text(l Limit) string { return fmt.Sprintf("%d of %v", l.quota, l.Window()) }
