package main

import (
	"testing"
	"time"

	"github.com/headgate/headgate/daemon"
)

// RC-068: what nothing has hit for long is found; what is young, or not in force,
// is not blamed for it.
func TestUnusedRules(t *testing.T) {
	now := time.Date(2026, 3, 31, 0, 0, 0, 0, time.UTC)
	day := func(n int) time.Time { return now.AddDate(0, 0, -n) }
	for name, c := range map[string]struct {
		r    daemon.Rule
		want bool
	}{
		"never hit":                {daemon.Rule{Since: day(60)}, true},
		"hit long ago":             {daemon.Rule{Since: day(60), LastHit: day(31)}, true},
		"hit of late":              {daemon.Rule{Since: day(60), LastHit: day(29)}, false},
		"young":                    {daemon.Rule{Since: day(29)}, false},
		"replaced of late":         {daemon.Rule{Since: day(60), Origin: daemon.Origin{At: day(2)}}, false},
		"added long ago":           {daemon.Rule{Since: day(60), Origin: daemon.Origin{At: day(61)}}, true},
		"not in force":             {daemon.Rule{Since: day(60), Aside: "why"}, false},
		"not known how long":       {daemon.Rule{}, false},
		"refused nothing, but hit": {daemon.Rule{Since: day(60), LastHit: day(1), LastRefused: day(50)}, false},
	} {
		if got := unusedSince(c.r, day(30)); got != c.want {
			t.Errorf("%s: unused is %v", name, got)
		}
	}
}
