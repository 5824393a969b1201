package config

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseRate(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Rate
		text string
	}{
		{"100/s", Rate{100, time.Second, Count}, "100/s"},
		// RC-091: no unit is rounded to a second.
		{"5/min", Rate{5, time.Minute, Count}, "5/min"},
		{"3/day", Rate{3, day, Count}, "3/day"},
		{"3/d", Rate{3, day, Count}, "3/day"},
		{"1/h", Rate{1, time.Hour, Count}, "1/h"},
		{"10/250ms", Rate{10, 250 * time.Millisecond, Count}, "10/250ms"},
		{"1/365d", Rate{1, year, Count}, "1/365d"},
		{"1/2s", Rate{1, 2 * time.Second, Count}, "1/2s"},
		{"10/1000ms", Rate{10, time.Second, Count}, "10/s"},
		{"60/60min", Rate{60, time.Hour, Count}, "60/h"},
		// RC-055: the highest that are exact.
		{"999999/s", Rate{999_999, time.Second, Count}, "999999/s"},
		{"1000001/s", Rate{1_000_001, time.Second, Count}, "1000001/s"},
		{"5000000/s", Rate{5_000_000, time.Second, Count}, "5000000/s"},
		{"10000000/s", Rate{10_000_000, time.Second, Count}, "10000000/s"},
		{"100000000/s", Rate{100_000_000, time.Second, Count}, "100000000/s"},
		{"100000/ms", Rate{100_000, time.Millisecond, Count}, "100000/ms"},
		{"8640000000000/day", Rate{8_640_000_000_000, day, Count}, "8640000000000/day"},

		{"2Mbit/s", Rate{250_000, time.Second, Bytes}, "2Mbit/s"},
		{"10MB/s", Rate{10_000_000, time.Second, Bytes}, "10MB/s"},
		{"100kB/s", Rate{100_000, time.Second, Bytes}, "100kB/s"},
		{"64KiB/s", Rate{65_536, time.Second, Bytes}, "64KiB/s"},
		{"8kbit/s", Rate{1000, time.Second, Bytes}, "1kB/s"},
		{"400Gbit/s", Rate{50_000_000_000, time.Second, Bytes}, "50GB/s"},
		{"100Mbit/s", Rate{12_500_000, time.Second, Bytes}, "100Mbit/s"},
		{"100MB/min", Rate{100_000_000, time.Minute, Bytes}, "100MB/min"},
		// No whole number of bytes in the interval written: a longer one.
		{"8004bit/s", Rate{2001, 2 * time.Second, Bytes}, "2001B/2s"},
		{"9001bit/s", Rate{9001, 8 * time.Second, Bytes}, "9001B/8s"},
	} {
		got, err := parseRate(tc.in)
		if err != nil || got != tc.want {
			t.Errorf("parseRate(%q) = %+v, %v; want %+v", tc.in, got, err, tc.want)
			continue
		}
		if got.String() != tc.text {
			t.Errorf("parseRate(%q).String() = %q, want %q", tc.in, got, tc.text)
		}
	}
}

func TestParseRateRefuses(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", "an amount and an interval"},
		{"/", "no number"},
		{"5", "5/s or 5/min"},
		{"5/", "no unit of time"},
		{"/s", "no number"},
		{"5/2", "no unit of time"},
		{"010/s", "leading zero"},
		{"0x10/s", "unknown unit"},
		{"1e3/s", "unknown unit"},
		{"1_000/s", "digits only"},
		{"1,000/s", "digits only"},
		{"+5/s", "digits only"},
		{"5/s/s", "unknown unit"},
		{"5 /s", "unknown unit"},
		{"5/ s", "unknown unit"},
		{"5/min ", "unknown unit"},
		// RC-022
		{"0/s", "write 1/s or more"},
		{"0/5min", "write 1/5min or more"},
		{"-5/s", "negative"},
		{"5/0s", "interval is 0"},
		{"0Mbit/s", "write 1Mbit/s or more"},
		// RC-055
		{"100000001/s", "fastest is 100000000/s"},
		{"1000000000/s", "fastest is 100000000/s"},
		{"1000000001/s", "fastest is 100000000/s"},
		{"100001/ms", "fastest"},
		{"9223372036854775807/365d", "fastest"},
		{"9223372036854775808/s", "too large"},
		{"401Gbit/s", "fastest is 400Gbit/s"},
		{"9223372036854775807GB/s", "fastest is 400Gbit/s"},
		{"7999bit/s", "slowest is 8kbit/s"},
		{"1kbit/s", "slowest is 8kbit/s"},
		// RC-091
		{"1/366d", "longest is 365d"},
		{"1/year", "write 365d"},
		{"1/999999999999999999d", "longest is 365d"},
		{"0.5/s", "write 1/2s"},
		{"1.5/min", "write 3/2min"},
		{"2.50/s", "write 5/2s"},
		{"0.001/s", "write 1/1000s"},
		{"0.0/s", "whole numbers"},
		{"5/m", "write min"},
		{"5/M", "write min"},
		{"5/S", "write s"},
		{"5/sec", "write s"},
		{"5/minute", "write min"},
		{"5/week", "write 7d"},
		{"5/us", "write ms"},
		{"10Mb/s", "write Mbit or MB"},
		{"10mbit/s", "write Mbit"},
		{"10Mbps", "write 10Mbit/s"},
		{"100rps", "write 100/s"},
		{"10mb/s", "write Mbit or MB"},
		{"20k/s", "write 20000/s, or 20kB/s for bytes"},
		{"2M/min", "write 2000000/min, or 2MB/min for bytes"},
		{"lots", "an amount and an interval"},
		{strings.Repeat("9", 10000) + "/s", "too large"},
	} {
		got, err := parseRate(tc.in)
		if err == nil {
			t.Errorf("parseRate(%.40q) = %v, want an error", tc.in, got)
			continue
		}
		if msg := err.Error(); !strings.Contains(msg, tc.want) || len(msg) > 300 {
			t.Errorf("parseRate(%.40q): %s; want %q in it", tc.in, msg, tc.want)
		}
	}
}

// drawRate draws a rate as a file may have it.
func drawRate(t *rapid.T, unit Unit) Rate {
	amount := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, 1_000_000_000_000))
	every := rapid.Int64Range(1, 100)
	for {
		i := rapid.IntRange(0, len(timeUnits)-1).Draw(t, "unit")
		r := Rate{amount.Draw(t, "amount"), time.Duration(every.Draw(t, "every")) * timeUnits[i].d, unit}
		most := int64(fastestCount)
		if unit == Bytes {
			most = fastestBytes
		}
		slow := moreThan(slowestBytes, int64(r.Interval), r.Amount, int64(time.Second))
		if !r.over(most) && (unit == Count || !slow) {
			return r
		}
	}
}

func TestRateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRate(t, rapid.SampledFrom([]Unit{Count, Bytes}).Draw(t, "what"))
		got, err := parseRate(want.String())
		if err != nil || got != want {
			t.Fatalf("%+v is %q, which reads back as %+v, %v", want, want, got, err)
		}
	})
}
