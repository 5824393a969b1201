package daemon

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/fleet/board"
	"golang.org/x/sys/unix"
)

var prefixOption = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

func entry(prefix, reason string, end time.Time) Entry {
	return Entry{Prefix: netip.MustParsePrefix(prefix), Reason: reason, End: end, Origin: Origin{From: FromCommand}}
}

// RC-070: entries of one prefix stand beside each other, the latest end counts,
// and a removal touches neither the range around it nor another reason.
func TestEntriesOfOnePrefix(t *testing.T) {
	now := time.Now()
	var list []Entry
	for _, e := range []Entry{
		entry("198.51.0.0/16", "range", now.Add(time.Hour)),
		entry("198.51.0.7/32", "scan", now.Add(5*time.Minute)),
		entry("198.51.0.7/32", "spam", now.Add(time.Hour)),
	} {
		list = withEntry(list, e)
	}
	seven, all := netip.MustParsePrefix("198.51.0.7/32"), netip.MustParsePrefix("198.51.0.0/16")
	if got := ends(list)[seven]; !got.Equal(now.Add(time.Hour)) {
		t.Errorf("ends %v, want the later end", got)
	}

	scan := "scan"
	kept, removed := withoutEntries(list, seven, &scan)
	if len(kept) != 2 || len(removed) != 1 {
		t.Errorf("removing one reason kept %d and removed %d", len(kept), len(removed))
	}
	if got := ends(kept)[seven]; !got.Equal(now.Add(time.Hour)) {
		t.Errorf("the other reason ends %v", got)
	}

	kept, removed = withoutEntries(list, seven, nil)
	if len(removed) != 2 {
		t.Errorf("removed %d entries, want both", len(removed))
	}
	if _, ok := ends(kept)[all]; !ok || len(kept) != 1 {
		t.Errorf("left %v, want the range alone", kept)
	}

	later := liveEntries(list, now.Add(6*time.Minute))
	if _, ok := ends(later)[seven]; !ok || len(later) != 2 {
		t.Errorf("after the first end: %v", later)
	}
}

func TestWithEntryKeepsTheLaterEnd(t *testing.T) {
	now := time.Now()
	hour, minute, ever := now.Add(time.Hour), now.Add(time.Minute), time.Time{}
	for _, c := range []struct {
		name             string
		first, then, end time.Time
	}{
		{"longer", minute, hour, hour},
		{"shorter", hour, minute, hour},
		{"for ever", hour, ever, ever},
		{"was for ever", ever, hour, ever},
	} {
		list := withEntry(withEntry(nil, entry("192.0.2.1/32", "x", c.first)), entry("192.0.2.1/32", "x", c.then))
		if len(list) != 1 || !list[0].End.Equal(c.end) {
			t.Errorf("%s: %v, want one that ends %v", c.name, list, c.end)
		}
	}
}

func TestCovering(t *testing.T) {
	list := []Entry{
		entry("203.0.113.0/24", "", time.Time{}), entry("203.0.0.0/16", "", time.Time{}),
		entry("203.0.113.9/32", "", time.Time{}), entry("2001:db8::/32", "", time.Time{}),
	}
	var got []string
	for _, e := range covering(list, netip.MustParsePrefix("203.0.113.9/32")) {
		got = append(got, e.Prefix.String())
	}
	want := []string{"203.0.0.0/16", "203.0.113.0/24", "203.0.113.9/32"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func fullState(now time.Time) state {
	uid := uint32(1000)
	return state{
		Version: stateVersion,
		Rules:   []addedRule{{Name: "login", Text: "{name: login}", Origin: Origin{From: FromCommand, By: "ann", UID: &uid, Why: "ticket 81"}}},
		Blocks:  []Entry{entry("192.0.2.1/32", "A", time.Time{}), entry("192.0.2.2/32", "B", now.Add(10*time.Minute)), entry("192.0.2.3/32", "C", now.Add(time.Minute))},
		Allows:  []Entry{entry("192.0.2.4/32", "D", now.Add(time.Hour))},
		Posted: posted{Fleet: "edge/1234", Synced: 7, Notices: []*notice{
			{Notice: board.Notice{ID: "a", Version: 5, End: 9, Keep: 10, Sealed: []byte{0, 255}}, Ends: now.Add(time.Hour)},
			{Notice: board.Notice{ID: "b", Gone: true}, Draft: true, Base: &board.Notice{ID: "b", Version: 4, Keep: 8}},
		}},
	}
}

// RC-095: what was added is read back with the time that remains, and what
// ended meanwhile is not.
func TestStateSurvives(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := newStore(t.TempDir())
	s.boot = func() bootTime { return bootTime{} } // the wall clock alone
	if err := s.save(fullState(now), now); err != nil {
		t.Fatal(err)
	}
	got, err := s.load(now.Add(5 * time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	want := fullState(now)
	want.Blocks = want.Blocks[:2]
	if diff := cmp.Diff(want, got, prefixOption, cmpopts.IgnoreUnexported(state{}, notice{})); diff != "" {
		t.Error(diff)
	}
	if st, err := os.Stat(s.path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// While running, ends are held by the monotonic clock, so that a step of the
// wall clock moves none: they have its reading when made and when read back.
func TestEndsAreMonotonicWhileRunning(t *testing.T) {
	monotonic := func(t time.Time) bool { return strings.Contains(t.String(), " m=") }
	now := time.Now()
	made, err := newEntry(EntryRequest{Prefix: netip.MustParsePrefix("192.0.2.1/32"), For: 600}, Origin{}, now)
	if err != nil {
		t.Fatal(err)
	}
	if !monotonic(made.End) {
		t.Errorf("made: %v", made.End)
	}
	s := newStore(t.TempDir())
	s.boot = func() bootTime { return bootTime{} } // the wall clock alone
	if err := s.save(state{Blocks: []Entry{made}}, now.Add(4*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if !monotonic(made.End) {
		t.Error("saving took the reading from the entry in force")
	}
	got, err := s.load(now.Add(5 * time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if end := got.Blocks[0].End; !monotonic(end) || end.Sub(now).Round(time.Second) != 10*time.Minute {
		t.Errorf("read back: %v, want 10m after %v", end, now)
	}
}

func TestLoadRefusesWhatItCannotRead(t *testing.T) {
	for name, text := range map[string]string{
		"cut short":       `{"version": 1, "blocks": [{"prefix":`,
		"another version": `{"version": 2}`,
	} {
		s := newStore(t.TempDir())
		if err := os.WriteFile(s.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.load(time.Now()); err == nil || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A full disk refuses the change: the file and what is in force stay.
func TestFullDiskChangesNothing(t *testing.T) {
	b := newBench(t, "")
	ctx := t.Context()
	ask := func(p string) error {
		_, err := b.d.addEntry(ctx, blocks, EntryRequest{Prefix: netip.MustParsePrefix(p), Ever: true}, Origin{From: FromCommand})
		return err
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("mount a small tmpfs: %v (needs root)", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	b.d.store = newStore(dir)
	if err := ask("192.0.2.1/32"); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	before, err := os.ReadFile(b.d.store.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := ask("192.0.2.2/32"); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("on a full disk: %v", err)
	}
	after, err := os.ReadFile(b.d.store.path)
	if err != nil || string(before) != string(after) {
		t.Errorf("the file changed, or cannot be read: %v", err)
	}
	if got := b.d.entries(blocks).Entries; len(got) != 1 {
		t.Errorf("in force: %v, want the first alone", got)
	}
}
