package config

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

const (
	day  = 24 * time.Hour
	year = 365 * day

	// longestDuration bounds ParseDuration well below the 292 years of an
	// int64 of nanoseconds, so that adding one to a time cannot wrap.
	longestDuration = 100 * year
)

// timeUnits are the words for time, smallest first. `m` is no unit of a rate,
// where it could as well be a month.
var timeUnits = []struct {
	name string
	d    time.Duration
}{
	{"ms", time.Millisecond},
	{"s", time.Second},
	{"min", time.Minute},
	{"h", time.Hour},
	{"d", day},
	{"day", day},
}

// foreignTime maps what other tools call a time to how it is written here.
var foreignTime = map[string]string{
	"m": "min", "mins": "min", "minute": "min", "minutes": "min",
	"sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"hr": "h", "hrs": "h", "hour": "h", "hours": "h",
	"days": "d", "w": "7d", "week": "7d", "weeks": "7d",
	"mo": "30d", "month": "30d", "months": "30d", "y": "365d", "year": "365d", "years": "365d",
	"msec": "ms", "millisecond": "ms", "milliseconds": "ms",
	"us": "ms", "µs": "ms", "μs": "ms", "ns": "ms",
}

// ParseDuration reads a whole number and a unit: ms, s, m or min, h, d or day.
// The least is 1ms, the most 36500d.
func ParseDuration(s string) (time.Duration, error) {
	number, unit := splitNumber(s)
	if unit == "m" {
		unit = "min"
	}
	n, err := parseWhole(number)
	if err != nil {
		return 0, fmt.Errorf("%s is no duration: %w; write one such as 250ms, 60s, 10m, 2h or 1d", quote(s), err)
	}
	if unit == "" {
		return 0, fmt.Errorf("%s is a duration without a unit: write %ss or %sm", quote(s), number, number)
	}
	one, err := timeUnit(unit)
	if err != nil {
		return 0, fmt.Errorf("%s is no duration: %w", quote(s), err)
	}
	if n == 0 {
		return 0, fmt.Errorf("%s is no duration: the shortest is 1ms", quote(s))
	}
	if n > int64(longestDuration/one) {
		return 0, fmt.Errorf("%s is too long: the longest is 36500d", quote(s))
	}
	return time.Duration(n) * one, nil
}

// durationText returns d as ParseDuration reads it: 60s is 1min.
func durationText(d time.Duration) string {
	text := intervalText(d)
	if text[0] < '0' || text[0] > '9' {
		return "1" + text
	}
	return text
}

// timeUnit returns the length of a unit, or an error that names the right one.
func timeUnit(unit string) (time.Duration, error) {
	for _, u := range timeUnits {
		if u.name == unit {
			return u.d, nil
		}
	}
	lower := strings.ToLower(unit)
	if ours, ok := foreignTime[lower]; ok {
		return 0, fmt.Errorf("unit %s: write %s", quote(unit), ours)
	}
	for _, u := range timeUnits {
		if u.name == lower {
			return 0, fmt.Errorf("unit %s: write %s", quote(unit), u.name)
		}
	}
	return 0, fmt.Errorf("unknown unit %s: use ms, s, min, h or d", quote(unit))
}

// byteUnits are the words for amounts of data in bits, in the order in which
// Rate.String prefers them: k, M and G are powers of 1000.
var byteUnits = []struct {
	name string
	bits int64
}{
	{"GB", 8e9}, {"MB", 8e6}, {"kB", 8e3}, {"B", 8},
	{"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1},
	{"GiB", 8 << 30}, {"MiB", 8 << 20}, {"KiB", 8 << 10},
}

// foreignBytes maps ambiguous or foreign spellings to what may be meant.
var foreignBytes = map[string]string{
	"b": "bit or B", "kb": "kbit or kB", "mb": "Mbit or MB", "gb": "Gbit or GB",
	"k": "kbit or kB", "g": "Gbit or GB",
	"kbits": "kbit", "mbits": "Mbit", "gbits": "Gbit", "bits": "bit", "bytes": "B", "byte": "B",
	"kbps": "kbit/s", "mbps": "Mbit/s", "gbps": "Gbit/s", "bps": "bit/s",
	"kib": "KiB", "mib": "MiB", "gib": "GiB", "kbit": "kbit", "mbit": "Mbit", "gbit": "Gbit",
	"ki": "KiB", "mi": "MiB", "gi": "GiB",
}

// byteUnit returns the bits of a unit of data, or an error that names the
// right spelling.
func byteUnit(unit string) (int64, error) {
	for _, u := range byteUnits {
		if u.name == unit {
			return u.bits, nil
		}
	}
	if ours, ok := foreignBytes[strings.ToLower(unit)]; ok {
		return 0, fmt.Errorf("unit %s: write %s", quote(unit), ours)
	}
	return 0, fmt.Errorf("unknown unit %s: use bit, kbit, Mbit, Gbit, B, kB, MB, GB, KiB, MiB or GiB", quote(unit))
}

// parseBytes reads an amount of data such as 256kB, in bytes.
func parseBytes(s string) (int64, error) {
	number, unit := splitNumber(s)
	n, err := parseWhole(number)
	if err != nil {
		return 0, fmt.Errorf("%s is no amount of data: %w; write one such as 256kB", quote(s), err)
	}
	if unit == "" {
		return 0, fmt.Errorf("%s is an amount of data without a unit: write %sB", quote(s), number)
	}
	size, err := byteUnit(unit)
	if err != nil {
		return 0, fmt.Errorf("%s is no amount of data: %w", quote(s), err)
	}
	all, ok := mul(n, size)
	if !ok {
		return 0, fmt.Errorf("%s is too much to count", quote(s))
	}
	if all%8 != 0 {
		return 0, fmt.Errorf("%s is no whole number of bytes", quote(s))
	}
	return all / 8, nil
}

// splitNumber cuts s after its leading digits, signs, points and underscores,
// so that a malformed number stays whole for the message.
func splitNumber(s string) (number, rest string) {
	i := 0
	for i < len(s) && strings.IndexByte("0123456789.,_+-", s[i]) >= 0 {
		i++
	}
	return s[:i], s[i:]
}

var (
	errNoNumber = errors.New("it has no number")
	errZeroLead = errors.New("leading zero: remove it")
	errNegative = errors.New("it is negative")
	errFraction = errors.New("only whole numbers are read, use a smaller unit")
	errBadDigit = errors.New("a number is digits only, without sign, comma or underscore")
	errTooLarge = errors.New("the number is too large")
)

// parseWhole reads a number from 0 up, of digits alone. 010 is refused, for
// some readers make it 8.
func parseWhole(s string) (int64, error) {
	switch {
	case s == "":
		return 0, errNoNumber
	case s[0] == '-':
		return 0, errNegative
	case strings.Contains(s, "."):
		return 0, errFraction
	case strings.Trim(s, "0123456789") != "":
		return 0, errBadDigit
	case len(s) > 1 && s[0] == '0':
		return 0, errZeroLead
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errTooLarge
	}
	return n, nil
}

// mul multiplies two numbers that are not negative; ok is false past int64.
func mul(a, b int64) (product int64, ok bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int64(lo), hi == 0 && lo>>63 == 0
}

// moreThan reports a·b > c·d for numbers that are not negative, without
// overflow.
func moreThan(a, b, c, d int64) bool {
	hi1, lo1 := bits.Mul64(uint64(a), uint64(b))
	hi2, lo2 := bits.Mul64(uint64(c), uint64(d))
	return hi1 > hi2 || hi1 == hi2 && lo1 > lo2
}
