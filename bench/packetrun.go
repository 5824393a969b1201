package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/internal/spray"
	"github.com/headgate/headgate/maps"
)

// runner is one program under one load.
type runner struct {
	name     string
	program  *ebpf.Program
	programs *spray.Programs
	best     time.Duration
}

type packetBench struct {
	gate       *maps.Gate
	table, lru *spray.Programs
	drop       *ebpf.Program
	frame      []byte
}

func newPacketBench(slots uint32, rules ...config.Rule) (*packetBench, error) {
	return newListedBench(slots, nil, rules...)
}

// newListedBench makes a gate that also blocks prefixes.
func newListedBench(slots uint32, listed []netip.Prefix, rules ...config.Rule) (*packetBench, error) {
	b := &packetBench{}
	var err error
	if b.gate, err = maps.Open(maps.Options{Slots: slots}); err != nil {
		return nil, err
	}
	if err := b.gate.SetRules(rules, config.Management{}, nil); err != nil {
		return nil, err
	}
	// before the programs are loaded, which read the tables as they are then
	if err := block(b.gate, listed); err != nil {
		return nil, err
	}
	if b.table, err = spray.OnTable(b.gate, maps.ClockMeasured); err != nil {
		return nil, err
	}
	if b.lru, err = spray.OnLRU(b.gate, maps.ClockMeasured); err != nil {
		return nil, err
	}
	if b.drop, err = bareDrop(); err != nil {
		return nil, err
	}
	b.frame, err = rig.Packet{
		Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("192.0.2.1"),
		SrcPort: 1024, DstPort: benchPort, Unmarked: true,
	}.Frame()
	return b, err
}

func (b *packetBench) close() {
	b.drop.Close()
	b.lru.Close()
	b.table.Close()
	b.gate.Close()
}

// single compares the very program that is attached, on one source, with a
// program that only drops.
func (b *packetBench) single(ctx context.Context) ([]Result, error) {
	runners := []*runner{
		{name: "drop", program: b.drop},
		{name: "gate", program: b.gate.Program(false)},
		{name: "gate, frags", program: b.gate.Program(true)},
	}
	if err := interleave(ctx, runners, 1, b.frame); err != nil {
		return nil, err
	}
	return results("1 source", runners), nil
}

func (b *packetBench) measure(ctx context.Context, c packetCase) ([]Result, error) {
	runners := []*runner{
		{name: "drop", program: b.table.Bare, programs: b.table},
		{name: "gate", program: b.table.Gate, programs: b.table},
	}
	// with more sources the LRU hash would forget, and be another thing than
	// the table: what forgetting costs is in the cases of new sources
	withLRU := c.sources <= lruEntries
	if withLRU {
		runners = append(runners, &runner{name: "gate on LRU_HASH", program: b.lru.Gate, programs: b.lru})
	}
	for _, x := range runners {
		if err := c.prepare(x, b.frame); err != nil {
			return nil, err
		}
	}
	if err := interleave(ctx, runners, c.cpus, b.frame); err != nil {
		return nil, err
	}
	all := results(c.name, runners)
	if !withLRU {
		return all, nil
	}
	// what the bucket costs, net of the harness, against LRU's
	net := func(i int) float64 { return all[i].Value - all[0].Value }
	return append(all, Result{
		Name: c.name + ": gate on LRU_HASH, net of drop", Value: net(2), Unit: "ns",
		Ratio: net(2) / net(1), To: c.name + ": gate, net of drop",
	}), nil
}

// prepare brings every source of the case into the table, more than once, so
// that what is measured is a table in its steady state.
func (c packetCase) prepare(x *runner, frame []byte) error {
	if c.sources == 0 {
		return x.programs.Sequence(func(cpu int) uint64 { return uint64(cpu) << 22 })
	}
	if err := x.programs.Sequence(func(int) uint64 { return 0 }); err != nil {
		return err
	}
	if _, err := spray.Run(x.program, frame, 0, int(c.sources)); err != nil {
		return err
	}
	return x.programs.Random(c.sources)
}

// interleave runs the runners in turn and keeps the best round of each. With
// several CPUs all run at once, and the slowest counts.
func interleave(ctx context.Context, runners []*runner, cpus int, frame []byte) error {
	list := make([]int, cpus)
	for i := range list {
		list[i] = i
	}
	w, err := spray.NewWorkers(list...)
	if err != nil {
		return err
	}
	defer w.Close()
	for range packetRounds {
		for _, x := range runners {
			if err := ctx.Err(); err != nil {
				return err
			}
			d, err := runOn(w, x.program, cpus, frame)
			if err != nil {
				return err
			}
			if x.best == 0 || d < x.best {
				x.best = d
			}
		}
	}
	return nil
}

func runOn(w *spray.Workers, program *ebpf.Program, cpus int, frame []byte) (time.Duration, error) {
	times := make([]time.Duration, cpus)
	err := w.Together(func(i int) (err error) {
		_, times[i], err = program.Benchmark(frame, packetRuns, nil)
		return err
	})
	return slices.Max(times), err
}

func results(name string, runners []*runner) []Result {
	var all []Result
	for i, x := range runners {
		r := Result{Name: name + ": " + x.name, Value: float64(x.best.Nanoseconds()), Unit: "ns/packet"}
		if i > 0 {
			r.Ratio, r.To = float64(x.best)/float64(runners[0].best), name+": "+runners[0].name
		}
		all = append(all, r)
	}
	return all
}

// verified is how many instructions the verifier walked: a million is the
// kernel's limit.
func (b *packetBench) verified() (Result, error) {
	info, err := b.gate.Program(true).Info()
	if err != nil {
		return Result{}, err
	}
	n, ok := info.VerifiedInstructions()
	if !ok {
		fmt.Fprintln(os.Stderr, "the kernel does not tell how many instructions it verified")
	}
	return Result{Name: "verified instructions", Value: float64(n), Unit: "instructions", Ratio: float64(n) / 1e6, To: "kernel limit"}, nil
}
