package config

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want time.Duration
	}{
		{"1ms", time.Millisecond},
		{"250ms", 250 * time.Millisecond},
		{"60s", time.Minute},
		{"10m", 10 * time.Minute},
		{"5min", 5 * time.Minute},
		{"2h", 2 * time.Hour},
		{"1d", day},
		{"1day", day},
		{"36500d", 100 * year},
	} {
		if got, err := ParseDuration(tc.in); err != nil || got != tc.want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", tc.in, got, err, tc.want)
		}
	}
}

func TestParseDurationRefuses(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", "no number"},
		{"10", "write 10s or 10m"},
		{"m", "no number"},
		{"0s", "shortest is 1ms"},
		{"-5m", "negative"},
		{"+5m", "digits only"},
		{"1.5h", "whole numbers"},
		{"1_000s", "digits only"},
		{"010m", "leading zero"},
		{"1h30m", "unknown unit"},
		{"5 min", "unknown unit"},
		{"5Min", "write min"},
		{"5MS", "write ms"},
		{"3 weeks", "unknown unit"},
		{"3weeks", "write 7d"},
		{"5us", "write ms"},
		{"5sec", "write s"},
		{"36501d", "longest is 36500d"},
		{"99999999999999999999d", "too large"},
		{"9223372036854775807d", "longest"},
		{"for ever", "no number"},
	} {
		got, err := ParseDuration(tc.in)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("ParseDuration(%q) = %v, %v; want an error with %q", tc.in, got, err, tc.want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want int64
		err  string
	}{
		{"64kB", 64_000, ""}, {"64KiB", 65_536, ""}, {"1MB", 1e6, ""}, {"2MiB", 2 << 20, ""},
		{"1500B", 1500, ""}, {"1GB", 1e9, ""}, {"1GiB", 1 << 30, ""}, {"8kbit", 1000, ""},
		{"1500", 0, "write 1500B"},
		{"12bit", 0, "no whole number of bytes"},
		{"64Kb", 0, "write kbit or kB"},
		{"64kb", 0, "write kbit or kB"},
		{"64kib", 0, "write KiB"},
		{"64K", 0, "write kbit or kB"},
		{"64TB", 0, "unknown unit"},
		{"9223372036854775807GB", 0, "too much"},
		{"1.5MB", 0, "whole numbers"},
	} {
		got, err := parseBytes(tc.in)
		if tc.err == "" && (err != nil || got != tc.want) {
			t.Errorf("parseBytes(%q) = %d, %v; want %d", tc.in, got, err, tc.want)
		}
		if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("parseBytes(%q) = %d, %v; want an error with %q", tc.in, got, err, tc.err)
		}
	}
}

func TestMultiply(t *testing.T) {
	number := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, math.MaxInt64))
	rapid.Check(t, func(t *rapid.T) {
		a, b, c, d := number.Draw(t, "a"), number.Draw(t, "b"), number.Draw(t, "c"), number.Draw(t, "d")
		ab := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		cd := new(big.Int).Mul(big.NewInt(c), big.NewInt(d))
		if p, ok := mul(a, b); ok != ab.IsInt64() || ok && p != ab.Int64() {
			t.Fatalf("mul(%d, %d) = %d, %v", a, b, p, ok)
		}
		if moreThan(a, b, c, d) != (ab.Cmp(cd) > 0) {
			t.Fatalf("moreThan(%d, %d, %d, %d)", a, b, c, d)
		}
	})
}
