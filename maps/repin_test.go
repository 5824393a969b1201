package maps

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/internal/rig"
)

// pinnedIDs returns the ids of the maps that are pinned, by name.
func pinnedIDs(t *testing.T, pins string) map[string]ebpf.MapID {
	t.Helper()
	entries, err := os.ReadDir(MapDir(pins))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]ebpf.MapID{}
	for _, e := range entries {
		m, err := ebpf.LoadPinnedMap(filepath.Join(MapDir(pins), e.Name()), nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := m.Info()
		m.Close()
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()], _ = info.ID()
	}
	return all
}

// RC-047: pins that others removed are put back, each to the very map that it
// led to, so that the next start finds buckets and blocks.
func TestRepin(t *testing.T) {
	pins := filepath.Join(rig.BPFFS(t), "pins")
	g, err := Open(Options{Pins: pins, Slots: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	want := pinnedIDs(t, pins)
	if lost := g.Unpinned(pins); len(lost) != 0 {
		t.Errorf("at first %v are not pinned", lost)
	}
	for _, c := range []struct {
		remove string
		lost   int
	}{{filepath.Join(MapDir(pins), "buckets"), 1}, {pins, len(want)}, {MapDir(pins), len(want)}} {
		if err := os.RemoveAll(c.remove); err != nil {
			t.Fatal(err)
		}
		if lost := g.Unpinned(pins); len(lost) != c.lost || !slices.Contains(lost, "buckets") {
			t.Errorf("with %s removed %v are not pinned, want %d", c.remove, lost, c.lost)
		}
		if err := g.Repin(pins); err != nil {
			t.Fatal(err)
		}
		got := pinnedIDs(t, pins)
		for name, id := range want {
			if got[name] != id && (name != shapesName || got[name] == 0) { // a description is written anew
				t.Errorf("with %s removed %s is pinned to map %d, was %d", c.remove, name, got[name], id)
			}
		}
	}
	if err := os.Remove(filepath.Join(MapDir(pins), shapesName)); err != nil {
		t.Fatal(err)
	}
	if lost := g.Unpinned(pins); !slices.Equal(lost, []string{shapesName}) {
		t.Errorf("without the maps' description %v are not pinned", lost)
	}
	if err := g.Repin(pins); err != nil {
		t.Fatal(err)
	}
	again, err := Open(Options{Pins: pins, Slots: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if !again.Adopted() {
		t.Error("the next start does not adopt the maps")
	}
}
