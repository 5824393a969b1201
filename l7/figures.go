package l7

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// newLimit makes figures of r ready: its own, or others that it has for some
// requests. All count in the way that r does, where it says.
func (p *policy) newLimit(r *config.Rule, rate config.Rate, burst int64) (limit.Limit, error) {
	l, err := hostLimit(p.store, r, rate, burst)
	if err != nil {
		return l, err
	}
	return p.shared(l, r)
}

// hostLimit is newLimit where all is counted on this host.
func hostLimit(store *limit.Store, r *config.Rule, rate config.Rate, burst int64) (l limit.Limit, err error) {
	switch r.Algorithm {
	case config.TokenBucket:
		l, err = limit.NewRate(rate.Amount, rate.Interval, burst)
	case config.SlidingLog:
		l, err = limit.NewWindow(limit.SlidingLog, rate.Amount, rate.Interval)
	case config.SlidingCounter:
		l, err = limit.NewWindow(limit.SlidingCounter, rate.Amount, rate.Interval)
	case config.FixedWindow, config.Quota:
		var c *limit.Calendar
		if c, err = newCalendar(store, r, rate); err == nil {
			l, err = limit.NewTally(rate.Amount, c)
		}
	default:
		err = fmt.Errorf("algorithm %q is not known: use token-bucket, sliding-log, sliding-counter, fixed-window or quota", r.Algorithm)
	}
	if err == nil && r.Soft > 0 {
		l, err = l.Soft(r.Soft)
	}
	if r.CountRefused {
		l = l.CountRefused()
	}
	return l, err
}

// newCalendar finds the periods that r counts in.
func newCalendar(store *limit.Store, r *config.Rule, rate config.Rate) (*limit.Calendar, error) {
	if r.Algorithm == config.FixedWindow {
		return store.Aligned(rate.Interval)
	}
	c := r.Calendar
	if c == nil {
		return nil, fmt.Errorf("quota %d is without a period: write one such as 1000/day", rate.Amount)
	}
	zone, err := time.LoadLocation(c.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w (write one of the IANA database)", c.TimeZone, err)
	}
	units := map[string]limit.Unit{"day": limit.Day, "week": limit.Week, "month": limit.Month}
	unit, ok := units[c.Every]
	if !ok {
		return nil, fmt.Errorf("quota per %q: use day, week or month", c.Every)
	}
	return store.Calendar(unit, zone, c.Anchor)
}
