package maps_test

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/internal/spray"
	"github.com/headgate/headgate/maps"
)

// Two CPUs walk the same sources side by side, so that again and again both
// insert one source at the same moment. With a burst of 1 exactly one packet of
// each source passes: two buckets for one source would pass two.
func TestCPUsInsertOneSourceTogether(t *testing.T) {
	rig.RequireRoot(t)
	if runtime.NumCPU() < 2 {
		t.Skip("needs two CPUs to race")
	}
	g, err := maps.Open(maps.Options{Slots: 1 << 23})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	rule := config.Rule{
		Name: "once", Gate: config.GateNetwork, Per: []config.Per{config.PerSource},
		Algorithm: config.TokenBucket, Mode: config.Enforce,
		Rate: config.Rate{Amount: 1, Interval: time.Hour, Unit: config.Count}, Burst: 1,
	}
	if err := g.SetRules([]config.Rule{rule}, config.Management{}, nil); err != nil {
		t.Fatal(err)
	}
	p, err := spray.OnTable(g, maps.ClockExact)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	frame := rig.Packet{
		Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("192.0.2.1"),
		SrcPort: 1024, DstPort: 9000, Unmarked: true,
	}.MustFrame()

	w, err := spray.NewWorkers(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const rounds, perRound = 500, 300
	reached := uint64(0)
	for range rounds {
		start := reached
		if err := p.Sequence(func(int) uint64 { return start }); err != nil {
			t.Fatal(err)
		}
		err := w.Together(func(int) error {
			_, _, err := p.Gate.Benchmark(frame, perRound, nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		next, err := p.Next()
		if err != nil {
			t.Fatal(err)
		}
		// an interrupted run starts anew where it was: it reaches further
		reached = max(next[0], next[1])
	}
	counters, err := g.RuleCounters()
	if err != nil {
		t.Fatal(err)
	}
	table, err := g.Table()
	if err != nil {
		t.Fatal(err)
	}
	// by chance five sources may share a line: one of them loses its bucket, and
	// may pass again
	evicted := table.EvictedLive
	if evicted > 20 || table.Overflowed > 20 {
		t.Fatalf("the table is too small for this test: %+v", table)
	}
	c := counters["once"]
	if c.PassedPackets > reached+evicted+table.Overflowed {
		t.Errorf("%d packets of %d sources passed a limit of one each", c.PassedPackets, reached)
	}
	if c.PassedPackets+table.Contended < reached {
		t.Errorf("%d packets of %d sources passed, %d lost a race: some source got none", c.PassedPackets, reached, table.Contended)
	}
	if table.Live+evicted+table.Overflowed < c.PassedPackets || table.Live > reached {
		t.Errorf("%d live buckets for %d packets of %d sources", table.Live, c.PassedPackets, reached)
	}
	t.Logf("%d sources, %d contended, %d charged anew", reached, table.Contended, table.Recharged)
}
