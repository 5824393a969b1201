package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// coarse is by how much less than a step a moment may seem later in a log or
// counter of a window.
func coarse(window Ticks) Ticks { return 1<<shiftFor(window) - 1 }

// The grid's step is what docs and comments say, and its places tell any two
// moments of a window apart from those of another turn.
func TestGridStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Uint64Range(1, FromDuration(2*year)).Draw(t, "window")
		step := Ticks(1) << shiftFor(window)
		if window/step > 65_280 || step > 1 && window/step < 32_000 {
			t.Fatalf("step %d of window %d", step, window)
		}
		g := grid{newest: rapid.Uint64().Draw(t, "newest"), shift: shiftFor(window)}
		at := g.newest - rapid.Uint64Range(0, window).Draw(t, "age")
		if late := g.moment(g.place(at)) - at; late >= step || int64(g.moment(g.place(at))-g.newest) > 0 {
			t.Fatalf("%d seems %d later, step %d", at, late, step)
		}
	})
	if step := ToDuration(coarse(FromDuration(time.Minute))); step < time.Millisecond || step > 2*time.Millisecond {
		t.Errorf("a step of a minute is %v", step)
	}
	if coarse(FromDuration(time.Microsecond)) != 0 {
		t.Error("moments of a microsecond are not kept as they are")
	}
}

// plain returns what an algorithm of windows is held to.
func plain(a Algorithm) state {
	if a == SlidingLog {
		return new(plainLog)
	}
	return new(plainCounter)
}

// sweeper is what a table asks of a plain state.
type sweeper interface {
	used(now Ticks) float32
	firm(now Ticks) bool
}

// In windows so short that the grid is as fine as time, packed logs and counters
// are the plain ones: the same answers, and the same worth to their table,
// whatever is charged, refused, given back, reset and swept, by figures that take
// turns and a clock that steps.
func TestPackedIsPlain(t *testing.T) {
	for _, a := range []Algorithm{SlidingLog, SlidingCounter} {
		t.Run(map[Algorithm]string{SlidingLog: "log", SlidingCounter: "counter"}[a], func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { packedIsPlain(t, a) })
		})
	}
}

func packedIsPlain(t *rapid.T, a Algorithm) {
	s, figures := NewStore(4<<20), drawWindows(t, a)
	keys := []Key{{1 << 63, 1 << 17}, {1<<63 + 1, 1 << 17}, {1 << 60, 2 << 17}}
	model, now := map[Key]state{}, start(t)
	for range 150 {
		k, l := rapid.SampledFrom(keys).Draw(t, "key"), rapid.SampledFrom(figures).Draw(t, "figures")
		m := model[k]
		switch rapid.IntRange(0, 19).Draw(t, "action") {
		case 0, 1, 2, 3, 4:
			now += rapid.Uint64Range(0, l.window/8).Draw(t, "pause")
		case 5:
			now += rapid.OneOf(rapid.Just(l.window), rapid.Uint64Range(0, 2*l.window)).Draw(t, "long pause")
		case 6:
			now -= rapid.Uint64Range(0, l.window/4).Draw(t, "clock steps back")
		case 7:
			for range rapid.IntRange(2, 300).Draw(t, "times") {
				takeBoth(t, s, model, now, k, l)
			}
		case 8:
			got, known := s.Look(now, k, l)
			if m == nil && known || m != nil && (!known || got != m.answer(now, l)) {
				t.Fatalf("looked at: %v %+v", known, got)
			}
		case 9, 10:
			n, want := rapid.Int64Range(1, 20).Draw(t, "give back"), int64(0)
			if m != nil {
				want = m.giveBack(now, l, n)
			}
			if got := s.Grant(now, k, l, n); got != want {
				t.Fatalf("gave %d back, want %d", got, want)
			}
		case 11:
			if rapid.IntRange(0, 9).Draw(t, "reset") == 0 {
				if s.Reset(k, l) != (m != nil) {
					t.Fatal("reset of a key that was not there, or not of one that was")
				}
				delete(model, k)
			}
		case 12:
			s.Sweep(now)
			for k, m := range model {
				if m.(sweeper).used(now) == 0 {
					delete(model, k)
				}
			}
		default:
			takeBoth(t, s, model, now, k, l)
		}
		sameWorth(t, s, model, now, a)
	}
}

// sameWorth fails where tables would treat a packed state and its model otherwise.
func sameWorth(t *rapid.T, s *Store, model map[Key]state, now Ticks, a Algorithm) {
	if n := s.Stats().Keys; n != uint64(len(model)) {
		t.Fatalf("%d keys, want %d", n, len(model))
	}
	for k, m := range model {
		used, firm := recordOf(s, k, a).standing(now)
		if m := m.(sweeper); used != m.used(now) || firm != m.firm(now) {
			t.Fatalf("used %v firm %v, want %v %v", used, firm, m.used(now), m.firm(now))
		}
	}
}

// takeBoth asks the store and the model for one request.
func takeBoth(t *rapid.T, s *Store, model map[Key]state, now Ticks, k Key, l *Limit) {
	c := []Charge{{Key: k, Limit: l}}
	ok, m := s.Take(now, c), model[k]
	want := m == nil || m.wait(now, l) == 0
	if m == nil && (want || l.always) {
		m = plain(l.algorithm)
		model[k] = m
	}
	if want || l.always {
		m.charge(now, l)
	}
	if !want {
		m.deny()
	}
	if a := m.answer(now, l); ok != want || c[0].Answer != a {
		t.Fatalf("took %v %+v, want %v %+v", ok, c[0].Answer, want, a)
	}
}

