package maps

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

const otherLayout = LayoutVersion + 5

var (
	migratedRule  = perSource("r", 1, time.Hour, 5, config.Match{})
	migratedBlock = netip.MustParsePrefix("198.51.100.0/24")
)

// pinOther pins maps with a rule that has refused, a block, an allow and a
// vouch, opened by hand, and makes them look as if another layout had made
// them, after change.
func pinOther(t *testing.T, change func(dir string, s *shapes)) (pins string) {
	t.Helper()
	rig.RequireRoot(t)
	pins = rig.BPFFS(t)
	g := openPinned(t, pins, minSlots)
	g.rules(migratedRule)
	g.lists(Lists{Block: map[netip.Prefix]time.Time{migratedBlock: time.Now().Add(time.Hour)}, Allow: prefixes("192.0.2.0/24")})
	g.count(9, from("203.0.113.5"))
	g.want("block", from("198.51.100.7"))
	if err := g.Vouch(netip.MustParseAddr("203.0.113.9"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	g.SetOpen(true)
	g.meta.Layout = otherLayout
	if err := g.objects.Metas.Put(uint32(0), &g.meta); err != nil {
		t.Fatal(err)
	}
	dir := layoutDir(pins, otherLayout)
	if err := os.Rename(MapDir(pins), dir); err != nil {
		t.Fatal(err)
	}
	s, err := readShapes(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Layout = otherLayout
	if change != nil {
		change(dir, &s)
	}
	if err := os.Remove(filepath.Join(dir, shapesName)); err != nil {
		t.Fatal(err)
	}
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	return pins
}

// openAndKill opens the gate and lets go of it before the programs are in place.
func openAndKill(t *testing.T, pins string) {
	t.Helper()
	g, err := Open(Options{Pins: pins, Slots: minSlots, Clock: ClockExact})
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
}

func dirs(t *testing.T, pins string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(pins)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func wantDirs(t *testing.T, pins string, want ...int) {
	t.Helper()
	var names []string
	for _, layout := range want {
		names = append(names, filepath.Base(layoutDir(pins, layout)))
	}
	if got := dirs(t, pins); !slices.Equal(got, names) {
		t.Errorf("pinned: %v, want %v", got, names)
	}
}

// wantCarried checks what is to be there before anything is set anew.
func (g testGate) wantCarried() {
	g.t.Helper()
	if !g.Adopted() || !g.Opened() {
		g.t.Errorf("adopted %v, open %v", g.Adopted(), g.Opened())
	}
	g.SetOpen(false)
	g.want("block", from("198.51.100.7"))
	g.want("allow", from("192.0.2.7"))
	g.rules(migratedRule)
	g.want("over_rate", from("203.0.113.5"))
	g.SetOpen(true)
	vouched, err := g.Vouches()
	if left := time.Until(vouched[netip.MustParseAddr("203.0.113.9")]); err != nil || left < 59*time.Minute || left > time.Hour {
		g.t.Errorf("vouched: %v, %v", vouched, err)
	}
}

func (g testGate) wantCounters(passed, refused uint64) {
	g.t.Helper()
	counters, err := g.RuleCounters()
	if c := counters["r"]; err != nil || c.PassedPackets != passed || c.RefusedPackets != refused {
		g.t.Errorf("counters %+v, %v, want %d passed, %d refused", counters, err, passed, refused)
	}
}

// RC-035: what another layout has pinned goes on, whether that is an older or a
// newer one; its pins go when the programs are in place, not before.
func TestCarryOver(t *testing.T) {
	pins := pinOther(t, nil)
	g := openPinned(t, pins, 4*minSlots)
	if layout, lost, ok := g.Carried(); !ok || layout != filepath.Base(layoutDir("", otherLayout)) || len(lost) != 0 {
		t.Errorf("carried %q, %v, lost %q", layout, ok, lost)
	}
	g.wantCarried()
	g.wantCounters(5, 5)
	if got := dirs(t, pins); len(got) != 2 {
		t.Errorf("pinned before the programs are in place: %v", got)
	}
	if err := g.Settle(); err != nil {
		t.Fatal(err)
	}
	wantDirs(t, pins, LayoutVersion)
	again := openPinned(t, pins, minSlots)
	if _, _, ok := again.Carried(); ok {
		t.Error("carried over twice")
	}
	again.wantCarried()
	again.wantCounters(5, 6)
}

// RC-035: a value that has grown, or has lost a field, is carried field by
// field, and what is lost is said.
func TestCarryOverOtherValues(t *testing.T) {
	pins := pinOther(t, func(dir string, s *shapes) {
		// a field before all others, and fewer entries
		counters := s.Maps["rule_counters"]
		was := counters.Size
		for i := range counters.Value {
			counters.Value[i].At += 8
		}
		counters.Value = append([]field{{"since", 0, 8}}, counters.Value...)
		counters.Size += 8
		s.Maps["rule_counters"] = counters
		replaceMap(t, dir, "rule_counters", &ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: counters.Size, MaxEntries: 64}, func(value []byte) []byte {
			return append(slices.Repeat([]byte{0xff}, 8), value[:was]...)
		})
		s.Maps["gone"] = shape{}
	})
	g := openPinned(t, pins, minSlots)
	_, lost, _ := g.Carried()
	if want := []string{"gone: this version has no such map", "rule_counters: this version has no since"}; !slices.Equal(lost, want) {
		t.Errorf("lost %q, want %q", lost, want)
	}
	g.wantCarried()
	g.wantCounters(5, 5)
}

// replaceMap pins another map in the place of one, with its first entries as
// change makes them.
func replaceMap(t *testing.T, dir, name string, ms *ebpf.MapSpec, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	old, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	made, err := ebpf.NewMap(ms)
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	for key := range ms.MaxEntries {
		value, err := old.LookupBytes(key)
		if err != nil {
			t.Fatal(err)
		}
		cpus := len(value) / int((old.ValueSize()+7)&^7)
		var each [][]byte
		for cpu := range cpus {
			each = append(each, change(value[cpu*len(value)/cpus:]))
		}
		if err := made.Put(key, each); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := made.Pin(path); err != nil {
		t.Fatal(err)
	}
}

// Where the tables' numbers mean something else all that hangs on them is lost,
// and said so; the counters are not.
func TestCarryOverOtherTable(t *testing.T) {
	pins := pinOther(t, func(_ string, s *shapes) { s.Table++ })
	g := openPinned(t, pins, minSlots)
	_, lost, _ := g.Carried()
	for _, name := range []string{"buckets", "metas", "overflows", "prefixes4", "prefixes6", "vouches", "events"} {
		if !slices.ContainsFunc(lost, func(line string) bool { return strings.HasPrefix(line, name+": ") }) {
			t.Errorf("%s is not among what was lost: %q", name, lost)
		}
	}
	g.SetOpen(false)
	g.rules(migratedRule)
	g.want("within_rate", from("203.0.113.5"))
	g.wantCounters(6, 4)
}

// RC-035: pins that do not say what they look like, or are none, or are
// strangers.
func TestCarryOverNothing(t *testing.T) {
	rig.RequireRoot(t)
	pins := rig.BPFFS(t)
	if err := os.MkdirAll(layoutDir(pins, otherLayout), 0o700); err != nil {
		t.Fatal(err)
	}
	g := openPinned(t, pins, minSlots)
	if _, lost, ok := g.Carried(); !ok || len(lost) != 1 || !strings.Contains(lost[0], layoutDir(pins, otherLayout)) {
		t.Errorf("carried %v, lost %q", ok, lost)
	}
	if err := g.Settle(); err != nil {
		t.Fatal(err)
	}
	wantDirs(t, pins, LayoutVersion)
}

// RC-035: what is pinned in the place of a map and is none of ours is named with
// its path and the cure, and left alone; also among what is to be carried over.
func TestStrangersAmongPins(t *testing.T) {
	stranger := func(t *testing.T, path string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
		if err == nil {
			err = p.Pin(path)
			p.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		layout int
	}{{"buckets", LayoutVersion}, {"metas", LayoutVersion}, {"vouches", otherLayout}, {shapesName, otherLayout}} {
		t.Run(fmt.Sprintf("%s of layout %d", c.name, c.layout), func(t *testing.T) {
			pins := pinOther(t, nil)
			if c.layout == LayoutVersion {
				if err := os.Rename(layoutDir(pins, otherLayout), MapDir(pins)); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(layoutDir(pins, c.layout), c.name)
			stranger(t, path)
			g, err := Open(Options{Pins: pins, Slots: minSlots})
			if err == nil {
				g.Close()
				t.Fatal("opened")
			}
			if text := err.Error(); !strings.Contains(text, path) || !strings.Contains(text, "remove") || strings.Contains(text, "\n") {
				t.Errorf("error %q", text)
			}
			if !exists(path) {
				t.Error("the stranger was removed")
			}
		})
	}
}

// Whoever is killed between two steps of a change of layout is found out, and
// the next start finishes it: nothing is lost, and nothing is left behind.
func TestCarryOverAfterAKill(t *testing.T) {
	for name, kill := range map[string]func(t *testing.T, pins string){
		"while the new maps were filled": func(t *testing.T, pins string) {
			making := filepath.Join(pins, makingName)
			if err := os.Mkdir(making, 0o700); err != nil {
				t.Fatal(err)
			}
			if m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}); err != nil || m.Pin(filepath.Join(making, "buckets")) != nil {
				t.Fatal("pin an unfinished map", err)
			}
		},
		"before the programs were in place": func(t *testing.T, pins string) { openAndKill(t, pins) },
		"after the old maps were put aside": func(t *testing.T, pins string) {
			openAndKill(t, pins)
			if err := os.Rename(layoutDir(pins, otherLayout), filepath.Join(pins, oldName)); err != nil {
				t.Fatal(err)
			}
		},
		"before the old maps were removed": func(t *testing.T, pins string) {
			openAndKill(t, pins)
			if err := os.Rename(layoutDir(pins, otherLayout), filepath.Join(pins, oldName)); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(pins, nextName), MapDir(pins)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			pins := pinOther(t, nil)
			kill(t, pins)
			g := openPinned(t, pins, minSlots)
			g.wantCarried()
			g.wantCounters(5, 5)
			if err := g.Settle(); err != nil {
				t.Fatal(err)
			}
			wantDirs(t, pins, LayoutVersion)
		})
	}
}

// With nobody there while the layout changes, the pins tell what is in force
// and can be opened by hand.
func TestInspectWhileTheLayoutChanges(t *testing.T) {
	pins := pinOther(t, nil)
	if _, err := Inspect(pins); err == nil || !strings.Contains(err.Error(), filepath.Base(layoutDir("", otherLayout))) || !strings.Contains(err.Error(), "start the daemon") {
		t.Errorf("pins of another layout: %v", err)
	}
	openAndKill(t, pins)
	p, err := Inspect(pins)
	if err != nil || p.Rules["r"].PassedPackets != 5 || len(p.Blocks) != 1 || !p.Opened {
		t.Errorf("pinned: %+v, %v", p, err)
	}
	if err := Unpin(pins); err != nil {
		t.Fatal(err)
	}
	wantDirs(t, pins)
}

// RC-075: with nobody there, a gate is closed and opened by hand in whatever
// layout its maps are, and in both while the layout changes.
func TestOpenByPinsOfAnotherLayout(t *testing.T) {
	pins := pinOther(t, nil)
	opened := func(dir string) bool {
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "controls"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var c bpfControl
		if err := m.Lookup(uint32(0), &c); err != nil {
			t.Fatal(err)
		}
		return c.Flags&controlOpen != 0
	}
	other, next := layoutDir(pins, otherLayout), filepath.Join(pins, nextName)
	for _, open := range []bool{false, true, false} {
		if err := SetOpen(pins, open); err != nil || opened(other) != open {
			t.Errorf("opened: %v, want %v; %v", opened(other), open, err)
		}
	}
	openAndKill(t, pins)
	for _, open := range []bool{true, false} {
		if err := SetOpen(pins, open); err != nil || opened(other) != open || opened(next) != open {
			t.Errorf("opened: %v and %v, want %v; %v", opened(other), opened(next), open, err)
		}
	}
}

// Every map has a carrier, or is written anew at each start.
func TestEveryMapIsCarried(t *testing.T) {
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	anew := []string{
		"plans", "classes", "crossings", "interfaces", "limit_sets", "limits", "extras",
		"roots4", "roots6", "own_addresses", "samples", "captures",
	}
	for name := range spec.Maps {
		_, carried := carriers[name]
		if !strings.HasPrefix(name, ".") && carried == slices.Contains(anew, name) {
			t.Errorf("map %s: give it a carrier, or write it anew at each start and name it here", name)
		}
	}
	for name := range carriers {
		if spec.Maps[name] == nil {
			t.Errorf("no map %s: what has a carrier was renamed or is gone", name)
		}
	}
}
