package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // an image made from scratch has no zone files

	"github.com/headgate/headgate/limit"
)

// Calendar is what a quota's periods are.
type Calendar struct {
	Every    string // day, week or month
	TimeZone string // of the IANA database
	Anchor   int    // week: the time.Weekday it begins on; month: its first day, 1 to 31, or its last where it is shorter; day: 0
}

// periods are the words for a quota's period, and the interval by which Rate
// has them.
var periods = []struct {
	name     string
	interval time.Duration
}{{"day", day}, {"week", 7 * day}, {"month", 30 * day}}

var weekdays = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// quota reads `quota` of a rule or its anonymous part: an amount and a period.
func (o *object) quota() (Rate, bool) {
	if o.has("burst") {
		o.errorf(o.keys["burst"], "a quota has no burst: remove it, or write `rate:` instead of `quota:`")
	}
	w, ok := o.word("quota")
	if !ok {
		return Rate{}, false
	}
	amount, every, _ := strings.Cut(w.text, "/")
	for _, p := range periods {
		if p.name != every {
			continue
		}
		n, err := parseWhole(amount)
		switch {
		case err != nil:
			o.errorf(w.node, "quota %s is no amount and period: %s; write one such as 1000/day", quote(w.text), err)
		case n < 1 || n > limit.MaxTally:
			o.errorf(w.node, "quota %s: the amount is from 1 to %d", quote(w.text), int64(limit.MaxTally))
		default:
			return Rate{n, p.interval, Count}, true
		}
		return Rate{}, false
	}
	o.errorf(w.node, "quota %s: a quota is per day, week or month, such as 1000/day; for any other time write `limit:`", quote(w.text))
	return Rate{}, false
}

// quotaText returns a quota as the configuration writes it.
func quotaText(r Rate) string {
	for _, p := range periods {
		if p.interval == r.Interval {
			return strconv.FormatInt(r.Amount, 10) + "/" + p.name
		}
	}
	return r.String()
}

// amount returns the figure of r's own way to count, as it is written.
func (r Rule) amount() string {
	if r.Algorithm == Quota {
		return quotaText(r.Rate)
	}
	return r.Rate.String()
}

// samePeriod reports a quota of another period than the rule's.
func (rr *ruleReader) samePeriod(o *object, r Rate) {
	if rr.rule.Rate.Amount > 0 && r.Amount > 0 && r.Interval != rr.rule.Rate.Interval {
		o.errorf(o.at("quota"), "the rule's quota is %s: write this one for the same period", quotaText(rr.rule.Rate))
	}
}

// calendar reads what says when a quota begins anew.
func (rr *ruleReader) calendar() *Calendar {
	c := &Calendar{TimeZone: rr.timeZone()}
	for _, p := range periods {
		if p.interval == rr.rule.Rate.Interval {
			c.Every = p.name
		}
	}
	w, given := rr.word("anchor")
	switch c.Every {
	case "week":
		c.Anchor = int(time.Monday) // ISO 8601
		if !given {
			break
		}
		if c.Anchor = slices.Index(weekdays, strings.ToLower(w.text)); c.Anchor < 0 {
			rr.errorf(w.node, "anchor %s: a week begins on a day such as monday or sunday", quote(w.text))
		}
	case "month":
		c.Anchor = 1
		if !given {
			break
		}
		n, err := parseWhole(w.text)
		if err != nil || n < 1 || n > 31 {
			rr.errorf(w.node, "anchor %s: a month begins on a day from 1 to 31, in shorter months on their last", quote(w.text))
		}
		c.Anchor = int(n)
	default:
		if given {
			rr.errorf(rr.keys["anchor"], "a day has no `anchor`: it begins at midnight; remove it")
		}
	}
	return c
}

func (rr *ruleReader) timeZone() string {
	w, _ := rr.word("time_zone")
	if _, err := time.LoadLocation(w.text); err != nil || w.text == "Local" || w.text == "" {
		rr.errorf(w.node, "time_zone %s is not known: write one of the IANA database, such as America/Sao_Paulo or UTC", quote(w.text))
	}
	return w.text
}

// calendar writes what ruleReader.calendar reads.
func (f *flow) calendar(c *Calendar) {
	if c == nil {
		return
	}
	f.word("time_zone", c.TimeZone)
	switch c.Every {
	case "week":
		f.word("anchor", weekdays[c.Anchor])
	case "month":
		f.word("anchor", strconv.Itoa(c.Anchor))
	}
}

// String returns c in words: calendar day in UTC, month from day 15 in UTC.
func (c Calendar) String() string {
	switch {
	case c.Every == "week":
		return fmt.Sprintf("week from %s in %s", weekdays[c.Anchor], c.TimeZone)
	case c.Every == "month" && c.Anchor > 1:
		return fmt.Sprintf("month from day %d in %s", c.Anchor, c.TimeZone)
	}
	return fmt.Sprintf("calendar %s in %s", c.Every, c.TimeZone)
}
