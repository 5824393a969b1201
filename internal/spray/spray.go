// Package spray runs the network gate on frames whose source changes with
// every run, inside the kernel: for benchmarks, and for tests in which CPUs
// race for buckets. It is no part of the product.
package spray

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/maps"
)

// Programs are one gate's program behind a source of sources.
type Programs struct {
	Bare     *ebpf.Program // writes the source and drops
	Gate     *ebpf.Program // writes the source and judges
	settings *ebpf.Map
	states   *ebpf.Map
}

type objects struct {
	Bare     *ebpf.Program `ebpf:"spray_bare"`
	Gate     *ebpf.Program `ebpf:"spray_gate"`
	Settings *ebpf.Map     `ebpf:"spray_settings"`
	States   *ebpf.Map     `ebpf:"spray_states"`
}

// OnTable loads the programs on g's maps.
func OnTable(g *maps.Gate, clock maps.Clock) (*Programs, error) {
	return load(loadTable, g, clock)
}

// OnLRU loads the programs on g's maps, but with the buckets in an LRU hash of
// 1 M entries.
func OnLRU(g *maps.Gate, clock maps.Clock) (*Programs, error) {
	return load(loadLru, g, clock)
}

func load(spec func() (*ebpf.CollectionSpec, error), g *maps.Gate, clock maps.Clock) (*Programs, error) {
	s, err := spec()
	if err != nil {
		return nil, fmt.Errorf("read the spray programs: %w", err)
	}
	var o objects
	if err := g.LoadBeside(s, &o, clock); err != nil {
		return nil, err
	}
	return &Programs{o.Bare, o.Gate, o.Settings, o.States}, nil
}

// Close lets go of the programs.
func (p *Programs) Close() {
	for _, c := range []interface{ Close() error }{p.Bare, p.Gate, p.settings, p.states} {
		c.Close()
	}
}

// Random makes every frame come from one of n sources, 10.0.0.0 and up.
func (p *Programs) Random(n uint64) error {
	return p.set(tableSpraySetting{Sources: n, Mode: 0}, func(int) uint64 { return 0 })
}

// Sequence makes the sources count up: CPU c starts at 10.0.0.0 + start(c).
func (p *Programs) Sequence(start func(cpu int) uint64) error {
	return p.set(tableSpraySetting{Mode: 1}, start)
}

func (p *Programs) set(s tableSpraySetting, start func(cpu int) uint64) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	states := make([]tableSprayState, cpus)
	for c := range states {
		states[c] = tableSprayState{Random: 0x9e3779b97f4a7c15 * uint64(c+1), Next: start(c)}
	}
	if err := p.settings.Put(uint32(0), &s); err != nil {
		return err
	}
	return p.states.Put(uint32(0), states)
}

// Run runs program on frame, times times, on one CPU, and returns what a run
// took.
func Run(program *ebpf.Program, frame []byte, cpu, times int) (d time.Duration, err error) {
	w, err := NewWorkers(cpu)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	err = w.Together(func(int) error {
		_, d, err = program.Benchmark(frame, times, nil)
		return err
	})
	return d, err
}

// Next returns the number of the source that each CPU comes to next.
func (p *Programs) Next() ([]uint64, error) {
	var states []tableSprayState
	if err := p.states.Lookup(uint32(0), &states); err != nil {
		return nil, err
	}
	next := make([]uint64, len(states))
	for c, s := range states {
		next[c] = s.Next
	}
	return next, nil
}
