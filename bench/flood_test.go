package main

import (
	"context"
	"errors"
	"math"
	"os/exec"
	"testing"

	"github.com/headgate/headgate/internal/rig"
)

// TestFloodContenders floods each contender for a moment and looks where the
// packets went: every one is counted once, by whoever dropped it.
func TestFloodContenders(t *testing.T) {
	rig.RequireRoot(t)
	cpus, err := twoCPUs()
	if err != nil {
		t.Skip(err)
	}
	for _, c := range contenders(true) {
		t.Run(c.name, func(t *testing.T) {
			if c.tool != "" {
				if _, err := exec.LookPath(c.tool); err != nil {
					t.Skipf("needs %s: %v (deploy/packages bench peers)", c.tool, err)
				}
			}
			target, err := newTarget(c, cpus[1])
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := target.close(); err != nil {
					t.Errorf("take %s off: %v", c.name, err)
				}
			})
			checkTarget(t, target, cpus[0])
		})
	}
}

const (
	smokeSources = 100
	smokeFrames  = 20_000
)

func checkTarget(t *testing.T, target *target, cpu int) {
	t.Helper()
	sender, err := newSender(target.wire, smokeSources, cpu)
	if err != nil {
		t.Fatal(err)
	}
	defer sender.close()
	s := &stream{target: target, sender: sender}
	start := s.look(t)
	s.drain(t)
	before := s.look(t)
	got, err := s.send(t.Context(), smokeFrames)
	if err != nil {
		t.Fatal(err)
	}
	after := s.look(t)

	if got.received+got.overrun != smokeFrames || got.received == 0 {
		t.Errorf("of %d frames %d were received and %d found the ring full", smokeFrames, got.received, got.overrun)
	}
	if got.cpu <= 0 {
		t.Errorf("%d packets took %v of CPU", got.received, got.cpu)
	}
	switch {
	case target.limits:
		if n := after.passed - start.passed; n != smokeSources*floodBurst {
			t.Errorf("%d packets of %d sources passed, want %d each", n, smokeSources, floodBurst)
		}
		fallthrough
	case target.guard.refused != nil:
		if got.passed != 0 {
			t.Errorf("%d of %d packets passed", got.passed, got.received)
		}
		if n := after.refused - before.refused; n != got.received {
			t.Errorf("it counts %d packets as dropped, want %d", n, got.received)
		}
	case target.guard.close != nil: // a program without a counter
		if got.stack != 0 {
			t.Errorf("%d of %d packets reached the stack", got.stack, got.received)
		}
	default:
		if got.passed != got.received {
			t.Errorf("%d of %d packets reached UDP", got.passed, got.received)
		}
	}
}

// drain floods until nothing passes. Where there is no limit it warms up.
func (s *stream) drain(t *testing.T) {
	t.Helper()
	if err := s.exhaust(t.Context(), smokeFrames); err != nil {
		t.Fatal(err)
	}
	if !s.limits {
		return
	}
	for range 100 {
		got, err := s.send(t.Context(), smokeFrames)
		if err != nil {
			t.Fatal(err)
		}
		if got.received > 20*smokeSources && got.passed == 0 {
			return
		}
	}
	t.Fatalf("%d sources still pass", smokeSources)
}

// look is what the wire and the guard have counted.
type look struct{ passed, refused uint64 }

func (s *stream) look(t *testing.T) (l look) {
	t.Helper()
	tally, err := s.wire.read()
	if err != nil {
		t.Fatal(err)
	}
	l.passed = tally.passed
	if s.guard.refused != nil {
		if l.refused, err = s.guard.refused(); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// TestFloodPart runs a tiny plan from end to end, and interrupted.
func TestFloodPart(t *testing.T) {
	rig.RequireRoot(t)
	cpus, err := twoCPUs()
	if err != nil {
		t.Skip(err)
	}
	f := &flood{plan: floodPlan{rounds: 2, round: 1, chunk: smokeFrames}, sendCPU: cpus[0]}
	defer func() {
		if err := f.close(); err != nil {
			t.Errorf("remove the flood: %v", err)
		}
	}()
	for _, c := range contenders(false)[:2] {
		if err := f.add(c, cpus[1]); err != nil {
			t.Fatal(err)
		}
	}
	results, err := f.measure(t.Context(), smokeSources)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range results {
		names = append(names, r.Name)
		if !(r.Value > 0) || r.To != "" && !(r.Ratio > 0) || math.IsInf(r.Ratio, 0) {
			t.Errorf("%+v is no measurement", r)
		}
	}
	if len(results) != 3 || results[1].To != results[0].Name {
		t.Errorf("results of %q, want two contenders, the second to the first, and the sender's rate", names)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.measure(ended, smokeSources); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, want %v", err, context.Canceled)
	}
}

// TestFloodRefusesWhatPasses: a limiter that limits nothing is no result.
func TestFloodRefusesWhatPasses(t *testing.T) {
	rig.RequireRoot(t)
	cpus, err := twoCPUs()
	if err != nil {
		t.Skip(err)
	}
	target, err := newTarget(contender{name: "open", install: guardNothing, limits: true}, cpus[1])
	if err != nil {
		t.Fatal(err)
	}
	defer target.close()
	sender, err := newSender(target.wire, smokeSources, cpus[0])
	if err != nil {
		t.Fatal(err)
	}
	defer sender.close()
	s := &stream{target: target, sender: sender}
	if err := s.measure(t.Context(), floodPlan{round: 1, chunk: smokeFrames}); err == nil {
		t.Errorf("measured %v ns for a packet that was not dropped", s.costs)
	}
}

func TestFloodRefusesBadSources(t *testing.T) {
	for _, sources := range []int{-1, 0, maxSources + 1} {
		if _, err := newSender(&wire{}, sources, 0); err == nil {
			t.Errorf("a sender of %d sources was made", sources)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 3, 100}, 3.5},
	} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}
