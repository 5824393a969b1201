package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestCalendarPeriods: what people mean by a day, week and month, where clocks
// jump and months are short.
func TestCalendarPeriods(t *testing.T) {
	for _, c := range []struct {
		name   string
		unit   Unit
		zone   string
		anchor int
		at     string // local, with its offset
		start  string
		length time.Duration
	}{
		{"ordinary day", Day, "UTC", 0, "2026-03-02T10:00:00Z", "2026-03-02T00:00:00Z", 24 * time.Hour},
		{"day of 23 h", Day, "America/New_York", 0, "2026-03-08T10:00:00-04:00", "2026-03-08T00:00:00-05:00", 23 * time.Hour},
		{"day of 25 h", Day, "America/New_York", 0, "2026-11-01T23:59:59-05:00", "2026-11-01T00:00:00-04:00", 25 * time.Hour},
		{"no midnight", Day, "America/Sao_Paulo", 0, "2018-11-04T10:00:00-02:00", "2018-11-04T01:00:00-02:00", 23 * time.Hour},
		{"the day before no midnight", Day, "America/Sao_Paulo", 0, "2018-11-03T23:59:59-03:00", "2018-11-03T00:00:00-03:00", 24 * time.Hour},
		{"23 h to 24 h twice", Day, "America/Sao_Paulo", 0, "2018-02-17T23:30:00-03:00", "2018-02-17T00:00:00-02:00", 25 * time.Hour},
		{"midnight twice", Day, "America/Havana", 0, "2026-11-01T00:30:00-05:00", "2026-11-01T00:00:00-04:00", 25 * time.Hour},
		{"back over midnight", Day, "America/St_Johns", 0, "2010-11-06T23:30:00-03:30", "2010-11-07T00:00:00-02:30", 25 * time.Hour},
		{"half an hour", Day, "Australia/Lord_Howe", 0, "2026-04-05T12:00:00+10:30", "2026-04-05T00:00:00+11:00", 24*time.Hour + 30*time.Minute},
		{"a day that never was", Day, "Pacific/Apia", 0, "2011-12-29T23:59:59-10:00", "2011-12-29T00:00:00-10:00", 24 * time.Hour},
		{"the day after it", Day, "Pacific/Apia", 0, "2011-12-31T00:00:00+14:00", "2011-12-31T00:00:00+14:00", 24 * time.Hour},
		{"week, ISO 8601", Week, "UTC", int(time.Monday), "2026-03-01T23:59:59Z", "2026-02-23T00:00:00Z", 7 * 24 * time.Hour},
		{"week from Sunday", Week, "UTC", int(time.Sunday), "2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z", 7 * 24 * time.Hour},
		{"week with summer's begin", Week, "America/New_York", int(time.Monday), "2026-03-08T23:00:00-04:00", "2026-03-02T00:00:00-05:00", 7*24*time.Hour - time.Hour},
		{"month", Month, "UTC", 1, "2026-02-28T23:59:59Z", "2026-02-01T00:00:00Z", 28 * 24 * time.Hour},
		{"leap month", Month, "UTC", 1, "2028-02-10T00:00:00Z", "2028-02-01T00:00:00Z", 29 * 24 * time.Hour},
		{"billing from 15", Month, "UTC", 15, "2026-01-14T23:59:59Z", "2025-12-15T00:00:00Z", 31 * 24 * time.Hour},
		{"billing from 31, short month", Month, "UTC", 31, "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", 31 * 24 * time.Hour},
		{"billing from 31, before it", Month, "UTC", 31, "2026-02-27T00:00:00Z", "2026-01-31T00:00:00Z", 28 * 24 * time.Hour},
		{"billing from 30 in a leap year", Month, "UTC", 30, "2028-02-29T12:00:00Z", "2028-02-29T00:00:00Z", 30 * 24 * time.Hour},
		{"billing from 31 in April", Month, "UTC", 31, "2026-04-30T12:00:00Z", "2026-04-30T00:00:00Z", 31 * 24 * time.Hour},
	} {
		cut, err := newCut(c.unit, mustZone(c.zone), c.anchor)
		if err != nil {
			t.Fatal(err)
		}
		start, end := cut.around(mustTime(c.at))
		if !start.Equal(mustTime(c.start)) || end.Sub(start) != c.length {
			t.Errorf("%s: from %v for %v, want from %s for %v", c.name, start, end.Sub(start), c.start, c.length)
		}
	}
}

