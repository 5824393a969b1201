package maps

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rig"
)

// What Memory foretells is what the kernel says that the maps take, to a tenth:
// pages and the kernel's own structures are not counted.
func TestMemoryIsWhatTheKernelTakes(t *testing.T) {
	rig.RequireRoot(t)
	const slots = 1 << 18
	g, err := Open(Options{Slots: slots})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var taken uint64
	for name, m := range g.mapsByName() {
		info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(m.FD()))
		if err != nil {
			t.Fatal(err)
		}
		_, after, ok := strings.Cut(string(info), "memlock:")
		if !ok {
			t.Skip("this kernel does not tell what a map takes")
		}
		n, err := strconv.ParseUint(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]), 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if m.Flags()&1 == 0 { // BPF_F_NO_PREALLOC: it counts what may come too
			taken += n
		}
	}
	foretold, err := Memory(slots)
	if err != nil {
		t.Fatal(err)
	}
	if ratio := float64(foretold) / float64(taken); ratio < 0.9 || ratio > 1.1 {
		t.Errorf("foretold %d bytes, the kernel takes %d", foretold, taken)
	}
	if _, err := Memory(5); err == nil {
		t.Error("a table of 5 slots is not refused")
	}
}
