package config

import (
	"math"
	"slices"

	"github.com/headgate/headgate/limit"
)

// ways are the keys that say how much, of which a rule has one.
var ways = []string{"rate", "limit", "quota"}

// figures reads exactly one of rate, limit and quota, with what belongs to it.
func (rr *ruleReader) figures() {
	var given []string
	for _, key := range ways {
		if rr.has(key) {
			given = append(given, key)
		}
	}
	switch {
	case len(given) > 1:
		rr.errorf(rr.keys[given[1]], "`%s` and `%s` are two ways to count: remove one", given[0], given[1])
		return
	case len(given) == 1 && given[0] != "rate" && rr.rule.Gate == GateNetwork:
		rr.errorf(rr.keys[given[0]], "`%s` is for the http gate: use `rate` and `burst`", given[0])
		return
	case rr.has("quota"):
		rr.rule.Algorithm = rr.algorithm(Quota)
		if rate, ok := rr.quota(); ok {
			rr.rule.Rate = rate
			rr.rule.Calendar = rr.calendar()
		}
	case rr.has("limit"):
		if rate, ok := rr.limit(); ok {
			rr.rule.Rate = rate
			rr.rule.Algorithm = rr.algorithm(algorithmFor(rate.Amount))
			rr.fits("limit", rr.object, rr.rule.Algorithm, rate)
		}
	case rr.meant["quota"] || rr.meant["concurrent"]:
		// Reported already, without a value or as one this version does not have.
	case rr.need("rate", "say how much is admitted, such as `rate: 100/s`, or as `limit: 5/min` at the http gate"):
		rr.rule.Algorithm = rr.algorithm(TokenBucket)
		rr.rule.Rate, rr.rule.Burst = rr.bucket(rr.rule.Gate)
	}
}

// ruleAlgorithms are those that a rule may name.
var ruleAlgorithms = []string{string(TokenBucket), string(SlidingLog), string(SlidingCounter), string(FixedWindow)}

// algorithm reads `algorithm`, which must fit the figures.
func (rr *ruleReader) algorithm(fit Algorithm) Algorithm {
	w, ok := rr.word("algorithm")
	if !ok {
		return fit
	}
	switch a := Algorithm(w.text); {
	case !slices.Contains(ruleAlgorithms, w.text):
		rr.errorf(w.node, "%s", oneOf("algorithm", w.text, ruleAlgorithms))
	case fit == Quota:
		rr.errorf(w.node, "a quota counts by the calendar: remove `algorithm`, or write `limit:` instead of `quota:`")
	case a == TokenBucket && fit != TokenBucket:
		rr.errorf(w.node, "a token-bucket has a rate: write `rate:` instead of `limit:`")
	case a != TokenBucket && fit == TokenBucket:
		rr.errorf(w.node, "a %s has a limit: write `limit:` instead of `rate:`", a)
	default:
		return a
	}
	return fit
}

// anonymous reads the figures of requests without a key, of the same kind as
// the rule's.
func (rr *ruleReader) anonymous() {
	o := rr.child("anonymous", anonymousLevel)
	if o == nil {
		return
	}
	if len(rr.rule.lacks()) == 0 {
		if len(rr.rule.Per) == 0 {
			return // what `per` says is wrong already
		}
		rr.errorf(rr.keys["anonymous"], "`anonymous` is for rules per key, user or tenant: remove it")
		return
	}
	a := &Anonymous{Per: rr.readPer(o)}
	if len(a.Per) > 1 || len(a.Per) == 1 && a.Per[0] != PerClient && a.Per[0] != PerTotal {
		o.errorf(o.at("per"), "`anonymous` counts requests without %s: write `per: client` or `per: total`", list(rr.rule.lacks()))
	}
	rr.sameWay(o, a)
	rr.rule.Anonymous = a
	if !rr.has("limit") {
		return
	}
	if !rr.has("algorithm") {
		rr.rule.Algorithm = algorithmFor(max(rr.rule.Rate.Amount, a.Rate.Amount))
	}
	rr.fits("limit", o, rr.rule.Algorithm, a.Rate)
}

// sameWay reads the figures of a, which count in the way that the rule does.
func (rr *ruleReader) sameWay(o *object, a *Anonymous) {
	way := ""
	for _, key := range ways {
		switch {
		case !rr.has(key):
		case way != "":
			return // reported already
		default:
			way = key
		}
	}
	for _, key := range ways {
		if way != "" && key != way && o.has(key) {
			o.errorf(o.keys[key], "the rule has a %s: `anonymous` needs `%s` too", way, way)
			return
		}
	}
	if way == "" || !o.need(way, "give the figures of requests without "+list(rr.rule.lacks())) {
		return
	}
	switch way {
	case "rate":
		a.Rate, a.Burst = o.bucket(GateHTTP)
	case "limit":
		a.Rate, _ = o.limit()
	case "quota":
		a.Rate, _ = o.quota()
		rr.samePeriod(o, a.Rate)
	}
}

// fits reports a limit that its algorithm cannot hold.
func (rr *ruleReader) fits(key string, o *object, a Algorithm, r Rate) {
	switch {
	case a == SlidingLog && r.Amount > limit.MaxLog:
		rr.errorf(o.at(key), "limit %s is too large for a sliding-log: the most is %d, or use sliding-counter", r, limit.MaxLog)
	case a == FixedWindow && r.Amount > limit.MaxTally:
		rr.errorf(o.at(key), "limit %s is too large for a fixed-window: the most is %d", r, int64(limit.MaxTally))
	case a == SlidingCounter && r.Amount > math.MaxUint32:
		rr.errorf(o.at(key), "limit %s is too large for a sliding-counter: the most is %d, or use `rate`", r, uint32(math.MaxUint32))
	}
}

// longestLog is the largest limit that is counted exactly unless a rule asks
// for the other way: a log keeps a time for every request in the window.
const longestLog = 100

func algorithmFor(most int64) Algorithm {
	if most > longestLog {
		return SlidingCounter
	}
	return SlidingLog
}
