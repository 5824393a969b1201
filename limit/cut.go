package limit

import (
	"fmt"
	"time"
)

// cut divides the wall clock's time into periods that follow each other
// without a gap.
type cut interface {
	// around returns the period that holds t, start included and end not.
	around(t time.Time) (start, end time.Time)
}

// even cuts at the multiples of one length since 1970-01-01 00:00 UTC: minutes
// begin at second 0, days at midnight UTC.
type even time.Duration

func (e even) around(t time.Time) (start, end time.Time) {
	length := int64(e)
	into := t.UnixNano() % length
	if into < 0 {
		into += length
	}
	start = t.Add(-time.Duration(into))
	return start, start.Add(time.Duration(e))
}

// Unit is the length of a quota's period.
type Unit uint8

const (
	Day Unit = iota
	Week
	Month
)

// date is a day of the calendar, without a time of day.
type date struct {
	year  int
	month time.Month
	day   int
}

func dateOf(t time.Time) date {
	y, m, d := t.Date()
	return date{y, m, d}
}

// add returns the date n days later.
func (d date) add(n int) date {
	return dateOf(time.Date(d.year, d.month, d.day+n, 0, 0, 0, 0, time.UTC))
}

func (d date) weekday() time.Weekday {
	return time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC).Weekday()
}

// begin returns the first moment at which a clock in zone shows d or a later
// date. Where midnight is skipped, as some zones do when summer begins, that is
// when the clock jumps; where it comes twice, the first; of a date that a zone
// skipped as a whole, the begin of the next.
func (d date) begin(zone *time.Location) time.Time {
	midnight := time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC)
	// No zone has ever been further than 16 h from UTC.
	t := midnight.Add(-16 * time.Hour).In(zone)
	for {
		_, offset := t.Zone()
		here := midnight.Add(-time.Duration(offset) * time.Second)
		_, end := t.ZoneBounds()
		if end.IsZero() || here.Before(end) {
			if here.Before(t) {
				here = t
			}
			return here.In(zone)
		}
		t = end
	}
}

// calendarCut cuts at the begin of days in a zone.
type calendarCut struct {
	unit   Unit
	zone   *time.Location
	anchor int // week: its first time.Weekday; month: its first day, 1 to 31
}

func newCut(unit Unit, zone *time.Location, anchor int) (calendarCut, error) {
	c := calendarCut{unit, zone, anchor}
	switch {
	case unit > Month:
		return c, fmt.Errorf("quota per unit %d: use Day, Week or Month", unit)
	case unit == Week && (anchor < 0 || anchor > 6):
		return c, fmt.Errorf("a week beginning on day %d: give one from 0, Sunday, to 6", anchor)
	case unit == Month && (anchor < 1 || anchor > 31):
		return c, fmt.Errorf("a month beginning on day %d: give one from 1 to 31", anchor)
	}
	return c, nil
}

func (c calendarCut) around(t time.Time) (start, end time.Time) {
	first := c.first(dateOf(t.In(c.zone)))
	// A date is left and entered again where clocks go back over midnight, and
	// periods of dates that were skipped are empty: look at both neighbours.
	for start = first.begin(c.zone); start.After(t); start = first.begin(c.zone) {
		first = c.first(first.add(-1))
	}
	for {
		next := c.next(first)
		if end = next.begin(c.zone); end.After(t) {
			return start, end
		}
		first, start = next, end
	}
}

// first returns the first day of d's period.
func (c calendarCut) first(d date) date {
	switch c.unit {
	case Week:
		return d.add(-(int(d.weekday()) - c.anchor + 7) % 7)
	case Month:
		if begin := c.inMonth(d.year, d.month); d.day >= begin.day {
			return begin
		}
		return c.inMonth(d.year, d.month-1)
	}
	return d
}

// next returns the first day of the period after that which begins at first.
func (c calendarCut) next(first date) date {
	switch c.unit {
	case Week:
		return first.add(7)
	case Month:
		return c.inMonth(first.year, first.month+1)
	}
	return first.add(1)
}

// inMonth returns the anchor's day in a month, its last day where it is
// shorter. Months 0 and 13 are those of the neighbouring years.
func (c calendarCut) inMonth(year int, month time.Month) date {
	last := dateOf(time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC))
	last.day = min(c.anchor, last.day)
	return last
}
