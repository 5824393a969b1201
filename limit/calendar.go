package limit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Calendar follows the periods of the wall clock that a Tally counts in. All
// keys of all limits that are cut alike share one, so that it outlives a change
// of figures. It is safe for concurrent use.
//
// The wall clock is asked only when a period ends and the next begins; in
// between its end is a moment of the clock that never steps. So a step of the
// wall clock ends no period early and makes none longer: it is seen by the next
// one, which then lasts from half to one and a half times as long as others,
// up to where the calendar has its next boundary. Nobody gets a second allowance
// because the clock was set back, and nobody waits for days because it was wrong.
type Calendar struct {
	cut  cut
	wall func() time.Time

	mu     sync.Mutex
	period atomic.Pointer[period]
}

type period struct {
	start, end Ticks
	length     time.Duration
	wall       int64 // its end by the wall clock, ms since 1970
}

// NewAligned returns a calendar of windows of one length, from 1 ms to a year,
// aligned to 1970-01-01 00:00 UTC by the wall clock.
func NewAligned(length time.Duration, wall func() time.Time) (*Calendar, error) {
	if length < time.Millisecond || length > year {
		return nil, fmt.Errorf("window %v: give one from 1ms to a year", length)
	}
	return &Calendar{cut: even(length), wall: wall}, nil
}

// NewCalendar returns a calendar of days, weeks or months in zone. A week
// begins on the time.Weekday anchor, a month on day anchor, 1 to 31, or its last
// day where it is shorter; days have no anchor.
func NewCalendar(unit Unit, zone *time.Location, anchor int, wall func() time.Time) (*Calendar, error) {
	c, err := newCut(unit, zone, anchor)
	if err != nil {
		return nil, err
	}
	return &Calendar{cut: c, wall: wall}, nil
}

// at returns the period of now; where another caller was faster, the one after.
func (c *Calendar) at(now Ticks) *period {
	if p := c.period.Load(); p != nil && Until(p.end, now) > 0 {
		return p
	}
	return c.turn(now)
}

// turn begins the period of now.
func (c *Calendar) turn(now Ticks) *period {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.period.Load()
	if old != nil && Until(old.end, now) > 0 {
		return old
	}
	wall := c.wall().Round(0) // without its own reading of the steady clock
	start, end := c.cut.around(wall)
	if old != nil {
		// last is when old ended, by the wall clock as it goes now: a boundary,
		// unless the clock was set. Then a boundary that is near is no end.
		last := wall.Add(-ToDuration(now - old.end))
		from, to := c.cut.around(last)
		if soonest := last.Add(to.Sub(from) / 2); end.Before(soonest) {
			start, end = c.cut.around(soonest)
		}
	}
	p := &period{start: now - FromDuration(wall.Sub(start)), end: now + FromDuration(end.Sub(wall)), length: end.Sub(start), wall: end.UnixMilli()}
	if old != nil && (int64(p.start-old.end) < 0 || int64(p.start-now) > 0) {
		p.start = old.end // periods follow each other without a gap
	}
	c.period.Store(p)
	return p
}

// ends returns when the period of now ends by the wall clock, and the one after.
func (c *Calendar) ends(now Ticks) (end, next time.Time) {
	end = time.UnixMilli(c.at(now).wall)
	_, next = c.cut.around(end)
	return end, next
}

// length returns how long the present period is by the calendar.
func (c *Calendar) length() time.Duration {
	if p := c.period.Load(); p != nil {
		return p.length
	}
	start, end := c.cut.around(c.wall())
	return end.Sub(start)
}

// calendarName is what makes a calendar.
type calendarName struct {
	length time.Duration // 0: of unit, zone and anchor
	unit   Unit
	zone   string
	anchor int
}

// Aligned returns NewAligned's calendar by s.Wall, always the same one for a
// length: what is counted survives a change of the rules.
func (s *Store) Aligned(length time.Duration) (*Calendar, error) {
	return s.calendar(calendarName{length: length}, func() (*Calendar, error) { return NewAligned(length, s.Wall) })
}

// Calendar returns NewCalendar's calendar by s.Wall, always the same one for the
// same periods.
func (s *Store) Calendar(unit Unit, zone *time.Location, anchor int) (*Calendar, error) {
	name := calendarName{unit: unit, zone: zone.String(), anchor: anchor}
	return s.calendar(name, func() (*Calendar, error) { return NewCalendar(unit, zone, anchor, s.Wall) })
}

func (s *Store) calendar(name calendarName, make func() (*Calendar, error)) (*Calendar, error) {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	if c := s.calendars[name]; c != nil {
		return c, nil
	}
	c, err := make()
	if err == nil {
		s.calendars[name] = c
	}
	return c, err
}
