package config

import "testing"

// TestWorstCase is RC-118: a bucket admits burst + rate·T, and the words say so.
func TestWorstCase(t *testing.T) {
	for _, tc := range []struct{ rule, want string }{
		{"{name: a, per: client, rate: 5/min, burst: 5}", "5/min, burst 5: up to 10 in the first minute, then 5/min"},
		{"{name: a, per: client, rate: 10/s, burst: 10}", "10/s, burst 10: up to 20 in the first second, 610 in the first minute, then 10/s"},
		{"{name: a, per: client, rate: 10/250ms, burst: 1}", "10/250ms, burst 1: up to 11 in the first 250 ms, 2401 in the first minute, then 10/250ms"},
		{"{name: a, per: client, rate: 3/day}", "3/day, burst 3: up to 6 in the first day, then 3/day"},
		{"{name: a, per: client, rate: 1/2h}", "1/2h, burst 1: up to 2 in the first 2 hours, then 1/2h"},
		{"{name: a, per: source, rate: 20000/s, burst: 40000}", "20000/s, burst 40000: up to 60000 in the first second, 1240000 in the first minute, then 20000/s"},
		{"{name: a, per: source, rate: 2Mbit/s, burst: 256kB}", "2Mbit/s, burst 256kB: up to 506kB in the first second, 15256kB in the first minute, then 2Mbit/s"},
		{"{name: a, per: client, limit: 5/min}", "limit 5/min: up to 5 in any minute"},
		{"{name: a, per: client, limit: 500/15min}", "limit 500/15min: up to 500 in any 15 minutes"},
		{"{name: a, per: client, limit: 5/min, mode: watch}", "limit 5/min: up to 5 in any minute (watch: counted, not refused)"},
		{"{name: a, per: key, rate: 10/min, anonymous: {rate: 1/min}}",
			"10/min, burst 10: up to 20 in the first minute, then 10/min; without a key, per client: 1/min, burst 1: up to 2 in the first minute, then 1/min"},
		{"{name: a, per: client, rate: 100000000/s, burst: 3153600000000000}",
			"100000000/s, burst 3153600000000000: up to 3153600100000000 in the first second, 3153606000000000 in the first minute, then 100000000/s"},
		{"{name: a, per: source, rate: 10/s, unknown: 50000/s}",
			"10/s, burst 10: up to 20 in the first second, 610 in the first minute, then 10/s; sources without a bucket together: 50000/s, burst 50000: up to 100000 in the first second, 3050000 in the first minute, then 50000/s"},
		{"{name: a, per: source, rate: 5/min, then: {block: 60s, after: 100/1s}}",
			"5/min, burst 5: up to 10 in the first minute, then 5/min; a source refused more than 100 times at once, or faster than 100/s, is blocked for 1min"},
		{"{name: a, per: source, rate: 5/min, mode: watch, then: {block: 60s, after: 100/1s}}",
			"5/min, burst 5: up to 10 in the first minute, then 5/min (watch: counted, not refused)"},
		{"{name: a, per: destination, rate: 5/min, overrides: [{from: [192.0.2.0/24, office], rate: 1/min}, {from: [10.0.0.0/9, 11.0.0.0/8, 12.0.0.0/8, 13.0.0.0/8, 14.0.0.0/8], rate: 2/min, burst: 1}]}",
			"5/min, burst 5: up to 10 in the first minute, then 5/min; from 192.0.2.0/24 and office: 1/min, burst 1: up to 2 in the first minute, then 1/min; from 10.0.0.0/9, 11.0.0.0/8, 12.0.0.0/8, 13.0.0.0/8 and 1 more: 2/min, burst 1: up to 3 in the first minute, then 2/min"},
	} {
		if got := WorstCase(mustRule(t, tc.rule)); got != tc.want {
			t.Errorf("%s\n got: %s\nwant: %s", tc.rule, got, tc.want)
		}
	}
}
