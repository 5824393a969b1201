package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

func verdicts(checks []check) map[string]bool {
	held := make(map[string]bool)
	for _, c := range checks {
		held[c.What] = c.OK
	}
	return held
}

// The control: the same traffic without Headgate must not pass the checks,
// except those that only a gate can spoil.
func TestWithoutGateTheChecksFail(t *testing.T) {
	n := rig.Net(t)
	l := n.Links[0]
	p := newPlan(2 * time.Second)
	p.Attacker, p.Good, p.Caller = l.Peer.IPv4.Next(), l.Peer.IPv4, l.Peer.IPv4
	ln, err := rig.Listen(n.Gate, "tcp", l.Gate.IPv4.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })

	traffic, err := newTraffic(p, l, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r, err := traffic.run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{
		"flood cut to its rate within 3 %": false,
		"good client loses no packet":      true,
		"good client gets every page":      true,
		"API key's excess is answered 429": false,
		"Retry-After is true":              false,
	}
	got := verdicts(p.checks(r))
	for what, holds := range want {
		if got[what] != holds {
			t.Errorf("%q holds: %v, want %v", what, got[what], holds)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d checks, want %d", len(got), len(want))
	}
}

// good is a result that passes every check.
func good(p plan) result {
	start := time.Unix(1e9, 0)
	sent := func(rate float64) rig.Sent {
		return rig.Sent{Packets: uint64(rate * p.Duration.Seconds()), First: start, Last: start.Add(p.Duration)}
	}
	return result{
		flood: sent(p.FloodRate), calm: sent(p.CalmRate),
		arrived: rig.Report{Flows: map[rig.Flow]rig.Tally{
			{Source: p.Attacker}: {Packets: uint64(p.packetsIn(p.Duration))},
			{Source: p.Good}:     {Packets: sent(p.CalmRate).Packets},
		}},
		pages:    answers{Served: 200, First: start, Last: start.Add(p.Duration)},
		greedy:   answers{Served: 9, Refused: 90, First: start, Last: start.Add(p.Duration)},
		patience: patience{done: true, retryAfter: 3 * time.Second, early: 429, due: 200},
	}
}

func TestEachFaultFailsItsCheck(t *testing.T) {
	p := newPlan(20 * time.Second)
	arrived := func(r *result, flow rig.Flow, change func(*rig.Tally)) {
		tally := r.arrived.Flows[flow]
		change(&tally)
		r.arrived.Flows[flow] = tally
	}
	attacker, calm := rig.Flow{Source: p.Attacker}, rig.Flow{Source: p.Good}
	tests := []struct {
		name  string
		spoil func(r *result)
		fails string
	}{
		{"nothing", func(*result) {}, ""},
		{"flood 2.9 % over", func(r *result) { arrived(r, attacker, func(t *rig.Tally) { t.Packets = 43218 }) }, ""},
		{"flood 3.1 % over", func(r *result) { arrived(r, attacker, func(t *rig.Tally) { t.Packets = 43302 }) }, "flood"},
		{"flood 3.1 % under", func(r *result) { arrived(r, attacker, func(t *rig.Tally) { t.Packets = 40698 }) }, "flood"},
		{"no flood", func(r *result) { r.flood.Packets = 0 }, "flood"},
		{"one packet lost", func(r *result) { arrived(r, calm, func(t *rig.Tally) { t.Packets-- }) }, "loses"},
		{"one lost, one twice", func(r *result) { arrived(r, calm, func(t *rig.Tally) { t.Missing, t.Duplicates = 1, 1 }) }, "loses"},
		{"a page refused", func(r *result) { r.pages.Refused = 1 }, "page"},
		{"a page failed", func(r *result) { r.pages.Other = 1 }, "page"},
		{"no page", func(r *result) { r.pages.Served = 0 }, "page"},
		{"key served once more", func(r *result) { r.greedy.Served = 10 }, "key"},
		{"key served too little", func(r *result) { r.greedy.Served = 7 }, "key"},
		{"key refused without Retry-After", func(r *result) { r.greedy.Other = 1 }, "key"},
		{"key never refused", func(r *result) { r.greedy.Refused = 0 }, "key"},
		{"Retry-After too long", func(r *result) { r.patience.early = 200 }, "Retry-After is"},
		{"Retry-After too short", func(r *result) { r.patience.due = 429 }, "Retry-After is"},
		{"Retry-After not tried", func(r *result) { r.patience = patience{} }, "Retry-After is"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := good(p)
			tt.spoil(&r)
			for _, c := range p.checks(r) {
				want := tt.fails == "" || !strings.Contains(c.What, tt.fails)
				if c.OK != want {
					t.Errorf("%q holds: %v, want %v (%s)", c.What, c.OK, want, c.Found)
				}
			}
		})
	}
}

func TestReportFails(t *testing.T) {
	var out strings.Builder
	if report(&out, []check{{What: "a", OK: true}, {What: "b"}}) {
		t.Error("a failed check was reported as success")
	}
	if !strings.Contains(out.String(), "FAIL  b") {
		t.Errorf("no FAIL line in %q", out.String())
	}
	if !report(&out, []check{{What: "a", OK: true}}) {
		t.Error("only good checks were reported as failure")
	}
}
