package main

import (
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

const (
	packetRounds = 7
	packetRuns   = 400_000
	liveSlots    = 1 << 22 // 1 M live sources at a quarter of the table
	newSlots     = 1 << 20 // the default, and as many entries as the LRU hash
)

// packetCase is one load on every contender.
type packetCase struct {
	name    string
	sources uint64 // 0: every packet a new source
	cpus    int
}

var packetCases = []packetCase{
	{"1k sources", 1_000, 1},
	{"100k sources", 100_000, 1},
	{"1M sources", 1_000_000, 1},
	{"new sources", 0, 1},
	{"new sources, 2 CPUs", 0, 2},
}

// contender is one program under one load.
type contender struct {
	name     string
	program  *ebpf.Program
	programs *spray.Programs
	best     time.Duration
}

// packetPart measures what the whole path costs a packet, in test runs: the
// network gate with one rule, the same with its buckets in an LRU hash, and
// programs that only drop. All but the first write a source into the frame
// before; what that costs is the bare program's.
func packetPart() ([]Result, error) {
	if err := rig.Privileged(); err != nil {
		return nil, err
	}
	// slow enough that every source stays live over the whole run
	live, err := newPacketBench(liveSlots, config.Rate{Amount: 1, Interval: 20 * time.Second, Unit: config.Count}, 1000)
	if err != nil {
		return nil, err
	}
	defer live.close()
	fresh, err := newPacketBench(newSlots, config.Rate{Amount: 100, Interval: time.Second, Unit: config.Count}, 100)
	if err != nil {
		return nil, err
	}
	defer fresh.close()
	all, err := fresh.single()
	if err != nil {
		return nil, err
	}
	for _, c := range packetCases {
		b := live
		if c.sources == 0 {
			b = fresh
		}
		results, err := b.measure(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		all = append(all, results...)
	}
	verified, err := live.verified()
	if err != nil {
		return nil, err
	}
	return append(all, verified), nil
}

type packetBench struct {
	gate       *maps.Gate
	table, lru *spray.Programs
	drop       *ebpf.Program
	frame      []byte
}

func newPacketBench(slots uint32, rate config.Rate, burst int64) (*packetBench, error) {
	b := &packetBench{}
	var err error
	if b.gate, err = maps.Open(maps.Options{Slots: slots}); err != nil {
		return nil, err
	}
	rule := config.Rule{
		Name: "bench", Gate: config.GateNetwork, Per: []config.Per{config.PerSource},
		Algorithm: config.TokenBucket, Mode: config.Enforce,
		Match: config.Match{Protocol: "udp", Ports: []config.PortRange{{First: 9000, Last: 9000}}},
		Rate:  rate, Burst: burst,
	}
	if err := b.gate.SetRules([]config.Rule{rule}, config.Management{}); err != nil {
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
		SrcPort: 1024, DstPort: 9000, Unmarked: true,
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
func (b *packetBench) single() ([]Result, error) {
	contenders := []*contender{
		{name: "drop", program: b.drop},
		{name: "gate", program: b.gate.Program(false)},
		{name: "gate, frags", program: b.gate.Program(true)},
	}
	if err := interleave(contenders, 1, b.frame); err != nil {
		return nil, err
	}
	return results("1 source", contenders), nil
}

func (b *packetBench) measure(c packetCase) ([]Result, error) {
	contenders := []*contender{
		{name: "drop", program: b.table.Bare, programs: b.table},
		{name: "gate", program: b.table.Gate, programs: b.table},
		{name: "gate on LRU_HASH", program: b.lru.Gate, programs: b.lru},
	}
	for _, x := range contenders {
		if err := c.prepare(x, b.frame); err != nil {
			return nil, err
		}
	}
	if err := interleave(contenders, c.cpus, b.frame); err != nil {
		return nil, err
	}
	all := results(c.name, contenders)
	// what the bucket costs, net of the harness, against LRU's
	net := func(i int) float64 { return all[i].Value - all[0].Value }
	return append(all, Result{
		Name: c.name + ": gate on LRU_HASH, net of drop", Value: net(2), Unit: "ns",
		Ratio: net(2) / net(1), To: c.name + ": gate, net of drop",
	}), nil
}

// prepare brings every source of the case into the table, more than once, so
// that what is measured is a table in its steady state.
func (c packetCase) prepare(x *contender, frame []byte) error {
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

// interleave runs the contenders in turn and keeps the best round of each. With
// several CPUs all run at once, and the slowest counts.
func interleave(contenders []*contender, cpus int, frame []byte) error {
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
		for _, x := range contenders {
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

func results(name string, contenders []*contender) []Result {
	var all []Result
	for i, x := range contenders {
		r := Result{Name: name + ": " + x.name, Value: float64(x.best.Nanoseconds()), Unit: "ns/packet"}
		if i > 0 {
			r.Ratio, r.To = float64(x.best)/float64(contenders[0].best), name+": "+contenders[0].name
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
