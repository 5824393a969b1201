package live

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/maps"
)

// otherVersion builds headgate as another version might be: with another
// program, and another layout of maps. What differs is in internal/otherlayout.
var otherVersion = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(binary)
	layout, err := os.ReadFile(filepath.Join(root, "maps/layout.go"))
	if err != nil {
		return "", err
	}
	const declared = "const LayoutVersion = "
	text := strings.Replace(string(layout), declared+strconv.Itoa(maps.LayoutVersion), declared+strconv.Itoa(maps.LayoutVersion+1), 1)
	other := filepath.Join(dir, "layout.go")
	if err := os.WriteFile(other, []byte(text), 0o644); err != nil {
		return "", err
	}
	overlay := map[string]map[string]string{"Replace": {filepath.Join(root, "maps/layout.go"): other}}
	for _, name := range []string{"bpf_bpfel.go", "bpf_bpfel.o"} {
		overlay["Replace"][filepath.Join(root, "maps", name)] = filepath.Join(root, "internal/otherlayout", name)
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, list, 0o644); err != nil {
		return "", err
	}
	built := filepath.Join(dir, "headgate-other")
	build := exec.Command("go", "build", "-buildvcs=false", "-overlay", path, "-o", built, "github.com/headgate/headgate/cmd/headgate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", &exec.Error{Name: string(out), Err: err}
	}
	return built, nil
})

// versions returns headgate as it is and as another version might be, and puts
// the first back in its place when the test ends.
func versions(t *testing.T) (own, other string) {
	t.Helper()
	other, err := otherVersion()
	if err != nil {
		t.Fatalf("build another version: %v", err)
	}
	own = binary
	t.Cleanup(func() { binary = own })
	return own, other
}

// RC-045, RC-035: upgrades to a version with another program and another layout
// of maps and back, under load: no gap, the counters go on, the log says what
// was lost, and nothing of the other layout is left.
func TestNoGapInUpgrades(t *testing.T) {
	own, other := versions(t)
	h := newGapHost(t)
	h.noGap(func() int {
		for range often(1, 5) {
			for _, version := range []string{other, own} {
				before := h.rule("limited").Packets
				h.stop()
				binary = version
				h.start()
				after := h.rule("limited").Packets
				if after.Passed < before.Passed || after.Refused < before.Refused {
					t.Errorf("the counters of a rule were %+v, after the upgrade %+v", before, after)
				}
			}
		}
		return 0
	})
	if log := h.log.String(); !strings.Contains(log, "carried over") || !strings.Contains(log, "rule_counters: this version has no since") {
		t.Error("the log does not say what became of the other layout")
	}
	h.wantPins("links", "v"+strconv.Itoa(maps.LayoutVersion))
}

func (h *host) wantPins(want ...string) {
	h.t.Helper()
	entries, err := os.ReadDir(h.pins)
	if err != nil {
		h.t.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	if strings.Join(have, " ") != strings.Join(want, " ") {
		h.t.Errorf("pinned: %v, want %v", have, want)
	}
}

// RC-034, RC-035: the parent is killed at random moments of its start, of either
// version: there is never a gap, the next start always goes on from there, with
// one program on the interface, and finishes what was begun.
func TestNoGapInKilledStarts(t *testing.T) {
	own, other := versions(t)
	h := newGapHost(t)
	pin := h.status().Network.Interfaces[0].Pin
	h.noGap(func() int {
		for i := range often(6, 50) {
			h.kill()
			binary = []string{own, other}[i/2%2]
			h.launch()
			time.Sleep(time.Duration(rand.Int64N(int64(600 * time.Millisecond)))) // anywhere in its start
		}
		h.kill()
		binary = own
		h.start()
		return 0
	})
	if now := h.status().Network.Interfaces; len(now) != 1 || now[0].Pin != pin || now[0].ProgramID == 0 {
		t.Errorf("attached: %+v", now)
	}
	h.wantPins("links", "v"+strconv.Itoa(maps.LayoutVersion))
}
