package daemon

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/internal/logbuffer"
)

// tryOut puts a config with a limit of its own on trial.
func (b *bench) tryOut(t *testing.T, limit int, seconds int64) ApplyReply {
	t.Helper()
	r, err := b.d.apply(t.Context(), ApplyRequest{Config: b.text(rule(limit)), File: "new.yaml", Confirm: seconds}, Origin{From: FromCommand, By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// trial is how the trial fares, if one runs.
func (b *bench) trial() *TrialStatus {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	return b.d.trialStatus()
}

func (b *bench) onDisk(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(b.config)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (b *bench) trialFile() string { return filepath.Join(b.dir, "state", "trial.json") }

// rewrite changes the trial as it is written down.
func (b *bench) rewrite(t *testing.T, change func(*trial)) {
	t.Helper()
	was, err := readTrial(filepath.Dir(b.trialFile()))
	if err != nil || was == nil {
		t.Fatalf("no trial is written down: %v", err)
	}
	change(was)
	if err := was.write(filepath.Dir(b.trialFile())); err != nil {
		t.Fatal(err)
	}
}

// RC-061: a trial ends when its time is over, not before and not after, whatever
// the wall clock does meanwhile; then what was before is in force.
func TestTrialEndsByItself(t *testing.T) {
	for name, step := range map[string]time.Duration{"steady": 0, "back": -time.Hour, "on": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, rule(1))
				began := time.Now()
				b.d.boot = func() bootTime { return bootTime{"this", time.Since(began)} }
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go b.d.watchTrial(ctx)
				b.tryOut(t, 2, 60)
				b.d.mu.Lock()
				b.d.now = func() time.Time { return time.Now().Add(step) }
				b.d.mu.Unlock()
				time.Sleep(59 * time.Second)
				synctest.Wait()
				if b.limit() != 2 {
					t.Error("ended too early")
				}
				if s := b.trial(); s == nil || s.EndsIn != 1 || s.By != "ann" {
					t.Errorf("status %+v", s)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if b.limit() != 1 || b.trial() != nil {
					t.Errorf("not rolled back: limit %d, trial %+v", b.limit(), b.trial())
				}
				if _, err := os.Stat(b.trialFile()); err == nil || b.onDisk(t) != b.text(rule(1)) {
					t.Errorf("left behind: %v, %s", err, b.onDisk(t))
				}
			})
		})
	}
}

// A daemon that was killed goes on with the trial inside its time, and starts
// with the config before after it, or after a reboot.
func TestTrialOverARestart(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*trial)
		limit  int64
		runs   bool
	}{
		{"inside its time", func(*trial) {}, 2, true},
		{"after its end", func(x *trial) { x.End = bootClock().since - time.Second }, 1, false},
		{"after a reboot", func(x *trial) { x.Boot = "another" }, 1, false},
		{"with an end that is too far", func(x *trial) { x.End += 1000 * time.Hour }, 2, true},
		{"confirmed and killed", func(x *trial) { x.Confirmed = true }, 2, false},
	} {
		b := newBench(t, rule(1))
		b.tryOut(t, 2, 60)
		b.rewrite(t, c.change)
		b.d = b.daemon(t)
		if b.limit() != c.limit || (b.d.trial != nil) != c.runs {
			t.Errorf("%s: limit %d, want %d; trial %+v", c.name, b.limit(), c.limit, b.d.trial)
		}
		if s := b.d.trialStatus(); c.runs && (s.EndsIn > 60 || s.EndsIn < 1) {
			t.Errorf("%s: ends in %d s", c.name, s.EndsIn)
		}
		if _, err := os.Stat(b.trialFile()); (err == nil) != c.runs {
			t.Errorf("%s: what is written down: %v", c.name, err)
		}
		if got, want := b.onDisk(t), b.text(rule(1)); (got == want) == (c.name == "confirmed and killed") {
			t.Errorf("%s: the file is %s", c.name, got)
		}
	}
}

