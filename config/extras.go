package config

import (
	"slices"
	"time"

	"github.com/headgate/headgate/limit"
)

const (
	shortestThen = time.Second
	longestThen  = 30 * day
)

// packetsOnly reports whether key may be read: at the HTTP gate it is a fault.
func (rr *ruleReader) packetsOnly(key string) bool {
	if !rr.has(key) || rr.rule.Gate == "" {
		return false // which gate it is has a fault already
	}
	if rr.rule.Gate == GateHTTP {
		rr.errorf(rr.keys[key], "this version does not have `%s` at the http gate yet; remove it", key)
		return false
	}
	return true
}

// perSourceAlone reports a key that needs buckets of sources and nothing else.
func (rr *ruleReader) perSourceAlone(key string) {
	if per := rr.rule.Per; len(per) > 0 && !slices.Equal(per, []Per{PerSource}) {
		rr.errorf(rr.keys[key], "`%s` is about sources: it needs `per: source` alone", key)
	}
}

// sameUnit reports a rate that counts something else than the rule does: both
// are taken from one bucket.
func (rr *ruleReader) sameUnit(o *object, key string, r Rate) bool {
	switch {
	case r.Amount == 0 || rr.rule.Rate.Amount == 0 || r.Unit == rr.rule.Rate.Unit:
		return true // or one of them has a fault of its own
	case r.Unit == Bytes:
		o.errorf(o.at(key), "%s %s counts bytes, and the rule packets: write one such as 100/s", key, r)
	default:
		o.errorf(o.at(key), "%s %s counts packets, and the rule bytes: write one such as 2Mbit/s", key, r)
	}
	return false
}

// unknown reads what sources without a bucket take together.
func (rr *ruleReader) unknown() {
	if !rr.packetsOnly("unknown") {
		return
	}
	rr.perSourceAlone("unknown")
	w, ok := rr.word("unknown")
	if !ok {
		return
	}
	rate, err := parseRate(w.text)
	if err != nil {
		rr.errorf(w.node, "unknown %s", err)
		return
	}
	rule := rr.rule.Rate
	switch {
	case !rr.sameUnit(rr.object, "unknown", rate):
	case rule.Amount > 0 && moreThan(rule.Amount, int64(rate.Interval), rate.Amount, int64(rule.Interval)):
		rr.errorf(w.node, "unknown %s is less than %s, which one source may take alone: raise it, it is for all unknown sources together", rate, rule)
	default:
		burst := max(rate.Amount, rate.perSecond())
		if _, err := limit.NewFigures(rate.Amount, rate.Interval, burst, rate.Unit == Bytes); err != nil {
			rr.errorf(w.node, "unknown: %s", err)
		}
		rr.rule.Unknown = &rate
	}
}

// then reads what happens to a source that is refused again and again.
func (rr *ruleReader) then() {
	if !rr.packetsOnly("then") {
		return
	}
	rr.perSourceAlone("then")
	o := rr.child("then", thenLevel)
	if o == nil {
		return
	}
	var t Then
	if o.need("block", "say for how long the source is blocked, such as `block: 60s`") {
		t.Block = o.blockFor()
	}
	if o.need("after", "say after how many refusals, such as `after: 100/1s`") {
		t.After = o.after()
	}
	rr.rule.Then = &t
}

func (o *object) blockFor() time.Duration {
	w, ok := o.word("block")
	if !ok {
		return 0
	}
	d, err := ParseDuration(w.text)
	switch {
	case err != nil:
		o.errorf(w.node, "block %s", err)
	case d < shortestThen || d > longestThen:
		o.errorf(w.node, "block %s: from 1s to 30d", quote(w.text))
	}
	return d
}

func (o *object) after() Rate {
	w, ok := o.word("after")
	if !ok {
		return Rate{}
	}
	r, err := parseRate(w.text)
	switch {
	case err != nil:
		o.errorf(w.node, "after %s", err)
	case r.Unit == Bytes:
		o.errorf(w.node, "after %s counts bytes: refusals are counted, write one such as 100/1s", quote(w.text))
	default:
		if _, err := limit.NewFigures(r.Amount, r.Interval, r.Amount, false); err != nil {
			o.errorf(w.node, "after: %s", err)
		}
	}
	return r
}