func mustTime(s string) time.Time {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return at
}

// TestPeriodsAbut: periods follow each other without gap and overlap, all
// moments of one have the same, and each begins at the first moment of its date.
func TestPeriodsAbut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := mustZone(rapid.SampledFrom(oddZones).Draw(t, "zone"))
		unit := rapid.SampledFrom([]Unit{Day, Week, Month}).Draw(t, "unit")
		anchor := map[Unit]int{Week: rapid.IntRange(0, 6).Draw(t, "weekday"), Month: rapid.IntRange(1, 31).Draw(t, "day")}[unit]
		cut, err := newCut(unit, zone, anchor)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(946684800, 1893456000).Draw(t, "second"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		start, end := cut.around(at)
		if start.After(at) || !end.After(at) {
			t.Fatalf("%v lies not from %v to %v", at, start, end)
		}
		for _, moment := range []time.Time{start, end.Add(-1)} {
			if s, e := cut.around(moment); !s.Equal(start) || !e.Equal(end) {
				t.Fatalf("%v is from %v to %v, and %v from %v to %v", at, start, end, moment, s, e)
			}
		}
		if next, _ := cut.around(end); !next.Equal(end) {
			t.Fatalf("after %v comes %v", end, next)
		}
		if first, before := dateOf(start.In(zone)), dateOf(start.Add(-1).In(zone)); first == before {
			t.Fatalf("%v is not where a date begins", start.In(zone))
		}
	})
}

func quotaKey(t *testing.T, n int64, unit Unit, zone string, anchor int, begin string) (*direct, *wallClock) {
	t.Helper()
	wall := &wallClock{base: mustTime(begin)}
	c, err := NewCalendar(unit, mustZone(zone), anchor, wall.now)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewTally(n, c)
	if err != nil {
		t.Fatal(err)
	}
	return &direct{s: new(Tally), l: l, wall: wall}, wall
}

func (d *direct) passes(now time.Duration, times int) (passed int) {
	for range times {
		if first(d.take(FromDuration(now))) {
			passed++
		}
	}
	return passed
}

func TestQuotaByTheCalendar(t *testing.T) {
	k, _ := quotaKey(t, 10, Day, "America/Sao_Paulo", 0, "2018-11-03T20:00:00-03:00")
	wantPassed(t, "the first day", k.passes(0, 20), 10)
	if _, a := k.take(0); ToDuration(a.Wait) != 4*time.Hour || a.Reset != a.Wait {
		t.Errorf("refused until %v, want 4h", ToDuration(a.Wait))
	}
	wantPassed(t, "a nanosecond before midnight", k.passes(4*time.Hour-1, 1), 0)
	wantPassed(t, "the next day", k.passes(4*time.Hour, 20), 10)
	wantPassed(t, "which has 23 h", k.passes(27*time.Hour-1, 1), 0)
	wantPassed(t, "the third", k.passes(27*time.Hour, 20), 10)
	wantPassed(t, "a week later", k.passes(300*time.Hour, 20), 10)
}

// A step of the wall clock in the middle of a period changes nothing in it, and
// the period after it is neither shorter than half a day nor longer than one and
// a half: nobody is freed, nobody is locked.
func TestClockSteps(t *testing.T) {
	for _, by := range []time.Duration{
		-time.Millisecond, -time.Second, time.Second, -time.Hour, time.Hour, -6 * time.Hour, 6 * time.Hour, -20 * time.Hour, 20 * time.Hour,
		-24 * time.Hour, 24 * time.Hour, -1000 * 24 * time.Hour, 20_000 * 24 * time.Hour, 11 * time.Hour, -13 * time.Hour,
	} {
		k, wall := quotaKey(t, 10, Day, "UTC", 0, "2026-03-02T12:00:00Z")
		wantPassed(t, "before", k.passes(0, 20), 10)
		wall.step(by)
		wantPassed(t, by.String()+": at once", k.passes(time.Second, 5), 0)
		wantPassed(t, by.String()+": up to the end", k.passes(12*time.Hour-1, 5), 0)
		wantPassed(t, by.String()+": at the end", k.passes(12*time.Hour, 20), 10)
		_, a := k.take(FromDuration(12 * time.Hour))
		if next := ToDuration(a.Wait); next < 12*time.Hour || next > 36*time.Hour {
			t.Errorf("%v: the next period takes %v", by, next)
		}
		end := 12*time.Hour + ToDuration(a.Wait)
		wantPassed(t, by.String()+": after that", k.passes(end, 20), 10)
		if h, m, s := wall.now().Clock(); h+m+s != 0 {
			t.Errorf("%v: the second period after it begins at %d:%d:%d, not at midnight", by, h, m, s)
		}
	}
}

