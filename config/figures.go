package config

import (
	"fmt"

	"github.com/headgate/headgate/limit"
)

const (
	// leastByteBurst is the default burst of a rate of bytes at the least: 64
	// kB, so that a frame as large as segmentation offload makes it fits.
	leastByteBurst = 64_000

	// frame is the largest Ethernet frame with a VLAN tag, without FCS. A burst
	// below it would refuse such frames for ever.
	frame = 1518
)

// bucket reads `rate` and `burst` of a rule or its anonymous part.
func (o *object) bucket(gate Gate) (Rate, int64) {
	w, ok := o.word("rate")
	if !ok {
		return Rate{}, 0
	}
	rate, err := parseRate(w.text)
	if err != nil {
		o.errorf(w.node, "rate %s", err)
		return Rate{}, 0
	}
	if gate == GateHTTP && rate.Unit == Bytes {
		o.errorf(w.node, "rate %s counts bytes: the http gate counts requests, write a rate such as 100/s", quote(w.text))
		return Rate{}, 0
	}
	return rate, o.burst(rate, gate)
}

// burst reads `burst`, or makes the default: the number written in the rate,
// at the network gate at least one second of it.
func (o *object) burst(rate Rate, gate Gate) int64 {
	burst := rate.Amount
	if gate == GateNetwork {
		burst = max(burst, rate.perSecond())
	}
	if rate.Unit == Bytes {
		burst = max(burst, leastByteBurst)
	}
	if w, ok := o.word("burst"); ok {
		n, err := parseBurst(w.text, rate.Unit)
		if err != nil {
			o.errorf(w.node, "burst %s", err)
			return 0
		}
		burst = n
	}
	if fillsTooSlowly(rate, burst) {
		o.errorf(o.at("burst"), "burst %d takes more than a year to fill at %s: lower it or raise the rate", burst, rate)
	} else if _, err := limit.NewFigures(rate.Amount, rate.Interval, burst, rate.Unit == Bytes); err != nil {
		// What is checked here is the same in other words; what counts decides.
		o.errorf(o.at("rate"), "%s", err)
	}
	return burst
}

func parseBurst(s string, unit Unit) (int64, error) {
	if unit == Bytes {
		return parseByteBurst(s)
	}
	if _, rest := splitNumber(s); rest != "" {
		return 0, fmt.Errorf("%s is no count: write a whole number, such as 10", quote(s))
	}
	n, err := parseWhole(s)
	switch {
	case err == errNegative || err == nil && n == 0:
		return 0, fmt.Errorf("%s admits nothing: the smallest is 1 (to refuse all of a source, use block)", quote(s))
	case err != nil:
		return 0, fmt.Errorf("%s is no count: %w; write a whole number, such as 10", quote(s), err)
	}
	return n, nil
}

func parseByteBurst(s string) (int64, error) {
	n, err := parseBytes(s)
	switch {
	case err != nil && (s == "0" || s[0] == '-'), err == nil && n < frame:
		return 0, fmt.Errorf("%s admits no full frame: the smallest is %dB", quote(s), frame)
	case err != nil:
		return 0, err
	}
	return n, nil
}

// limit reads `limit`: a count in a window, and no burst.
func (o *object) limit() (Rate, bool) {
	if o.has("burst") {
		o.errorf(o.keys["burst"], "a limit has no burst: remove it, or write `rate:` instead of `limit:`")
	}
	w, ok := o.word("limit")
	if !ok {
		return Rate{}, false
	}
	rate, err := parseRate(w.text)
	if err != nil {
		o.errorf(w.node, "limit %s", err)
		return Rate{}, false
	}
	if rate.Unit == Bytes {
		o.errorf(w.node, "limit %s counts bytes: the http gate counts requests, write one such as 5/min", quote(w.text))
		return Rate{}, false
	}
	return rate, true
}

// fillsTooSlowly reports whether a bucket of burst takes longer than a year to
// fill: its time could not be told from one that is long past.
func fillsTooSlowly(r Rate, burst int64) bool {
	return moreThan(burst, int64(r.Interval), r.Amount, int64(year))
}
