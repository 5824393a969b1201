package main

import (
	"strings"
	"testing"
	"time"
)

func TestTerminalIsRedrawn(t *testing.T) {
	var out strings.Builder
	s := &screen{w: &out, terminal: true, plan: newPlan(20 * time.Second)}
	v := view{Elapsed: time.Second, Flood: flow{Sent: 20000, Passed: 4000}, Greedy: answers{Served: 3, Refused: 2, Other: 1}}
	s.show(v)
	first := out.String()
	s.show(v)
	if up, again := "\x1b[9A\x1b[J", out.String()[len(first):]; !strings.HasPrefix(again, up) || again[len(up):] != first {
		t.Errorf("second drawing is %q, want %q and then the first: %q", again, up, first)
	}
	rows := map[string]string{"attacker": "198.51.100.66 20000/s 2000/s 20000 4000 16000", "greedy key": "203.0.113.7 5/s 20/min 6 3 2"}
	for who, want := range rows {
		found := false
		for line := range strings.Lines(first) {
			rest, ok := strings.CutPrefix(strings.TrimSpace(line), who)
			found = found || ok && strings.Join(strings.Fields(rest), " ") == want
		}
		if !found {
			t.Errorf("no row %q: %q in\n%s", who, want, first)
		}
	}
}

func TestPipeGetsLines(t *testing.T) {
	var out strings.Builder
	s := &screen{w: &out, plan: newPlan(20 * time.Second)}
	s.show(view{Elapsed: time.Second, Flood: flow{Sent: 5, Passed: 7}})
	if got := out.String(); strings.Contains(got, "\x1b") || strings.Count(got, "\n") != 1 || !strings.Contains(got, "sent 5 passed 7 dropped 0") {
		t.Errorf("line is %q", got)
	}
}
