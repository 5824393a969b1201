package daemon

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/logbuffer"
)

func newHistory(t *testing.T, dir string) *history {
	t.Helper()
	return &history{log: slog.New(slog.NewTextHandler(&logbuffer.Buffer{}, nil)), path: filepath.Join(dir, "history.jsonl")}
}

func (h *history) subjects(t *testing.T, now time.Time) (out string, broken int) {
	t.Helper()
	all, broken, err := h.known(now)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		out += fmt.Sprintf("%d %s,", r.ID, r.Subject)
	}
	return out, broken
}

func entryOf(subject string, at time.Time) record {
	return record{HistoryEntry: HistoryEntry{What: "block", Subject: subject, Origin: Origin{At: at}}}
}

// RC-134: lines that a crash cut short, or that somebody broke, cost nothing but
// themselves, and no id is given twice.
func TestHistorySurvivesCorruption(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	h := newHistory(t, dir)
	for _, s := range []string{"a", "b"} {
		h.add(entryOf(s, now), now)
	}
	data, err := os.ReadFile(h.path)
	if err != nil {
		t.Fatal(err)
	}
	data = append(append([]byte("\x00\xff garbage\n{}\n"), data...), `{"id": 9, "what": "blo`...)
	if err := os.WriteFile(h.path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	h = newHistory(t, dir)
	h.add(entryOf("c", now), now)
	if got, broken := h.subjects(t, now); got != "1 a,2 b,3 c," || broken != 3 {
		t.Errorf("%s with %d broken lines", got, broken)
	}
	if err := os.Remove(h.path); err != nil {
		t.Fatal(err)
	}
	h.add(entryOf("d", now), now)
	if got, _ := h.subjects(t, now); got != "4 d," {
		t.Errorf("after it was removed: %s", got)
	}
}

// RC-099: the file is bounded, by age and by size; the latest stay.
func TestHistoryIsBounded(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h := newHistory(t, t.TempDir())
	h.add(entryOf("old", now.Add(-91*24*time.Hour)), now)
	long := strings.Repeat("x", 100_000)
	for i := range 60 {
		h.add(entryOf(fmt.Sprint(i, long), now), now)
		if st, err := os.Stat(h.path); err != nil || st.Size() > historyMost {
			t.Fatalf("after %d: %d bytes, %v", i, st.Size(), err)
		}
	}
	got, _ := h.subjects(t, now)
	if strings.Contains(got, "old") || !strings.Contains(got, " 59x") || strings.Contains(got, " 5x") || h.failing() != nil {
		t.Errorf("kept %s, %v", strings.ReplaceAll(got, long, ""), h.failing())
	}
	if got, _ := h.subjects(t, now.Add(91*24*time.Hour)); got != "" {
		t.Error("what is older than 90 days is told")
	}
}

// A full disk stops no change; it is told, no half line is left, and what comes
// later is written again.
func TestHistoryOnAFullDisk(t *testing.T) {
	now := time.Now()
	dir := small(t, "size=64k")
	h := newHistory(t, dir)
	h.add(entryOf("before", now), now)
	room := fill(t, dir)
	h.add(entryOf("lost"+strings.Repeat("x", 8192), now), now)
	if h.failing() == nil {
		t.Error("it is not told")
	}
	room()
	h.add(entryOf("after", now), now)
	if got, broken := h.subjects(t, now); got != "1 before,3 after," || broken != 0 || h.failing() != nil {
		t.Errorf("%s with %d broken lines, %v", got, broken, h.failing())
	}

	b := newBench(t, "")
	b.d.history = newHistory(t, filepath.Join(dir, "gone"))
	if _, err := b.d.addEntry(t.Context(), blocks, EntryRequest{Prefix: netip.MustParsePrefix("192.0.2.1/32"), Ever: true}, Origin{}); err != nil {
		t.Errorf("a block without history: %v", err)
	}
	if w := strings.Join(b.d.snapshot(t.Context()).Config.Warnings, "\n"); !strings.Contains(w, "history is not written") {
		t.Errorf("warnings: %s", w)
	}
}

// What has ended meanwhile does not come back, and the rest with the time that
// it had left.
func TestUndoOfWhatEnded(t *testing.T) {
	b := newBench(t, "")
	ann := Origin{From: FromCommand, By: "ann"}
	step := time.Duration(0)
	b.d.now = func() time.Time { return time.Now().Add(step) }
	for _, q := range []EntryRequest{{Prefix: netip.MustParsePrefix("192.0.2.1/32"), For: 60, Reason: "short"}, {Prefix: netip.MustParsePrefix("192.0.2.1/32"), For: 7200, Reason: "long"}} {
		if _, err := b.d.addEntry(t.Context(), blocks, q, ann); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.d.removeEntry(t.Context(), blocks, EntryRemoval{Prefix: netip.MustParsePrefix("192.0.2.1/32")}, ann); err != nil {
		t.Fatal(err)
	}
	step = time.Hour
	if _, err := b.d.undo(t.Context(), UndoRequest{}, ann); err != nil {
		t.Fatal(err)
	}
	all := b.d.entries(blocks).Entries
	if len(all) != 1 || all[0].Reason != "long" || all[0].EndsIn < 3590 || all[0].EndsIn > 3600 {
		t.Errorf("back: %+v", all)
	}
	// both of them were ann's; bob's undo is not theirs
	if _, err := b.d.undo(t.Context(), UndoRequest{}, Origin{By: "bob"}); err == nil || codeOf(err) != 404 {
		t.Errorf("bob's undo: %v", err)
	}
}
