package maps

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

// Sources that a then blocked while no daemon was there are told of, and stay for
// the daemon that comes to hear of; what was lifted is not.
func TestInspectTellsWhoWasStruck(t *testing.T) {
	rig.RequireRoot(t)
	pins := rig.BPFFS(t)
	g := openPinned(t, pins, minSlots)
	g.rules(blocking("r"))
	strike := func(source string) {
		t.Helper()
		g.count(16, from(source))
		g.want("strikes", from(source))
	}
	strike("203.0.113.5")
	g.unstrike(netip.MustParsePrefix("203.0.113.5/32"))
	strike("203.0.113.6")
	strike("2001:db8:5::5")
	for range 2 {
		p, err := Inspect(pins)
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, s := range p.Struck {
			if left := time.Until(s.End); s.Rule != "r" || left < 50*time.Second || left > time.Minute {
				t.Errorf("%v by rule %q for %v", s.Prefix, s.Rule, left)
			}
			told = append(told, s.Prefix.String())
		}
		if got := strings.Join(told, " "); got != "203.0.113.6/32 2001:db8:5::/64" {
			t.Errorf("told of %q", got)
		}
	}
	events, err := g.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	for range 3 {
		if _, err := events.Next(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatalf("the daemon that comes hears of fewer: %v", err)
		}
	}
	if p, err := Inspect(pins); err != nil || len(p.Struck) != 0 {
		t.Errorf("what was heard of is told again: %v %v", p.Struck, err)
	}
}

// What Inspect reads is what the gate says, and reading changes nothing.
func TestInspect(t *testing.T) {
	rig.RequireRoot(t)
	pins := rig.BPFFS(t)
	g := openPinned(t, pins, minSlots)
	g.rules(perSource("r", 1, time.Hour, 5, config.Match{}))
	end := time.Now().Add(time.Hour)
	given := prefixes("198.51.100.0/24", "2001:db8:66::/48", "192.0.2.0/24")
	err := g.SetLists(Lists{Block: map[netip.Prefix]time.Time{given[0]: end, given[1]: {}}, Allow: given[2:]})
	if err != nil {
		t.Fatal(err)
	}
	g.count(9, from("203.0.113.5"))
	g.want("block", from("198.51.100.7"))

	for range 2 {
		p, err := Inspect(pins)
		if err != nil {
			t.Fatal(err)
		}
		if c := p.Rules["r"]; len(p.Rules) != 1 || c.PassedPackets != 5 || c.RefusedPackets != 4 {
			t.Errorf("rules %+v, want r with 5 passed and 4 refused", p.Rules)
		}
		if left := time.Until(p.Blocks[given[0]]); len(p.Blocks) != 2 || left < 59*time.Minute || left > time.Hour {
			t.Errorf("blocks %v", p.Blocks)
		}
		if at, ok := p.Blocks[given[1]]; !ok || !at.IsZero() {
			t.Errorf("the block without an end: %v, %v", at, ok)
		}
		if len(p.Allows) != 1 || p.Allows[0] != given[2] {
			t.Errorf("allows %v", p.Allows)
		}
		for _, r := range p.Reasons {
			if r.Reason == "block" && r.Packets != 1 {
				t.Errorf("%d packets dropped for block", r.Packets)
			}
		}
		if p.Table.Slots != minSlots || p.Table.Live != 1 {
			t.Errorf("table %+v, want %d slots, 1 live", p.Table, minSlots)
		}
	}
	g.want("over_rate", from("203.0.113.5"))
	g.want("allow", from("192.0.2.7"))
}

func TestInspectRefuses(t *testing.T) {
	rig.RequireRoot(t)
	empty, foreign := rig.BPFFS(t), rig.BPFFS(t)
	if _, err := Inspect(empty); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("where nothing is pinned: %v", err)
	}
	if _, err := Inspect(filepath.Join(empty, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("where no folder is: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(foreign, "v999"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(foreign); err == nil || !strings.Contains(err.Error(), "v999") {
		t.Errorf("pins of another layout: %v", err)
	}
}
