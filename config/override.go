package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Override gives those whom all of Owner, Tenant, Plan, User, Key and From fit
// other figures, of the kind that the rule has. Bucket key and spent budget stay.
type Override struct {
	Owner  string    // of the verified API key
	Tenant string    // of the verified API key
	Plan   string    // of the verified API key
	User   string    // of the verified token, or as a declared proxy names it
	Key    string    // how the SHA-256 of the API key begins, in lower-case hex digits
	From   Addresses // sources; at the HTTP gate clients, and no lists

	Rate  Rate
	Burst int64     // token-bucket
	Until time.Time // when it ends; zero: never
	Why   string
}

const (
	leastKeyDigits = 8 // what is shorter is not one key's alone for long
	longestWhy     = 200
	longestUser    = 512 // what the HTTP gate looks at
)

// overrides reads the figures that some have instead.
func (rr *ruleReader) overrides() {
	if rr.rule.Gate == "" {
		return // which gate it is has a fault already
	}
	whom := map[string]int{}
	for i, n := range rr.objects("overrides") {
		o := rr.object.reader.object(n, overrideLevel)
		if o == nil {
			continue
		}
		over := Override{}
		if rr.rule.Gate == GateNetwork {
			rr.sourceOverride(o, &over)
		} else {
			rr.clientOverride(o, &over)
		}
		if w, ok := o.word("why"); ok {
			if over.Why = w.text; len(w.text) > longestWhy {
				o.errorf(w.node, "why of %d bytes: the most is %d", len(w.text), longestWhy)
			}
		}
		if first, twice := whom[over.Whom()]; twice && rr.rule.Gate == GateHTTP {
			o.errorf(o.node, "override %d is for the same as override %d: remove one", i+1, first)
		}
		whom[over.Whom()] = i + 1
		rr.rule.Overrides = append(rr.rule.Overrides, over)
	}
}

func (rr *ruleReader) sourceOverride(o *object, over *Override) {
	for _, key := range []string{"owner", "tenant", "plan", "user", "key", "limit", "quota", "until"} {
		if o.has(key) {
			o.errorf(o.keys[key], "`%s` in an override is for the http gate: remove it", key)
		}
	}
	if o.need("from", "say which sources have these figures") {
		over.From = o.addresses("from")
	}
	if o.need("rate", "say how much is admitted from there, such as `rate: 100/s`") {
		over.Rate, over.Burst = o.bucket(GateNetwork)
		rr.sameUnit(o, "rate", over.Rate)
	}
}

func (rr *ruleReader) clientOverride(o *object, over *Override) {
	over.Owner, over.Tenant, over.Plan = o.owner("owner"), o.owner("tenant"), o.owner("plan")
	over.User, over.Key = o.userName(), o.keyDigits()
	if over.From = o.addresses("from"); len(over.From.Lists) > 0 {
		o.errorf(o.at("from"), "`from` in an override of the http gate takes prefixes, not lists: write them out")
	}
	if !slices.ContainsFunc(whomKeys, o.has) {
		o.errorf(o.node, "say whom the override is for: owner, tenant, plan, user, key or from")
	}
	over.Until = o.until(rr.rule.zone())
	for _, kind := range ways {
		switch {
		case !rr.has(kind) && o.has(kind):
			o.errorf(o.keys[kind], "an override has figures of the rule's own kind, and the rule has no %s", kind)
		case rr.has(kind):
			rr.overrideFigures(o, over, kind)
		}
	}
}

// overrideFigures reads figures of the kind that the rule has. Those of a limit
// or quota keep its window: what was spent in one cannot be told in another.
func (rr *ruleReader) overrideFigures(o *object, over *Override, kind string) {
	if !o.need(kind, fmt.Sprintf("the rule has a %s: give the override's, such as `%s: %s`", kind, kind, rr.rule.amount())) {
		return
	}
	switch kind {
	case "rate":
		over.Rate, over.Burst = o.bucket(GateHTTP)
		return
	case "quota":
		over.Rate, _ = o.quota()
		rr.samePeriod(o, over.Rate)
		return
	}
	rate, ok := o.limit()
	if over.Rate = rate; !ok || rr.rule.Rate.Amount == 0 {
		return
	}
	if rate.Interval != rr.rule.Rate.Interval {
		same := Rate{rate.Amount, rr.rule.Rate.Interval, Count}
		o.errorf(o.at(kind), "limit %s is in another window than the rule's %s: write it as %s", rate, rr.rule.Rate, same)
	}
	rr.fits(kind, o, rr.rule.Algorithm, rate)
}

// whomKeys are those that say whom an override of the HTTP gate is for.
var whomKeys = []string{"owner", "tenant", "plan", "user", "key", "from"}

func (o *object) userName() string {
	w, ok := o.word("user")
	if ok && len(w.text) > longestUser {
		o.errorf(w.node, "user of %d bytes: the most is %d", len(w.text), longestUser)
	}
	return w.text
}

