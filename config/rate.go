package config

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

const (
	// fastestCount is the highest rate of packets or requests a second, and
	// slowestBytes to fastestBytes the range of rates of bytes: the data path
	// holds 0.1 % within them.
	fastestCount = 100_000_000
	fastestBytes = 400_000_000_000 / 8
	slowestBytes = 8_000 / 8

	// longestInterval is also what makes 1/year the slowest rate, and what a
	// bucket may take to fill.
	longestInterval = year
)

// parseRate reads AMOUNT/INTERVAL: 100/s, 5/min, 10/250ms, 3/day, 2Mbit/s.
// Amount and interval are kept as written, not reduced: they are the default
// burst and the window of a limit.
func parseRate(s string) (Rate, error) {
	amount, interval, ok := strings.Cut(s, "/")
	if !ok {
		return Rate{}, fmt.Errorf("%s is no rate: %s", quote(s), noSlashHint(s))
	}
	number, unit := splitNumber(amount)
	n, err := parseWhole(number)
	if err != nil {
		if mended := wholeRate(number, unit, interval); errors.Is(err, errFraction) && mended != "" {
			return Rate{}, fmt.Errorf("%s is no rate: %w, or write %s", quote(s), err, mended)
		}
		return Rate{}, fmt.Errorf("%s is no rate: %w; write one such as 100/s or 5/min", quote(s), err)
	}
	every, err := parseInterval(interval)
	if err != nil {
		return Rate{}, fmt.Errorf("%s is no rate: %w", quote(s), err)
	}
	size := int64(0)
	if unit != "" {
		if size, err = byteUnit(unit); err != nil {
			return Rate{}, fmt.Errorf("%s is no rate: %w", quote(s), thousands(err, number, unit, interval))
		}
	}
	switch {
	case n == 0 && unit != "":
		return Rate{}, fmt.Errorf("%s admits nothing: write 1%s/%s or more, or smaller units", quote(s), unit, interval)
	case n == 0:
		return Rate{}, fmt.Errorf("%s admits nothing: write 1/%s or more, or 1 in a longer time, up to 1/365d", quote(s), interval)
	case unit == "":
		return checkCount(s, Rate{n, every, Count})
	}
	return byteRate(s, n, size, every)
}

// parseInterval reads what follows the slash: a unit, or a number and a unit.
func parseInterval(s string) (time.Duration, error) {
	number, unit := splitNumber(s)
	n := int64(1)
	if number != "" {
		var err error
		if n, err = parseWhole(number); err != nil {
			return 0, err
		}
	}
	if unit == "" {
		return 0, errors.New("it has no unit of time: end it with /s, /min, /h or /day")
	}
	one, err := timeUnit(unit)
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, errors.New("its interval is 0: the shortest is 1ms")
	case n > int64(longestInterval/one):
		return 0, errors.New("its interval is too long: the longest is 365d")
	}
	return time.Duration(n) * one, nil
}

func checkCount(s string, r Rate) (Rate, error) {
	if r.over(fastestCount) {
		return Rate{}, fmt.Errorf("%s is too fast to represent exactly: the fastest is %d/s", quote(s), fastestCount)
	}
	return r, nil
}

// byteRate makes a rate of n times size bits. A rate in bits that is no whole number of
// bytes gets a longer interval instead.
func byteRate(s string, n, size int64, every time.Duration) (Rate, error) {
	amount, ok := mul(n, size)
	if !ok {
		return Rate{}, tooManyBytes(s)
	}
	scale := int64(8)
	for scale > 1 && amount%2 == 0 {
		amount, scale = amount/2, scale/2
	}
	r := Rate{amount, every * time.Duration(scale), Bytes}
	if r.Interval > longestInterval {
		return Rate{}, fmt.Errorf("%s is no whole number of bytes: write it in B, kB or MB", quote(s))
	}
	if r.over(fastestBytes) {
		return Rate{}, tooManyBytes(s)
	}
	if moreThan(slowestBytes, int64(r.Interval), r.Amount, int64(time.Second)) {
		return Rate{}, fmt.Errorf("%s is too slow to represent exactly: the slowest is 8kbit/s", quote(s))
	}
	return r, nil
}

// thousands adds to err what 20k/s means when it counts.
func thousands(err error, number, unit, interval string) error {
	zeros := map[string]string{"k": "000", "K": "000", "M": "000000"}[unit]
	if zeros == "" {
		return err
	}
	return fmt.Errorf("write %s%s/%s, or %s%sB/%s for bytes", number, zeros, interval, number, strings.Replace(unit, "K", "k", 1), interval)
}

