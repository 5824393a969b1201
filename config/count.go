package config

import (
	"math"

	"github.com/headgate/headgate/limit"
)

// figures reads exactly one of rate and limit, with what belongs to it.
func (rr *ruleReader) figures() {
	switch {
	case rr.has("rate") && rr.has("limit"):
		rr.errorf(rr.keys["limit"], "`rate` and `limit` are two ways to count: remove one")
		return
	case rr.has("limit") && rr.rule.Gate == GateNetwork:
		rr.errorf(rr.keys["limit"], "`limit` is for the http gate: use `rate` and `burst`")
		return
	case rr.has("limit"):
		if rate, ok := rr.limit(); ok {
			rr.rule.Rate = rate
			rr.rule.Algorithm = rr.algorithm(algorithmFor(rate.Amount))
			rr.fits("limit", rr.object, rr.rule.Algorithm, rate)
		}
	case rr.meant["quota"] || rr.meant["concurrent"]:
		// Reported as ways to count that this version does not have.
	case rr.need("rate", "say how much is admitted, such as `rate: 100/s`, or as `limit: 5/min` at the http gate"):
		rr.rule.Algorithm = rr.algorithm(TokenBucket)
		rr.rule.Rate, rr.rule.Burst = rr.bucket(rr.rule.Gate)
	}
}

// algorithm reads `algorithm`, which must fit the figures.
func (rr *ruleReader) algorithm(fit Algorithm) Algorithm {
	w, ok := rr.word("algorithm")
	if !ok {
		return fit
	}
	switch a := Algorithm(w.text); {
	case a != TokenBucket && a != SlidingLog && a != SlidingCounter:
		rr.errorf(w.node, "%s", oneOf("algorithm", w.text, []string{"token-bucket", "sliding-log", "sliding-counter"}))
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
	other := map[string]string{"rate": "limit", "limit": "rate"}
	for kind, wrong := range other {
		if !rr.has(kind) || rr.has(wrong) {
			continue
		}
		if o.has(wrong) {
			o.errorf(o.keys[wrong], "the rule has a %s: `anonymous` needs `%s` too", kind, kind)
		} else if o.need(kind, "give the figures of requests without "+list(rr.rule.lacks())) {
			if kind == "rate" {
				a.Rate, a.Burst = o.bucket(GateHTTP)
			} else {
				a.Rate, _ = o.limit()
			}
		}
	}
	rr.rule.Anonymous = a
	if !rr.has("limit") {
		return
	}
	if !rr.has("algorithm") {
		rr.rule.Algorithm = algorithmFor(max(rr.rule.Rate.Amount, a.Rate.Amount))
	}
	rr.fits("limit", o, rr.rule.Algorithm, a.Rate)
}

// fits reports a limit that its algorithm cannot hold.
func (rr *ruleReader) fits(key string, o *object, a Algorithm, r Rate) {
	switch {
	case a == SlidingLog && r.Amount > limit.MaxLog:
		rr.errorf(o.at(key), "limit %s is too large for a sliding-log: the most is %d, or use sliding-counter", r, limit.MaxLog)
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