// keyDigits reads the start of an API key's hash. No message repeats it: it may
// be the key itself.
func (o *object) keyDigits() string {
	w, ok := o.word("key")
	digits := strings.ToLower(w.text)
	switch {
	case !ok:
	case len(digits) > 64 || strings.Trim(digits, "0123456789abcdef") != "":
		o.errorf(w.node, "`key` is how the hash begins that `printf %%s KEY | sha256sum` prints, not the key itself")
	case len(digits) < leastKeyDigits:
		o.errorf(w.node, "`key` has %d digits of the hash: write at least %d", len(digits), leastKeyDigits)
	default:
		return digits
	}
	return ""
}

// until reads when something ends: a date, which is its last day in zone, or a
// moment.
func (o *object) until(zone *time.Location) time.Time {
	w, ok := o.word("until")
	if !ok {
		return time.Time{}
	}
	end, err := ParseUntil(w.text, zone)
	if err != nil {
		o.errorf(w.node, "until %s", err)
	}
	return end
}

// zone is where r's days begin and end: UTC unless it has a calendar.
func (r Rule) zone() *time.Location {
	if r.Calendar == nil {
		return time.UTC
	}
	zone, err := time.LoadLocation(r.Calendar.TimeZone)
	if err != nil {
		return time.UTC // the zone has a fault of its own
	}
	return zone
}

// ParseUntil reads a date such as 2027-03-31, which is the last day in zone, or
// a moment such as 2027-03-31T12:00:00Z. It returns when that is over, in UTC.
func ParseUntil(s string, zone *time.Location) (time.Time, error) {
	end, err := time.Parse(time.RFC3339, s)
	if err != nil {
		if end, err = time.ParseInLocation(time.DateOnly, s, zone); err != nil {
			return time.Time{}, fmt.Errorf("%s is no date: write one such as 2027-03-31, its last day, or a moment such as 2027-03-31T12:00:00Z", quote(s))
		}
		end = time.Date(end.Year(), end.Month(), end.Day()+1, 0, 0, 0, 0, zone)
	}
	if y := end.Year(); y < 2000 || y > 2200 {
		return time.Time{}, fmt.Errorf("%s is not between the years 2000 and 2200", quote(s))
	}
	return end.UTC(), nil
}

// untilText writes an end as ParseUntil reads it: as a date where it is the end
// of one in zone.
func untilText(end time.Time, zone *time.Location) string {
	last := end.In(zone).Add(-time.Nanosecond).Format(time.DateOnly)
	if again, err := ParseUntil(last, zone); err == nil && again.Equal(end) {
		return last
	}
	return end.UTC().Format(time.RFC3339Nano)
}

// Text writes o as an item of r's overrides.
func (o Override) Text(r Rule) string {
	f := flow{}
	o.whom(&f)
	f.figures(r.Algorithm, o.Rate, o.Burst)
	if !o.Until.IsZero() {
		f.word("until", untilText(o.Until, r.zone()))
	}
	if o.Why != "" {
		f.word("why", o.Why)
	}
	return f.String()
}

// named is what an override says of whom it is for, but for addresses.
func (o Override) named() [5]struct{ key, value string } {
	return [...]struct{ key, value string }{
		{"owner", o.Owner}, {"tenant", o.Tenant}, {"plan", o.Plan}, {"user", o.User}, {"key", o.Key},
	}
}

func (o Override) whom(f *flow) {
	for _, w := range o.named() {
		if w.value != "" {
			f.word(w.key, w.value)
		}
	}
	f.words("from", o.From.words())
}

// Whom says whom o is for, in the words of the configuration: two overrides of
// a rule for the same are one too many.
func (o Override) Whom() string {
	from := o.From
	from.Prefixes = slices.SortedFunc(slices.Values(from.Prefixes), netip.Prefix.Compare)
	o.From = from
	f := flow{}
	o.whom(&f)
	return strings.Join(f.pairs, ", ")
}

// inWords says whom o is for, in messages.
func (o Override) inWords() string {
	var parts []string
	for _, w := range o.named() {
		if w.value != "" {
			parts = append(parts, w.key+" "+w.value)
		}
	}
	if from := o.From.String(); from != "" {
		parts = append(parts, "from "+from)
	}
	return strings.Join(parts, ", ")
}

// WithOverrides returns r with more overrides before its own. One for the same
// as one of r's takes its place.
func (r Rule) WithOverrides(more []Override) Rule {
	if len(more) == 0 {
		return r
	}
	all := slices.Clone(more)
	for _, o := range r.Overrides {
		if !slices.ContainsFunc(more, func(m Override) bool { return m.Whom() == o.Whom() }) {
			all = append(all, o)
		}
	}
	r.Overrides = all
	r.Text = r.text()
	return r
}

// ParseOverride reads one override of r, a YAML or JSON mapping; name stands
// before its faults.
func (r Rule) ParseOverride(name string, data []byte) (Override, error) {
	r.Overrides = nil
	text := strings.TrimSuffix(r.text(), "}") + ", overrides: [" + string(data) + "]}"
	with, err := ParseRule(name, []byte(text))
	if err != nil {
		return Override{}, err
	}
	if len(with.Overrides) != 1 {
		return Override{}, fmt.Errorf("%s: give one override, not %d", name, len(with.Overrides))
	}
	return with.Overrides[0], nil
}
