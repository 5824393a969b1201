package maps_test

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/internal/spray"
	"github.com/headgate/headgate/maps"
	"golang.org/x/sys/unix"
)

// window is one burst of packets: how many passed between two readings of
// CLOCK_MONOTONIC, taken by this test and not by the program.
type window struct {
	before, after time.Duration
	passed        uint64
}

// With the clock that ships: idle for 3 ms, then packets back to back, on one
// CPU and on two at once, a thousand times. In any time, over any number of
// these, no more pass than burst + rate·T; with the cached clock at most
// min(burst, 32) more a CPU for each idle time, as documented.
func TestExactness(t *testing.T) {
	rig.RequireRoot(t)
	cpus := min(runtime.NumCPU(), 2)
	possible, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	frame := rig.Packet{
		Src: netip.MustParseAddr("203.0.113.5"), Dst: netip.MustParseAddr("192.0.2.1"),
		SrcPort: 1024, DstPort: 9000, Unmarked: true,
	}.MustFrame()
	small := config.Rate{Amount: 20_000, Interval: time.Second, Unit: config.Count}
	large := config.Rate{Amount: 50_000, Interval: time.Second, Unit: config.Count}
	for _, c := range []struct {
		name    string
		clock   maps.Clock
		rate    config.Rate
		burst   int64
		packets int
		cpus    int
		slack   int64 // packets a CPU and idle time
	}{
		{"exact, 1 CPU", maps.ClockExact, small, 16, 64, 1, 0},
		{"exact, 2 CPUs", maps.ClockExact, small, 16, 64, cpus, 0},
		{"cached clock, small burst, 2 CPUs", maps.ClockCached, small, 16, 64, cpus, 0},
		{"cached clock, 1 CPU", maps.ClockCached, large, int64(32 * possible), 128 * possible, 1, 32},
		{"cached clock, 2 CPUs", maps.ClockCached, large, int64(32 * possible), 64 * possible, cpus, 32},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := maps.Open(maps.Options{Slots: 4096, Clock: c.clock})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			if err := g.SetRules([]config.Rule{{
				Name: "r", Gate: config.GateNetwork, Per: []config.Per{config.PerSource},
				Algorithm: config.TokenBucket, Mode: config.Enforce, Rate: c.rate, Burst: c.burst,
			}}, config.Management{}, nil); err != nil {
				t.Fatal(err)
			}
			w, err := spray.NewWorkers([]int{0, 1}[:c.cpus]...)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			all := make([]window, 1000)
			for i := range all {
				time.Sleep(3 * time.Millisecond)
				all[i] = burst(t, g, w, frame, c.packets)
			}
			checkWindows(t, all, c.rate, c.burst, c.slack*int64(c.cpus))
		})
	}
}

// burst sends packets back to back on each CPU, all at once.
func burst(t *testing.T, g *maps.Gate, w *spray.Workers, frame []byte, packets int) window {
	t.Helper()
	before := passed(t, g)
	b := window{before: now(t)}
	// one run a packet: to repeat a run the kernel first waits for a grace
	// period, and the clock would not be stale any more
	err := w.Together(func(int) error {
		for range packets {
			if _, err := g.Program(true).Run(&ebpf.RunOptions{Data: frame}); err != nil {
				return err
			}
		}
		return nil
	})
	b.after = now(t)
	if err != nil {
		t.Fatal(err)
	}
	b.passed = passed(t, g) - before
	return b
}

func now(t *testing.T) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

func passed(t *testing.T, g *maps.Gate) uint64 {
	t.Helper()
	counters, err := g.RuleCounters()
	if err != nil {
		t.Fatal(err)
	}
	return counters["r"].PassedPackets
}

// checkWindows holds every span of bursts against the bound.
func checkWindows(t *testing.T, all []window, rate config.Rate, burst, slack int64) {
	t.Helper()
	total := uint64(0)
	for i := range all {
		total += all[i].passed
		passed := uint64(0)
		for j := i; j < len(all); j++ {
			passed += all[j].passed
			span := all[j].after - all[i].before
			bound := float64(burst) + float64(rate.Amount)*span.Seconds() + float64(slack*int64(j-i+1))
			if float64(passed) > bound {
				t.Fatalf("bursts %d to %d: %d passed in %v, the bound is %.1f", i, j, passed, span, bound)
			}
		}
	}
	// the other side: a full bucket gives its burst every time
	if least := uint64(burst) * uint64(len(all)); total < least {
		t.Errorf("%d passed in all, at least %d should have", total, least)
	}
}