// Any steps at any time: never more than N in half a period by a steady clock.
func TestClockStepsNeverFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wall := &wallClock{base: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)}
		c, err := NewAligned(time.Hour, wall.now)
		if err != nil {
			t.Fatal(err)
		}
		l, err := NewTally(3, c)
		if err != nil {
			t.Fatal(err)
		}
		k, now := &direct{s: new(Tally), l: l, wall: wall}, time.Duration(0)
		var admitted []time.Duration
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, int64(20*time.Minute)).Draw(t, "pause"))
			if rapid.Bool().Draw(t, "stepped") {
				wall.step(time.Duration(rapid.Int64Range(-int64(48*time.Hour), int64(48*time.Hour)).Draw(t, "by")))
			}
			ok, a := k.take(FromDuration(now))
			if ToDuration(a.Wait) > 90*time.Minute {
				t.Fatalf("locked for %v", ToDuration(a.Wait))
			}
			if ok {
				admitted = append(admitted, now)
			}
		}
		// A window of half a period touches two periods at most.
		if n := busiest(admitted, 30*time.Minute); n > 6 {
			t.Fatalf("%d in half an hour, at most 6", n)
		}
	})
}

// A change of the calendar keeps what was spent (RC-030), and so does another
// caller's turn of the period while a request waits with a moment before it.
func TestCalendarChange(t *testing.T) {
	k, wall := quotaKey(t, 10, Day, "UTC", 0, "2026-03-02T12:00:00Z")
	wantPassed(t, "before", k.passes(0, 7), 7)
	c, err := NewCalendar(Month, mustZone("Asia/Kolkata"), 15, wall.now)
	if err != nil {
		t.Fatal(err)
	}
	k.l, _ = NewTally(20, c)
	wantPassed(t, "in the month", k.passes(time.Hour, 30), 13)
	wantPassed(t, "the next day", k.passes(24*time.Hour, 1), 0)

	k, wall = quotaKey(t, 10, Day, "UTC", 0, "2026-03-02T12:00:00Z")
	wantPassed(t, "the first day", k.passes(0, 20), 10)
	wall.set(FromDuration(12 * time.Hour))
	k.l.calendar.at(FromDuration(12 * time.Hour))
	wantPassed(t, "read just before midnight, decided after", k.passes(12*time.Hour-1, 20), 10)
}

func TestCalendarsAreShared(t *testing.T) {
	s := NewStore(1 << 16)
	a, _ := s.Calendar(Day, mustZone("Asia/Kolkata"), 0)
	b, _ := s.Calendar(Day, mustZone("Asia/Kolkata"), 0)
	c, _ := s.Calendar(Day, time.UTC, 0)
	d, _ := s.Aligned(time.Minute)
	e, _ := s.Aligned(time.Minute)
	if a != b || a == c || d != e {
		t.Error("the same periods have one calendar, others another")
	}
	for _, err := range []error{
		second(s.Calendar(Week, time.UTC, 7)), second(s.Calendar(Month, time.UTC, 0)), second(s.Calendar(Month, time.UTC, 32)),
		second(s.Calendar(9, time.UTC, 1)), second(s.Aligned(0)), second(s.Aligned(2 * year)), second(NewTally(0, a)), second(NewTally(MaxTally+1, a)),
	} {
		if err == nil {
			t.Error("accepted what makes no sense")
		}
	}
}

func second[T any](_ T, err error) error { return err }