func tooManyBytes(s string) error {
	return fmt.Errorf("%s is too fast to represent exactly: the fastest is 400Gbit/s", quote(s))
}

// over reports whether r is more than most a second.
func (r Rate) over(most int64) bool {
	return moreThan(r.Amount, int64(time.Second), most, int64(r.Interval))
}

// perSecond returns how much r brings in one second, rounded up.
func (r Rate) perSecond() int64 { return r.during(time.Second) }

// during returns how much r brings in d, rounded up; at most what an int64
// holds.
func (r Rate) during(d time.Duration) int64 {
	n := new(big.Int).Mul(big.NewInt(r.Amount), big.NewInt(int64(d)))
	n.Add(n, big.NewInt(int64(r.Interval)-1))
	n.Div(n, big.NewInt(int64(r.Interval)))
	if !n.IsInt64() {
		return 1<<63 - 1
	}
	return n.Int64()
}

// String returns r as the configuration writes it, such as 5/min or 2Mbit/s.
// Bytes take the unit that leaves the fewest digits.
func (r Rate) String() string {
	if r.Unit != Bytes {
		return strconv.FormatInt(r.Amount, 10) + "/" + intervalText(r.Interval)
	}
	return bytesText(r.Amount, true) + "/" + intervalText(r.Interval)
}

// intervalText returns a duration in the largest unit that divides it, without
// the number where that is 1.
func intervalText(d time.Duration) string {
	for i := len(timeUnits) - 2; i >= 0; i-- {
		u := timeUnits[i]
		if d%u.d != 0 {
			continue
		}
		switch n := int64(d / u.d); {
		case n != 1:
			return strconv.FormatInt(n, 10) + u.name
		case u.d == day:
			return "day"
		default:
			return u.name
		}
	}
	return d.String()
}

// bytesText returns n bytes in the unit that leaves the fewest digits; bits
// are for rates only.
func bytesText(n int64, inBits bool) string {
	best, digits := strconv.FormatInt(n, 10)+"B", len(strconv.FormatInt(n, 10))
	all := new(big.Int).Mul(big.NewInt(n), big.NewInt(8))
	for _, u := range byteUnits {
		if !inBits && strings.HasSuffix(u.name, "bit") {
			continue
		}
		count, rest := new(big.Int).QuoRem(all, big.NewInt(u.bits), new(big.Int))
		if rest.Sign() != 0 {
			continue
		}
		if text := count.String(); len(text) < digits {
			best, digits = text+u.name, len(text)
		}
	}
	return best
}

// noSlashHint says how to mend a rate that names no interval.
func noSlashHint(s string) string {
	number, unit := splitNumber(s)
	if _, err := parseWhole(number); err != nil {
		return "write an amount and an interval, such as 100/s or 5/min"
	}
	switch lower := strings.ToLower(unit); {
	case unit == "":
		return fmt.Sprintf("say per what time: %s/s or %s/min", number, number)
	case lower == "rps" || lower == "pps" || lower == "qps" || lower == "hz":
		return fmt.Sprintf("write %s/s", number)
	case strings.HasSuffix(lower, "bps"):
		return fmt.Sprintf("write %s%sbit/s", number, unit[:len(unit)-len("bps")])
	}
	return "write an amount and an interval, such as 100/s or 5/min"
}

// wholeRate rewrites a decimal amount as a whole one over a longer interval:
// 0.5 and s give 1/2s. It returns "" where that gives no rate either.
func wholeRate(number, unit, interval string) string {
	whole, frac, _ := strings.Cut(number, ".")
	if whole == "" || frac == "" || len(number) > 9 || strings.Trim(whole+frac, "0123456789") != "" {
		return ""
	}
	amount, err := strconv.ParseInt(whole+frac, 10, 64)
	every, err2 := parseInterval(interval)
	if err != nil || err2 != nil || amount == 0 {
		return ""
	}
	scale := int64(1)
	for range frac {
		scale *= 10
	}
	for _, prime := range []int64{2, 5} {
		for amount%prime == 0 && scale%prime == 0 {
			amount, scale = amount/prime, scale/prime
		}
	}
	if scale > int64(longestInterval/every) {
		return ""
	}
	return fmt.Sprintf("%d%s/%s", amount, unit, intervalText(every*time.Duration(scale)))
}
