package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/rig"
	"golang.org/x/sys/unix"
)

// floodPlan is how much the flood measures.
type floodPlan struct {
	sources []int // each a case, in rising order
	rounds  int
	round   time.Duration // how long a contender is flooded in a round, at least
	chunk   int           // frames sent between two looks at the clock
}

var fullFlood = floodPlan{
	sources: []int{1_000, 60_000},
	rounds:  7,
	round:   250 * time.Millisecond,
	chunk:   500_000,
}

// floodPart measures what a dropped packet costs the receiving side: the CPU
// time of the kernel thread that takes packets from the interface, for each
// that it took, while more are sent than it can take. Every source has spent
// what it may before, so that all is dropped. Sender and receiver have a CPU
// each, and every contender a pair of namespaces of its own.
func floodPart(ctx context.Context, o options) (results []Result, err error) {
	if err := rig.Privileged(); err != nil {
		return nil, err
	}
	cpus, err := twoCPUs()
	if err != nil {
		return nil, err
	}
	f := &flood{plan: fullFlood, sendCPU: cpus[0]}
	defer func() { err = errors.Join(err, f.close()) }()
	for _, c := range contenders(o.allPeers) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := f.add(c, cpus[1]); err != nil {
			return nil, err
		}
	}
	for _, sources := range f.plan.sources {
		measured, err := f.measure(ctx, sources)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", floodCase(sources), err)
		}
		results = append(results, measured...)
	}
	return results, nil
}

func floodCase(sources int) string {
	if sources%1000 == 0 {
		return fmt.Sprintf("flood, %dk sources", sources/1000)
	}
	return fmt.Sprintf("flood, %d sources", sources)
}

// twoCPUs returns two of those that this process may run on.
func twoCPUs() (cpus [2]int, err error) {
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		return cpus, fmt.Errorf("read own CPUs: %w", err)
	}
	found := 0
	for cpu := 0; cpu < len(own)*64 && found < len(cpus); cpu++ {
		if own.IsSet(cpu) {
			cpus[found] = cpu
			found++
		}
	}
	if found < len(cpus) {
		return cpus, fmt.Errorf("a flood needs two CPUs, one to send and one to receive: this process may use %d", found)
	}
	return cpus, nil
}

// flood is all contenders, each behind its own wire.
type flood struct {
	plan    floodPlan
	sendCPU int
	targets []*target
}

// target is one contender in place.
type target struct {
	contender
	wire  *wire
	guard guard
}

// add puts a contender in place. One that this host can't run is left out,
// with the reason.
func (f *flood) add(c contender, cpu int) error {
	t, err := newTarget(c, cpu)
	switch {
	case err == nil:
		f.targets = append(f.targets, t)
	case c.tool == "":
		return fmt.Errorf("%s: %w", c.name, err)
	default:
		fmt.Fprintf(os.Stderr, "bench: flood: %s is left out: %v\n", c.name, err)
	}
	return nil
}

func newTarget(c contender, cpu int) (*target, error) {
	if c.tool != "" {
		if _, err := exec.LookPath(c.tool); err != nil {
			return nil, fmt.Errorf("%w (deploy/packages bench peers)", err)
		}
	}
	w, err := newWire(cpu)
	if err != nil {
		return nil, err
	}
	g, err := c.install(w)
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return &target{c, w, g}, nil
}

func (t *target) close() error { return errors.Join(t.guard.end(), t.wire.close()) }

func (f *flood) close() error {
	var errs []error
	for _, t := range f.targets {
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}

// stream is one case on one target.
type stream struct {
	*target
	sender *sender
	costs  []float64 // ns of CPU a packet, a round each
	rate   float64   // frames a second that the sender made, in its slowest round
	spare  bool      // in every round some found the ring full
}

// measure floods every target from so many sources.
func (f *flood) measure(ctx context.Context, sources int) (_ []Result, err error) {
	var streams []*stream
	defer func() {
		for _, s := range streams {
			err = errors.Join(err, s.sender.close())
		}
	}()
	for _, t := range f.targets {
		if t.most > 0 && sources > t.most {
			fmt.Fprintf(os.Stderr, "bench: %s: %s is left out: it has no more than %d\n", floodCase(sources), t.name, t.most)
			continue
		}
		sender, err := newSender(t.wire, sources, f.sendCPU)
		if err != nil {
			return nil, err
		}
		s := &stream{target: t, sender: sender, spare: true}
		streams = append(streams, s)
		if err := s.exhaust(ctx, f.plan.chunk); err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	for range f.plan.rounds {
		for _, s := range streams {
			if err := s.measure(ctx, f.plan); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return floodResults(floodCase(sources), streams), nil
}

// exhaust floods until next to nothing passes. Where there is no limit (no
// filter) it only warms up.
func (s *stream) exhaust(ctx context.Context, chunk int) error {
	const most = 2000 // chunks
	for range most {
		t, err := s.send(ctx, chunk)
		if err != nil {
			return err
		}
		if !s.limits || exhausted(t) {
			return nil
		}
	}
	return fmt.Errorf("sources still pass after %d packets", most*chunk)
}

// exhausted: of a thousand packets at most one passed.
func exhausted(t tally) bool { return t.received > 0 && t.passed*1000 <= t.received }

// send sends n frames and returns what the receiver made of them.
func (s *stream) send(ctx context.Context, n int) (tally, error) {
	if err := ctx.Err(); err != nil {
		return tally{}, err
	}
	before, err := s.wire.read()
	if err != nil {
		return tally{}, err
	}
	if err := s.sender.send(n); err != nil {
		return tally{}, err
	}
	if err := s.wire.settle(); err != nil {
		return tally{}, err
	}
	after, err := s.wire.read()
	return after.since(before), err
}

// measure is one round.
func (s *stream) measure(ctx context.Context, p floodPlan) error {
	var sum tally
	var took time.Duration
	for start := time.Now(); took < p.round; took = time.Since(start) {
		t, err := s.send(ctx, p.chunk)
		if err != nil {
			return err
		}
		sum = sum.plus(t)
	}
	if sum.received == 0 {
		return errors.New("no packet arrived")
	}
	if s.limits && !exhausted(sum) {
		return fmt.Errorf("%d of %d packets passed: what was measured is no drop", sum.passed, sum.received)
	}
	s.costs = append(s.costs, float64(sum.cpu.Nanoseconds())/float64(sum.received))
	rate := float64(sum.received+sum.overrun) / took.Seconds()
	if s.rate == 0 || rate < s.rate {
		s.rate = rate
	}
	s.spare = s.spare && sum.overrun > 0
	return nil
}

// floodResults are medians over the rounds, of the costs and of their ratios to
// the first stream's in the same round, and how fast the sender was.
func floodResults(name string, streams []*stream) []Result {
	var all []Result
	slowest := streams[0].rate
	for i, s := range streams {
		r := Result{Name: name + ": " + s.name, Value: median(s.costs), Unit: "ns CPU/packet"}
		if i > 0 {
			r.Ratio, r.To = median(ratios(s.costs, streams[0].costs)), all[0].Name
		}
		all = append(all, r)
		slowest = min(slowest, s.rate)
		if !s.spare {
			fmt.Fprintf(os.Stderr, "bench: %s: %s took all that was sent: with a faster sender it may cost less\n", name, s.name)
		}
	}
	return append(all, Result{Name: name + ": sent, at least", Value: slowest / 1e6, Unit: "million/s"})
}

func ratios(of, to []float64) []float64 {
	list := make([]float64, len(of))
	for i := range of {
		list[i] = of[i] / to[i]
	}
	return list
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