// The config file itself on trial, because reload had refused it: rolled back,
// the file is again what is in force, also over a restart.
func TestTrialOfTheFileItself(t *testing.T) {
	for name, end := range map[string]func(*bench){
		"by hand": func(b *bench) {
			if _, err := b.d.rollback(t.Context(), RollbackRequest{}, Origin{}); err != nil {
				t.Fatal(err)
			}
		},
		"by a restart": func(b *bench) {
			b.rewrite(t, func(x *trial) { x.Boot = "another" })
			b.d = b.daemon(t)
		},
	} {
		b := newBench(t, rule(1))
		b.write(t, rule(2))
		if _, err := b.d.apply(t.Context(), ApplyRequest{Confirm: 60}, Origin{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		if b.limit() != 2 {
			t.Fatalf("%s: not on trial", name)
		}
		if _, err := b.d.reload(t.Context(), false); err != nil || b.d.trial == nil {
			t.Errorf("%s: the watcher does not wait: %v", name, err)
		}
		end(b)
		if b.limit() != 1 || b.onDisk(t) != b.text(rule(1)) {
			t.Errorf("%s: limit %d, file %s", name, b.limit(), b.onDisk(t))
		}
		if _, err := b.d.reload(t.Context(), false); err != nil || b.limit() != 1 {
			t.Errorf("%s: the watcher takes the trial again: %v", name, err)
		}
	}
}

// What does not read is no trial, and no reason not to start.
func TestBrokenTrial(t *testing.T) {
	b := newBench(t, rule(1))
	for _, text := range []string{"{", "{}", "\x00\x00\x00\x00", ""} {
		put(t, b.trialFile(), text)
		b.d = b.daemon(t)
		if b.limit() != 1 || b.d.trial != nil {
			t.Errorf("%q: limit %d, trial %+v", text, b.limit(), b.d.trial)
		}
		if !strings.Contains(b.log.String(), "a trial was not brought to its end") {
			t.Errorf("%q is not told:\n%s", text, b.log)
		}
		if _, err := os.Stat(b.trialFile()); err == nil {
			t.Errorf("%q is left", text)
		}
	}
}

// small is a file system with little room.
func small(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mount a small tmpfs: %v (needs root)", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// fill leaves no room in dir.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	return func() { os.Remove(path) }
}

// A config that could not be confirmed is not tried; a full disk leaves the
// trial as it was, and its end too.
func TestTrialWithoutRoom(t *testing.T) {
	dir := small(t, "size=64k")
	b := &bench{dir: dir, log: &logbuffer.Buffer{}, config: filepath.Join(dir, "headgate.yaml")}
	b.write(t, rule(1))
	b.d = b.daemon(t)
	room := fill(t, dir)
	q := ApplyRequest{Config: b.text(rule(2)), Confirm: 60}
	for _, seconds := range []int64{60, 0} {
		q.Confirm = seconds
		if _, err := b.d.apply(t.Context(), q, Origin{}); err == nil || !strings.Contains(err.Error(), "nothing was changed") || b.limit() != 1 {
			t.Errorf("apply for %d s on a full disk: %v, limit %d", seconds, err, b.limit())
		}
	}
	room()
	b.tryOut(t, 2, 60)
	fill(t, dir)
	if _, err := b.d.confirm(ConfirmRequest{}, Origin{}); err == nil || !strings.Contains(err.Error(), "the trial goes on") || b.d.trial == nil || b.onDisk(t) != b.text(rule(1)) {
		t.Errorf("confirm on a full disk: %v", err)
	}
	if _, err := b.d.rollback(t.Context(), RollbackRequest{}, Origin{}); err != nil || b.limit() != 1 {
		t.Errorf("rollback on a full disk: %v, limit %d", err, b.limit())
	}
	if _, err := os.Stat(b.trialFile()); err == nil {
		t.Error("the trial is left")
	}
}

func TestApplyWhereTheConfigCannotBeReplaced(t *testing.T) {
	b := newBench(t, rule(1))
	dir := small(t, "size=64k")
	put(t, filepath.Join(dir, "headgate.yaml"), b.text(rule(1)))
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	b.d.path = filepath.Join(dir, "headgate.yaml")
	for _, q := range []ApplyRequest{{Config: b.text(rule(2))}, {Config: b.text(rule(2)), Confirm: 60}} {
		if _, err := b.d.apply(t.Context(), q, Origin{}); err == nil || codeOf(err) != 409 || !strings.Contains(err.Error(), "let the daemon write there") || b.limit() != 1 {
			t.Errorf("%+v: %v, limit %d", q, err, b.limit())
		}
	}
}

// The config's mode, and the symlink that leads to it, stay.
func TestConfirmKeepsModeAndSymlink(t *testing.T) {
	b := newBench(t, rule(1))
	real := filepath.Join(t.TempDir(), "real.yaml")
	try(t, os.WriteFile(real, []byte(b.text(rule(1))), 0o640))
	try(t, os.Remove(b.config))
	try(t, os.Symlink(real, b.config))
	b.tryOut(t, 2, 60)
	if _, err := b.d.confirm(ConfirmRequest{}, Origin{}); err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(b.config)
	if err != nil || st.Mode().Type() != fs.ModeSymlink || b.onDisk(t) != b.text(rule(2)) {
		t.Errorf("%v, %v: %s", st.Mode(), err, b.onDisk(t))
	}
	if st, err := os.Stat(real); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	generation := b.conf().generation
	if r, err := b.d.reload(t.Context(), false); err != nil || r.Changed || b.conf().generation != generation {
		t.Errorf("the watcher takes it once more: %+v, %v", r, err)
	}
}

// A trial is rolled back even when a rule added meanwhile goes only with it.
func TestRollbackIsNotRefused(t *testing.T) {
	four := "rules: ["
	for _, name := range []string{"a", "b", "c", "d"} {
		four += "{name: " + name + ", match: {protocol: udp}, per: source, rate: 9/s},"
	}
	b := newBench(t, strings.TrimSuffix(four, ",")+"]")
	b.tryOut(t, 2, 60)
	if _, err := b.d.addRule(t.Context(), RuleRequest{Rule: "{name: fifth, match: {protocol: udp}, per: source, rate: 1/s}"}, Origin{From: FromCommand}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.d.rollback(t.Context(), RollbackRequest{}, Origin{}); err != nil {
		t.Fatal(err)
	}
	if len(b.d.policy.rules) != 4 || len(b.d.policy.aside) != 1 {
		t.Errorf("%d rules, aside %+v", len(b.d.policy.rules), b.d.policy.aside)
	}
}

func TestConfigsKept(t *testing.T) {
	c := configs{dir: filepath.Join(t.TempDir(), "configs")}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range 30 {
		text := []byte{byte('a' + i)}
		for range 2 { // the same again is kept once
			if _, err := c.keep(text, strings.Repeat("0", 64), now); err != nil {
				t.Fatal(err)
			}
		}
	}
	all, err := c.list()
	if err != nil || len(all) != keptConfigs+1 || all[0].Number != 10 || all[len(all)-1].Number != 30 || !all[0].Kept.Equal(now) {
		data, _ := json.Marshal(all)
		t.Errorf("kept %s, %v", data, err)
	}
	if text, err := c.read(30); err != nil || string(text) != string(rune('a'+29)) {
		t.Errorf("read %q, %v", text, err)
	}
	if n, err := c.before([]byte{'a' + 29}); err != nil || n != 29 {
		t.Errorf("before is %d, %v", n, err)
	}
}
