package daemon

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/logbuffer"
)

// RC-036, RC-061, RC-138: over a restart, a step of the wall clock and a reboot,
// blocks, imports and rules keep the time that they have left.
func TestWhatIsLeftOverSteps(t *testing.T) {
	wall := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const left = 10 * time.Minute
	for _, c := range []struct {
		name  string
		later time.Duration // by the wall clock
		boot  bootTime
		want  time.Duration
	}{
		{"steady", 4 * time.Minute, bootTime{"a", 104 * time.Minute}, 6 * time.Minute},
		{"an hour on", time.Hour, bootTime{"a", 104 * time.Minute}, 6 * time.Minute},
		{"an hour back", -time.Hour, bootTime{"a", 104 * time.Minute}, 6 * time.Minute},
		{"to 1970", wall.Sub(time.Unix(0, 0)) * -1, bootTime{"a", 104 * time.Minute}, 6 * time.Minute},
		{"a reboot", 4 * time.Minute, bootTime{"b", time.Minute}, 6 * time.Minute},
		{"a reboot with a clock that went back", -time.Hour, bootTime{"b", time.Minute}, left},
		{"a kernel that does not tell", 4 * time.Minute, bootTime{"", 0}, 6 * time.Minute},
		{"over", 11 * time.Minute, bootTime{"a", 111 * time.Minute}, 0},
		{"over by a reboot", 11 * time.Minute, bootTime{"b", time.Minute}, 0},
	} {
		s := newStore(t.TempDir())
		s.boot = func() bootTime { return bootTime{"a", 100 * time.Minute} }
		many := &bulk{End: wall.Add(left), prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.9/32")}}
		if err := s.keepImport(many); err != nil {
			t.Fatal(err)
		}
		st := state{
			Rules:        []addedRule{{Name: "r", Text: "{name: r}", End: wall.Add(left)}, {Name: "for ever", Text: "{}"}},
			Blocks:       []Entry{entry("192.0.2.1/32", "", wall.Add(left)), entry("192.0.2.2/32", "", time.Time{})},
			Allows:       []Entry{entry("192.0.2.3/32", "", wall.Add(left))},
			BlockImports: bulks{many},
		}
		if err := s.save(st, wall); err != nil {
			t.Fatal(err)
		}
		s.boot = func() bootTime { return c.boot }
		now := wall.Add(c.later)
		got, err := s.load(now)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if c.want == 0 {
			if len(got.Rules) != 1 || len(got.Blocks) != 1 || len(got.Allows)+len(got.BlockImports) != 0 {
				t.Errorf("%s: %+v", c.name, got)
			}
			continue
		}
		if len(got.Rules) != 2 || len(got.Blocks) != 2 || len(got.Allows) != 1 || len(got.BlockImports) != 1 {
			t.Fatalf("%s: %+v", c.name, got)
		}
		for what, end := range map[string]time.Time{
			"rule": got.Rules[0].End, "block": got.Blocks[0].End, "allow": got.Allows[0].End, "import": got.BlockImports[0].End,
		} {
			if l := end.Sub(now); l != c.want {
				t.Errorf("%s: the %s has %s left, want %s", c.name, what, l, c.want)
			}
		}
		if !got.Blocks[1].End.IsZero() || !got.Rules[1].End.IsZero() {
			t.Errorf("%s: what has no end got one", c.name)
		}
	}
}

// RC-134: a state file that is gone, or that others wrote, is noticed and written
// anew from what is in force; what they wrote is kept beside it.
func TestStateFileBehindTheBack(t *testing.T) {
	b := newBench(t, "")
	block(t, b.d, "192.0.2.1/32", "scan", 0)
	path := b.d.store.path
	for name, do := range map[string]func(){
		"removed":          func() { try(t, os.Remove(path)) },
		"overwritten":      func() { put(t, path, "{}") },
		"emptied":          func() { try(t, os.Truncate(path, 0)) },
		"replaced by name": func() { put(t, path+"~", `{"version": 1}`); try(t, os.Rename(path+"~", path)) },
	} {
		b.d.auditState()
		if n := strings.Count(b.log.String(), "the state file was not"); n != 0 {
			t.Fatalf("before it was %s: %d complaints", name, n)
		}
		do()
		b.d.auditState()
		if !strings.Contains(b.log.String(), "the state file was not") {
			t.Errorf("%s is not told", name)
		}
		st, err := b.d.store.load(time.Now())
		if err != nil || len(st.Blocks) != 1 {
			t.Errorf("after it was %s: %+v, %v", name, st, err)
		}
		if _, err := os.Stat(path + ".changed"); (err == nil) == (name == "removed") {
			t.Errorf("%s: what others wrote: %v", name, err)
		}
		os.Remove(path + ".changed")
		b.log = &logbuffer.Buffer{}
		b.d.log = slog.New(slog.NewTextHandler(b.log, nil))
	}
	// the same again does what it says
	block(t, b.d, "192.0.2.1/32", "scan", 0)
	if got := listed(b.d); got != "192.0.2.1 scan" {
		t.Errorf("blocked: %s", got)
	}
}

// A damaged state file costs the last change at most: a daemon that would not
// start would leave the host without a filter after a reboot.
func TestDamagedStateFile(t *testing.T) {
	b := newBench(t, "")
	block(t, b.d, "192.0.2.1/32", "first", 0)
	block(t, b.d, "192.0.2.2/32", "second", 0)
	put(t, b.d.store.path, `{"version": 1, "blocks": [{"pre`)
	b.d = b.daemon(t)
	if got := listed(b.d); got != "192.0.2.1 first" {
		t.Errorf("blocked: %s", got)
	}
	for _, w := range []string{"the state file was damaged", "state.json.damaged", "headgate blocks"} {
		if !strings.Contains(b.log.String(), w) {
			t.Errorf("the log does not say %q:\n%s", w, b.log)
		}
	}
	if data, err := os.ReadFile(b.d.store.path + ".damaged"); err != nil || !strings.HasSuffix(string(data), `{"pre`) {
		t.Errorf("the damaged one: %q, %v", data, err)
	}
	b.d = b.daemon(t)
	if got := listed(b.d); got != "192.0.2.1 first" {
		t.Errorf("started once more, blocked: %s", got)
	}
	// both damaged: nothing is guessed
	put(t, b.d.store.path, "{")
	put(t, b.d.store.old(), "{")
	if _, _, err := b.d.store.recover(time.Now()); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("both damaged: %v", err)
	}
}

