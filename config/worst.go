package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// WorstCase says in words how much r lets through at most, starting from
// idleness: a bucket admits burst + rate·T in any time T, which is more than
// the number in the rate (a common surprise), a limit admits N in any window.
func WorstCase(r Rule) string {
	s := r.worst(r.Rate, r.Burst)
	if a := r.Anonymous; a != nil {
		s += fmt.Sprintf("; without %s, per %s: %s", list(r.lacks()), joinPer(a.Per), r.worst(a.Rate, a.Burst))
	}
	s += r.worstCounting()
	for _, o := range r.Overrides {
		s += fmt.Sprintf("; %s: %s", o.inWords(), r.worst(o.Rate, o.Burst))
		if !o.Until.IsZero() {
			s += ", until " + o.Until.Format("2006-01-02 15:04 MST")
		}
	}
	if u := r.Unknown; u != nil {
		s += fmt.Sprintf("; sources without a bucket together: %s", r.worst(*u, max(u.Amount, u.perSecond())))
	}
	if t := r.Then; t != nil && r.Mode != Watch {
		s += fmt.Sprintf("; a source refused more than %d times at once, or faster than %s, is blocked for %s",
			t.After.Amount, t.After, durationText(t.Block))
	}
	if r.Mode == Watch {
		s += " (watch: counted, not refused)"
	}
	return s
}

func (rule Rule) worst(r Rate, burst int64) string {
	n := amountText(r.Amount, Count)
	switch rule.Algorithm {
	case TokenBucket:
	case Quota:
		return fmt.Sprintf("quota %s: up to %s in each %s", quotaText(r), n, rule.Calendar)
	case FixedWindow:
		return fmt.Sprintf("limit %s in fixed windows: up to %s in each %s of the clock, and so %s in a moment around its end",
			r, n, span(r.Interval), amountText(2*r.Amount, Count))
	default:
		return fmt.Sprintf("limit %s: up to %s in any %s", r, n, span(r.Interval))
	}
	s := fmt.Sprintf("%s, burst %s: up to %s in the first %s",
		r, amountText(burst, r.Unit), amountText(atMost(burst, r, r.Interval), r.Unit), span(r.Interval))
	if r.Interval < time.Minute {
		s += fmt.Sprintf(", %s in the first minute", amountText(atMost(burst, r, time.Minute), r.Unit))
	}
	return s + ", then " + r.String()
}

// atMost is burst + rate·d, at most what an int64 holds.
func atMost(burst int64, r Rate, d time.Duration) int64 {
	if more := r.during(d); burst <= math.MaxInt64-more {
		return burst + more
	}
	return math.MaxInt64
}

func amountText(n int64, u Unit) string {
	if u == Bytes {
		return bytesText(n, false)
	}
	return strconv.FormatInt(n, 10)
}

// span names a window: minute, 2 hours, 250 ms.
func span(d time.Duration) string {
	names := []struct {
		d    time.Duration
		name string
	}{{day, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}}
	for _, u := range names {
		switch n := d / u.d; {
		case d%u.d != 0:
		case n == 1:
			return u.name
		default:
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return fmt.Sprintf("%d ms", d/time.Millisecond)
}

func joinPer(per []Per) string {
	s := ""
	for i, p := range per {
		if i > 0 {
			s += " and "
		}
		s += string(p)
	}
	return s
}

// counts reports whether p is a part of r's bucket key.
func counts(r Rule, p Per) bool { return slices.Contains(r.Per, p) }

// lacks names the identities that r counts by and that a request may lack.
func (r Rule) lacks() (names []string) {
	for _, p := range r.Per {
		switch p {
		case PerUser, PerKey, PerTenant:
			names = append(names, "a "+string(p))
		}
	}
	return names
}
