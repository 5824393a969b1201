package maps

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

func openPinned(t *testing.T, pins string, slots uint32) testGate {
	t.Helper()
	g, err := Open(Options{Pins: pins, Slots: slots, Clock: ClockExact})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return testGate{g, t}
}

// A gate that is opened again goes on with the buckets, blocks, counters and
// rules of the one before, whatever became of it.
func TestAdoptPins(t *testing.T) {
	rig.RequireRoot(t)
	pins := rig.BPFFS(t)
	rule := perSource("r", 1, time.Hour, 5, config.Match{})
	g := openPinned(t, pins, minSlots)
	if g.Adopted() {
		t.Error("nothing was pinned, yet it says adopted")
	}
	g.rules(rule)
	if err := g.Block(prefixes("198.51.100.0/24")[0], time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	g.count(9, from("203.0.113.5"))
	for range 3 {
		g = openPinned(t, pins, 4*minSlots) // the table keeps its size
		if !g.Adopted() || g.stats().Slots != minSlots {
			t.Errorf("adopted %v, %d slots", g.Adopted(), g.stats().Slots)
		}
		g.want("over_rate", from("203.0.113.5")) // by the pinned rules
		g.rules(rule)
		g.want("over_rate", from("203.0.113.5"))
		g.want("block", from("198.51.100.7"))
	}
	counters, err := g.RuleCounters()
	if err != nil {
		t.Fatal(err)
	}
	if c := counters["r"]; c.PassedPackets != 5 || c.RefusedPackets != 10 {
		t.Errorf("counters over three restarts: %+v, want 5 passed and 10 refused", c)
	}
	blocks, err := g.Blocks()
	left := time.Until(blocks[prefixes("198.51.100.0/24")[0]])
	if err != nil || len(blocks) != 1 || left < 59*time.Minute || left > time.Hour {
		t.Errorf("blocks after restarts: %v, %v", blocks, err)
	}
}

// Each of these is one clear line with the cure, and nothing is made.
func TestOpenRefuses(t *testing.T) {
	rig.RequireRoot(t)
	plain := t.TempDir()
	foreign := rig.BPFFS(t)
	for _, dir := range []string{"v998", "v999"} {
		if err := os.MkdirAll(filepath.Join(foreign, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		o    Options
		want []string
	}{
		{"no bpffs", Options{Pins: plain, Slots: minSlots}, []string{"not in a bpffs", "mount -t bpf", "state.pins"}},
		{"two layouts", Options{Pins: foreign, Slots: minSlots}, []string{foreign, "2 layouts", "detach --all"}},
		{"odd size", Options{Slots: 5000}, []string{"5000", "power of two"}},
		{"huge", Options{Slots: 1 << 31}, []string{"power of two from 4096 to 134217728"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := Open(c.o)
			if err == nil {
				g.Close()
				t.Fatal("opened")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
		})
	}
	if left, _ := os.ReadDir(plain); len(left) != 0 {
		t.Errorf("%s holds %v", plain, left)
	}
}
