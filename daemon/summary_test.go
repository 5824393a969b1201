package daemon

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// RC-099: what was refused since the last summary is one line, however much it
// was: counts, reasons and the rules that refused most.
func TestSummary(t *testing.T) {
	look := func(dropped, blocked, requests uint64, rules ...uint64) refusals {
		s := Status{Network: NetworkStatus{Reasons: []Reason{
			{Verdict: "pass", Reason: "no_rule", Packets: 1 << 40},
			{Verdict: "drop", Reason: "rate", Packets: dropped},
			{Verdict: "drop", Reason: "blocked", Packets: blocked},
		}}}
		s.HTTP.Answers = map[string]uint64{"200": 1 << 40, "429": requests}
		for i, n := range rules {
			s.Rules = append(s.Rules, Rule{Name: fmt.Sprintf("r%d", i), Packets: &Verdicts{Passed: 1 << 40, Refused: n}})
		}
		return refusalsOf(s)
	}
	for _, c := range []struct {
		name     string
		old, now refusals
		want     []any
	}{
		{"quiet", look(5, 5, 5, 5), look(5, 5, 5, 5), nil},
		{"both gates", look(5, 0, 5, 5, 0), look(6_000_005, 7, 120_005, 6_000_005, 120_000),
			[]any{"packets", uint64(6_000_007), "reasons", "rate 6000000, blocked 7", "requests", uint64(120_000), "rules", "r0 6000000, r1 120000"}},
		{"counters that began anew", look(0, 0, 100, 100), look(0, 0, 3, 3),
			[]any{"packets", uint64(0), "requests", uint64(3), "rules", "r0 3"}},
		{"many rules", look(0, 0, 0), look(28, 0, 0, 1, 2, 3, 4, 5, 6, 7),
			[]any{"packets", uint64(28), "reasons", "rate 28", "requests", uint64(0), "rules", "r6 7, r5 6, r4 5, r3 4, r2 3, and 2 more"}},
	} {
		if diff := cmp.Diff(c.want, c.now.since(c.old).attrs()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