func recordOf(s *Store, k Key, a Algorithm) record {
	if sh := s.shard(k); a == SlidingLog {
		return sh.logs.record(sh.logs.index[sh.logs.place(k)])
	} else {
		return sh.counters.record(sh.counters.index[sh.counters.place(k)])
	}
}

// drawWindows returns figures of up to 1 µs: plain ones, with a soft part, and
// such that count refusals.
func drawWindows(t *rapid.T, a Algorithm) (all []*Limit) {
	for range rapid.IntRange(1, 3).Draw(t, "figures") {
		l, err := NewWindow(a, rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 900)).Draw(t, "n"),
			time.Duration(rapid.Int64Range(1, 1000).Draw(t, "window")))
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

// In longer windows a log is never less strict than the plain one that was
// charged the same, and tells no more than a step more to wait.
func TestLogIsAlmostPlain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawWindow(t, SlidingLog)
		s, m, now := NewStore(1<<16), new(plainLog), start(t)
		for _, step := range steps(t, l) {
			now += step
			c := []Charge{{Key: Key{1, 1 << 20}, Limit: &l}}
			wait := m.wait(now, &l)
			before, _ := s.Look(now, c[0].Key, &l)
			if before.Wait < wait || before.Wait > wait+coarse(l.window) || before.Wait > l.window {
				t.Fatalf("wait %d, by plain moments %d, step %d", before.Wait, wait, coarse(l.window))
			}
			if s.Take(now, c) {
				m.charge(now, &l)
			}
			got, want := c[0].Answer, m.answer(now, &l)
			if got.Reset != want.Reset || got.Remaining > want.Remaining {
				t.Fatalf("%+v, by plain moments %+v", got, want)
			}
		}
	})
}

// A counter's record grows with its groups and with how much the largest counts,
// up to 128 bytes, and loses nothing.
func TestCounterGrows(t *testing.T) {
	l := mustWindow(t, SlidingCounter, 10_000_000, time.Microsecond)
	s, m, k := NewStore(1<<20), new(plainCounter), Key{1 << 63, 1 << 17}
	span, sizes := (l.window+groups-2)/(groups-1), map[int]bool{}
	for round, times := range []int{1, 250, 10, 300, 70_000} {
		for group := range groups {
			now, times := Ticks(round)*2*l.window+Ticks(group)*span, times
			if group == groups-1 {
				times += 10
			}
			for range times {
				c := []Charge{{Key: k, Limit: &l}}
				m.wait(now, &l)
				m.charge(now, &l)
				if ok := s.Take(now, c); !ok || c[0].Answer != m.answer(now, &l) {
					t.Fatalf("group %d of %d: %v %+v, want %+v", group, times, ok, c[0].Answer, m.answer(now, &l))
				}
			}
			sizes[len(recordOf(s, k, SlidingCounter))] = true
		}
		if round > 0 { // what was small once may be large again
			continue
		}
		s.Reset(k, &l)
		*m = plainCounter{}
	}
	for _, size := range []int{40, 48, 64, 80, 96, 128} {
		if !sizes[size] {
			t.Errorf("no record had %d bytes", size)
		}
	}
}

// A state outlives a change of its window by as long as it has to: one that was
// counted by the second, and then is given something back by the hour, is kept for
// an hour; and what was counted by the hour does not count for longer by the second
// than a step of an hour.
func TestWindowChanges(t *testing.T) {
	second, hour := mustWindow(t, SlidingLog, 5, time.Second), mustWindow(t, SlidingLog, 5, time.Hour)
	s := NewStore(1 << 20)
	k := s.numbered(1)
	for i := range Ticks(4) {
		s.Take(i, []Charge{{Key: k, Limit: &second}})
	}
	if given := s.Grant(5, k, &hour, 1); given != 1 {
		t.Fatalf("gave %d back", given)
	}
	s.Sweep(FromDuration(59 * time.Minute))
	if a, known := s.Look(FromDuration(59*time.Minute), k, &hour); !known || a.Remaining != 2 {
		t.Errorf("after 59 minutes %v %+v, want 2 left", known, a)
	}
	s.Take(FromDuration(59*time.Minute), []Charge{{Key: k, Limit: &hour}})
	late := FromDuration(59*time.Minute) + second.window + coarse(hour.window)
	if a, _ := s.Look(late, k, &second); a.Remaining != 5 {
		t.Errorf("a second later %+v, want all back", a)
	}
}

// A counter whose window is changed goes on with the group that it has begun, and
// begins the next when that spans a fifteenth of the new window.
func TestCounterChangesWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		short := mustWindow(t, SlidingCounter, 100, time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "window")))
		long := mustWindow(t, SlidingCounter, 100, ToDuration(short.window)*time.Duration(rapid.IntRange(2, 100).Draw(t, "times")))
		span := (long.window + groups - 2) / (groups - 1)
		c, begun := new(Counter), start(t)
		for i, step := range []struct {
			l      *Limit
			at     Ticks
			groups int
		}{{&short, 0, 1}, {&long, span / 2, 1}, {&long, span - 1, 1}, {&long, span + coarse(long.window) + 1, 2}} {
			if c.charge(begun+step.at, step.l); c.n != step.groups {
				t.Fatalf("step %d: %d groups, want %d", i, c.n, step.groups)
			}
		}
	})
}
