package config

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	leastMemory     = 1 << 20 // of the whole gate
	leastRuleMemory = 64 << 10
	mostMemory      = 1 << 40
)

// requestsOnly reports whether key may be read: at the network gate it is a
// fault.
func (rr *ruleReader) requestsOnly(key string) bool {
	if !rr.has(key) || rr.rule.Gate == "" {
		return false
	}
	if rr.rule.Gate == GateNetwork {
		rr.errorf(rr.keys[key], "`%s` is for the http gate: remove it", key)
		return false
	}
	return true
}

// counting reads how the figures are applied.
func (rr *ruleReader) counting() {
	if rr.requestsOnly("count_refused") {
		rr.rule.CountRefused = rr.flag("count_refused")
	}
	if rr.requestsOnly("soft") {
		rr.rule.Soft = rr.soft()
	}
	if rr.requestsOnly("memory") {
		rr.rule.Memory = rr.memory(leastRuleMemory)
	}
	for _, key := range []string{"time_zone", "anchor"} {
		if rr.has(key) && !rr.has("quota") && !rr.meant["quota"] {
			rr.errorf(rr.keys[key], "`%s` is for a quota: write `quota:`, or remove it", key)
		}
	}
}

// soft reads how many percent come above the line.
func (rr *ruleReader) soft() int {
	w, ok := rr.word("soft")
	if !ok {
		return 0
	}
	number, sign := strings.CutSuffix(w.text, "%")
	n, err := parseWhole(number)
	if !sign || err != nil || n < 1 || n > 100 {
		rr.errorf(w.node, "soft %s: write from 1%% to 100%% of the limit, such as 10%%", quote(w.text))
		return 0
	}
	figures := []int64{rr.rule.line(rr.rule.Rate, rr.rule.Burst)}
	if a := rr.rule.Anonymous; a != nil {
		figures = append(figures, rr.rule.line(a.Rate, a.Burst))
	}
	for _, over := range rr.rule.Overrides {
		figures = append(figures, rr.rule.line(over.Rate, over.Burst))
	}
	for _, f := range figures {
		if f > 0 && f < 100 && f*n/100 == 0 {
			rr.errorf(w.node, "soft %s of %d is less than one request: raise it or remove it", w.text, f)
		}
	}
	return int(n)
}

// line returns how many requests may come at once.
func (r Rule) line(rate Rate, burst int64) int64 {
	if r.Algorithm == TokenBucket {
		return burst
	}
	return rate.Amount
}

// memory reads an amount of memory, of least bytes at the least.
func (o *object) memory(least int64) int64 {
	w, ok := o.word("memory")
	if !ok {
		return 0
	}
	n, err := parseBytes(w.text)
	switch {
	case err != nil:
		o.errorf(w.node, "memory %s", err)
	case n < least || n > mostMemory:
		o.errorf(w.node, "memory %s: give from %s to %s", quote(w.text), bytesText(least, false), bytesText(mostMemory, false))
	}
	return n
}

// counting writes what ruleReader.counting reads.
func (r Rule) counting(f *flow) {
	if r.CountRefused {
		f.raw("count_refused", "true")
	}
	if r.Soft > 0 {
		f.raw("soft", strconv.Itoa(r.Soft)+"%")
	}
	if r.Memory > 0 {
		f.word("memory", bytesText(r.Memory, false))
	}
	if r.Scope != "" {
		f.word("scope", string(r.Scope))
	}
	if r.Outage != "" {
		f.word("outage", string(r.Outage))
	}
}

// worstCounting adds to the worst case what counting does to it.
func (r Rule) worstCounting() (s string) {
	if r.Soft > 0 {
		s += fmt.Sprintf("; up to %d%% above it pass and are marked", r.Soft)
	}
	if r.CountRefused {
		s += "; what is refused counts too, so asking on keeps a client out"
	}
	return s
}