// RC-068: rules know when they were last hit, over restarts and over counters
// that begin anew.
func TestHits(t *testing.T) {
	dir := t.TempDir()
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	at := func(n int) time.Time { return day.AddDate(0, 0, n) }
	h, err := openHits(dir)
	if err != nil {
		t.Fatal(err)
	}
	see := func(n int, passed, refused uint64) {
		t.Helper()
		h.see([]Rule{
			{Name: "web", Packets: &Verdicts{Passed: passed, Refused: refused}},
			{Name: "idle", Requests: &Verdicts{}},
			{Name: "aside", Aside: "why"},
		}, at(n))
		if err := h.write(); err != nil {
			t.Fatal(err)
		}
		if h, err = openHits(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		day             int
		passed, refused uint64
		hit, refusal    int // days; -1: never
	}{
		{0, 0, 0, -1, -1},
		{1, 5, 0, 1, -1},
		{2, 5, 0, 1, -1},
		{3, 5, 1, 3, 3},
		{4, 6, 1, 4, 3},
		{5, 2, 0, 5, 3}, // a new table
		{6, 2, 0, 5, 3},
	} {
		see(step.day, step.passed, step.refused)
		rules := []Rule{{Name: "web"}, {Name: "idle"}}
		h.fill(rules)
		when := func(n int) time.Time {
			if n < 0 {
				return time.Time{}
			}
			return at(n)
		}
		if r := rules[0]; !r.LastHit.Equal(when(step.hit)) || !r.LastRefused.Equal(when(step.refusal)) || !r.Since.Equal(day) {
			t.Errorf("day %d: %+v", step.day, r)
		}
		if r := rules[1]; !r.LastHit.IsZero() || !r.Since.Equal(day) {
			t.Errorf("day %d: idle %+v", step.day, r)
		}
	}
	put(t, filepath.Join(dir, "hits.json"), "{")
	if h, err := openHits(dir); err == nil || len(h.all) != 0 {
		t.Errorf("damaged: %+v, %v", h, err)
	}
}

// A trial shortens the leash to its own end: with the daemon dead for good the
// data path does not stay on what nobody confirmed.
func TestLeashOfATrial(t *testing.T) {
	b := newBench(t, "network: {leash: 7d, interfaces: []}")
	if got := b.d.leash(); got != 7*24*time.Hour {
		t.Errorf("leash %s", got)
	}
	q := ApplyRequest{Config: b.text("network: {leash: off, interfaces: []}"), Confirm: 60}
	if _, err := b.d.apply(t.Context(), q, Origin{}); err != nil {
		t.Fatal(err)
	}
	if got := b.d.leash(); got <= trialGrace || got > trialGrace+time.Minute {
		t.Errorf("leash on trial %s", got)
	}
	if _, err := b.d.confirm(ConfirmRequest{}, Origin{}); err != nil {
		t.Fatal(err)
	}
	if got := b.d.leash(); got != 0 || b.d.policy.cfg.Mode != config.Enforce {
		t.Errorf("leash off is %s", got)
	}
}
