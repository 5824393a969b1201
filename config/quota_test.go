package config

import (
	"strings"
	"testing"
)

func TestQuotaText(t *testing.T) {
	for _, tc := range []struct{ in, text, worst string }{
		{
			"{name: a, per: key, quota: 1000/day}",
			"{name: a, per: key, quota: 1000/day, time_zone: UTC}",
			"quota 1000/day: up to 1000 in each calendar day in UTC",
		},
		{
			"{name: a, per: client, quota: 7000/week, time_zone: America/Sao_Paulo}",
			"{name: a, per: client, quota: 7000/week, time_zone: America/Sao_Paulo, anchor: monday}",
			"quota 7000/week: up to 7000 in each week from monday in America/Sao_Paulo",
		},
		{
			"{name: a, per: client, quota: 7000/week, anchor: Sunday}",
			"{name: a, per: client, quota: 7000/week, time_zone: UTC, anchor: sunday}",
			"quota 7000/week: up to 7000 in each week from sunday in UTC",
		},
		{
			"{name: a, per: key, quota: 9/month, anchor: 15, soft: 50%, anonymous: {quota: 2/month}}",
			"{name: a, per: key, quota: 9/month, time_zone: UTC, anchor: 15, anonymous: {per: client, quota: 2/month}, soft: 50%}",
			"quota 9/month: up to 9 in each month from day 15 in UTC; without a key, per client: quota 2/month: " +
				"up to 2 in each month from day 15 in UTC; up to 50% above it pass and are marked",
		},
		{
			"{name: a, per: client, limit: 5/min, algorithm: fixed-window, count_refused: true, memory: 16MiB}",
			"{name: a, per: client, limit: 5/min, algorithm: fixed-window, count_refused: true, memory: 16MiB}",
			"limit 5/min in fixed windows: up to 5 in each minute of the clock, and so 10 in a moment around its end; " +
				"what is refused counts too, so asking on keeps a client out",
		},
	} {
		r, err := ParseRule("rule", []byte(tc.in))
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
			continue
		}
		if r.Text != tc.text {
			t.Errorf("%s reads as\n%s, want\n%s", tc.in, r.Text, tc.text)
		}
		if got := strings.ReplaceAll(WorstCase(r), "`", ""); got != tc.worst {
			t.Errorf("%s: worst case\n%s, want\n%s", tc.in, got, tc.worst)
		}
	}
}

func TestCountingFaults(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"quota: 5/h", "1:28: rule \"a\": quota \"5/h\": a quota is per day, week or month, such as 1000/day"},
		{"quota: 5", "a quota is per day, week or month"},
		{"quota: 0/day", "quota \"0/day\": the amount is from 1 to 999999999999999"},
		{"quota: 1.5/day", "quota \"1.5/day\" is no amount and period: only whole numbers"},
		{"quota: 5/day, burst: 3", "a quota has no burst"},
		{"quota: 5/day, limit: 3/min", "`limit` and `quota` are two ways to count: remove one"},
		{"quota: 5/day, algorithm: fixed-window", "a quota counts by the calendar: remove `algorithm`"},
		{"quota: 5/day, time_zone: Sao_Paulo", "1:46: rule \"a\": time_zone \"Sao_Paulo\" is not known: write one of the IANA database"},
		{"quota: 5/day, time_zone: Local", "time_zone \"Local\" is not known"},
		{"quota: 5/day, anchor: 3", "a day has no `anchor`: it begins at midnight"},
		{"quota: 5/week, anchor: 3", "anchor \"3\": a week begins on a day such as monday or sunday"},
		{"quota: 5/month, anchor: 32", "anchor \"32\": a month begins on a day from 1 to 31"},
		{"quota: 5/month, anchor: 0", "a month begins on a day from 1 to 31"},
		{"rate: 5/s, time_zone: UTC", "`time_zone` is for a quota: write `quota:`, or remove it"},
		{"limit: 5/s, anchor: 3", "`anchor` is for a quota"},
		{"limit: 5/min, soft: 10%", "soft 10% of 5 is less than one request"},
		{"limit: 50/min, soft: 10%, anonymous: {limit: 5/min}", "soft 10% of 5 is less than one request"},
		{"limit: 50/min, soft: 10", "soft \"10\": write from 1% to 100%"},
		{"limit: 50/min, soft: 101%", "soft \"101%\": write from 1% to 100%"},
		{"limit: 50/min, memory: 1kB", "memory \"1kB\": give from 64KiB to 1024GiB"},
		{"limit: 50/min, memory: 16M", "memory"},
		{"limit: 50/min, count_refused: maybe", "count_refused"},
		{"quota: 50/week, anonymous: {quota: 5/day}", "the rule's quota is 50/week: write this one for the same period"},
		{"quota: 50/week, anonymous: {limit: 5/day}", "the rule has a quota: `anonymous` needs `quota` too"},
		{"gate: network, per: source, quota: 5/day", "`quota` is for the http gate"},
		{"gate: network, per: source, rate: 5/s, count_refused: true", "`count_refused` is for the http gate: remove it"},
		{"gate: network, per: source, rate: 5/s, soft: 10%", "`soft` is for the http gate: remove it"},
	} {
		in := "{name: a, per: key, " + tc.in + "}"
		if strings.HasPrefix(tc.in, "gate") {
			in = "{name: a, " + tc.in + "}"
		}
		r, err := ParseRule("r", []byte(in))
		if err == nil {
			t.Errorf("%s: accepted as %s", in, r.Text)
		} else if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", in, err, tc.want)
		}
	}
}
