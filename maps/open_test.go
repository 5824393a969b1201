package maps

import (
	"errors"
	"io/fs"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// While the gate is open everything passes, also what is blocked or broken, and
// what was in force is there again when it is closed.
func TestOpen(t *testing.T) {
	g := fixedGate(t)
	g.lists(Lists{Block: map[netip.Prefix]time.Time{netip.MustParsePrefix("192.0.2.0/24"): {}}})
	blocked := frameOf("192.0.2.1")
	broken := append([]byte{}, blocked[:20]...)
	expect := func(wantBlocked, wantBroken string) {
		t.Helper()
		if got := g.judge(blocked); got != wantBlocked {
			t.Errorf("a blocked source: %s, want %s", got, wantBlocked)
		}
		if got := g.judge(broken); got != wantBroken {
			t.Errorf("a broken frame: %s, want %s", got, wantBroken)
		}
	}
	expect("block", "truncated")
	g.SetOpen(true)
	expect("open", "open")
	if !g.Opened() {
		t.Error("it does not say that it is open")
	}
	g.SetOpen(false)
	expect("block", "truncated")
}

// Past the leash everything passes, until a daemon is seen again.
func TestLeash(t *testing.T) {
	g := fixedGate(t)
	g.lists(Lists{Block: map[netip.Prefix]time.Time{netip.MustParsePrefix("192.0.2.0/24"): {}}})
	frame := frameOf("192.0.2.1")
	g.SetLeash(time.Hour)
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{0, "block"}, {time.Hour, "block"}, {time.Nanosecond, "leash"}, {30 * 24 * time.Hour, "leash"}} {
		g.advance(step.after)
		if got := g.judge(frame); got != step.want {
			t.Errorf("%s later: %s, want %s", step.after, got, step.want)
		}
	}
	g.SetLeash(time.Hour)
	if got := g.judge(frame); got != "block" {
		t.Errorf("seen again: %s, want block", got)
	}
	g.SetLeash(0)
	g.advance(365 * 24 * time.Hour)
	if got := g.judge(frame); got != "block" {
		t.Errorf("without a leash: %s, want block", got)
	}
}

// The gate is opened by its pins, with nobody there, and is found open later.
func TestOpenByPins(t *testing.T) {
	rig.RequireRoot(t)
	pins := rig.BPFFS(t)
	if err := SetOpen(pins, true); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("nothing is pinned: %v", err)
	}
	g, err := Open(Options{Pins: pins, Slots: minSlots})
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
	for _, open := range []bool{true, false} {
		if err := SetOpen(pins, open); err != nil {
			t.Fatal(err)
		}
		p, err := Inspect(pins)
		if err != nil || p.Opened != open {
			t.Fatalf("pinned: open is %v, want %v; %v", p.Opened, open, err)
		}
		g, err := Open(Options{Pins: pins, Slots: minSlots})
		if err != nil {
			t.Fatal(err)
		}
		if g.Opened() != open {
			t.Errorf("adopted: open is %v, want %v", g.Opened(), open)
		}
		g.Close()
	}
}

// Who looks at the pins is told that the leash is over.
func TestLeashByPins(t *testing.T) {
	rig.RequireRoot(t)
	pins := rig.BPFFS(t)
	g, err := Open(Options{Pins: pins, Slots: minSlots})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, c := range []struct {
		leash time.Duration
		over  bool
	}{{0, false}, {time.Hour, false}, {time.Nanosecond, true}} {
		g.SetLeash(c.leash)
		if p, err := Inspect(pins); err != nil || p.Leashed != c.over {
			t.Errorf("a leash of %s: over is %v, %v", c.leash, p.Leashed, err)
		}
	}
}
