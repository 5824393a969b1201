package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/logbuffer"
	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/limit"
)

// savedGate is a gate whose clock stands still, with one rule of 5 an hour per
// client.
func savedGate(t *testing.T) *l7.Gate {
	t.Helper()
	r, err := config.ParseRule("few", []byte("{name: few, match: {path: /few}, per: client, limit: 5/h}"))
	if err != nil {
		t.Fatal(err)
	}
	g := l7.New(slog.New(slog.NewTextHandler(new(logbuffer.Buffer), nil)))
	g.Clock = func() time.Duration { return time.Minute }
	if err := g.SetPolicy(l7.Policy{Rules: []config.Rule{r}, Secret: bytes.Repeat([]byte{1}, l7.SecretSize)}); err != nil {
		t.Fatal(err)
	}
	return g
}

// left returns how many requests of a client pass at once.
func left(t *testing.T, g *l7.Gate) int64 {
	t.Helper()
	m, err := g.Mend(l7.Mend{Rule: "few", Client: netip.MustParseAddr("192.0.2.1"), Grant: 1})
	if err != nil {
		t.Fatal(err)
	}
	return m.Was
}

// The time between a stop and a start is told by the host's steady clock; over a
// new start of the host by the wall clock, which counts as having stood still if
// it was set back.
func TestTimeOfSavedBuckets(t *testing.T) {
	t.Parallel()
	stopped, boot := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC), bootTime{"first", 100 * time.Hour}
	for _, tc := range []struct {
		what string
		now  time.Time
		boot bootTime
		ago  time.Duration
	}{
		{"a moment later", stopped.Add(time.Second), bootTime{"first", boot.since + time.Second}, time.Second},
		{"the wall clock was set", stopped.Add(-10 * time.Hour), bootTime{"first", boot.since + time.Minute}, time.Minute},
		{"the host was started anew", stopped.Add(30 * time.Minute), bootTime{"second", time.Minute}, 30 * time.Minute},
		{"and its clock set back", stopped.Add(-time.Hour), bootTime{"second", time.Minute}, 0},
		{"the host does not say", stopped.Add(time.Minute), bootTime{"", boot.since + time.Hour}, time.Minute},
	} {
		dir := t.TempDir()
		f, err := createBuckets(dir, bootTime{boot.id, boot.since - 2*time.Second})
		try(t, err)
		if _, err := saveBucketsAt(f, savedGate(t), stopped, boot); err != nil {
			t.Fatal(err)
		}
		try(t, keepBuckets(dir, f, true))
		back, err := openBuckets(dir)
		try(t, err)
		done := restoreBuckets(back, savedGate(t), tc.now, tc.boot)
		back.Close()
		if done.Error != "" || done.Ago != tc.ago.Seconds() || done.Took != 2 {
			t.Errorf("%s: %+v, want %v ago", tc.what, done, tc.ago)
		}
		if again, err := openBuckets(dir); again != nil || err != nil {
			t.Errorf("%s: it is there a second time: %v %v", tc.what, again, err)
		}
	}
}

// A stop that did not end well leaves nothing, and what is too large or too short
// is not taken.
func TestBadBuckets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := createBuckets(dir, bootTime{})
	try(t, err)
	_, err = saveBucketsAt(f, savedGate(t), time.Now(), bootTime{})
	try(t, err)
	try(t, keepBuckets(dir, f, false))
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("%v is left: %v", names, err)
	}
	g := savedGate(t)
	for _, tc := range []struct {
		from io.Reader
		want string
	}{
		{strings.NewReader(""), limit.ErrSaved.Error()},
		{strings.NewReader(strings.Repeat("x", 200)), limit.ErrSaved.Error()},
		{&endless{}, "more than 64 MiB"},
	} {
		if done := restoreBuckets(tc.from, g, time.Now(), bootTime{}); !strings.Contains(done.Error, tc.want) || done.Keys > 0 {
			t.Errorf("%+v, want %s", done, tc.want)
		}
	}
	if n := left(t, g); n != 5 {
		t.Errorf("%d requests are left of 5", n)
	}
}

type endless struct{}

func (*endless) Read(b []byte) (int, error) { return len(b), nil }

// A disk that takes too long is not waited for.
func TestSaveGivesUp(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &timely{w: &out, until: time.Now().Add(-time.Nanosecond)}
	if _, err := savedGate(t).Save(w, mostBuckets); err == nil || !strings.Contains(err.Error(), "the disk is slow") || out.Len() > 0 {
		t.Errorf("%v, %d bytes", err, out.Len())
	}
}

// A folder that cannot be written to costs the buckets and nothing else.
func TestNoRoomForBuckets(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := createBuckets(missing, bootTime{}); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if f, err := openBuckets(missing); f != nil || err != nil {
		t.Error(fmt.Sprint(f), err)
	}
}
