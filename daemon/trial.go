package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
)

const (
	shortestTrial = 5 * time.Second
	longestTrial  = 24 * time.Hour
)

// trial is a config that is in force until its end, unless it is confirmed. It
// is written down before it is in force, so that a daemon that starts anew goes
// on with it, or goes back.
type trial struct {
	Text     string `json:"text"`
	Hash     string `json:"hash"`
	Before   string `json:"before"`         // what was in force
	BeforeAs string `json:"before_hash"`    //
	OnDisk   string `json:"on_disk_hash"`   // of the config file as the trial began; empty: it did not read
	File     string `json:"file,omitempty"` // as the asker called it
	Span     int64  `json:"span"`           // seconds
	Origin

	// The end, by CLOCK_BOOTTIME of one start of the host: no step of the wall
	// clock moves it. Another start of the host ends the trial.
	Boot string        `json:"boot"`
	End  time.Duration `json:"end"`

	Confirmed bool `json:"confirmed,omitempty"` // and not yet moved in the place of the config
}

// left is how long t still runs; nothing after a new start of the host. A clock
// that was set back, as between two time namespaces, does not make it longer.
func (t *trial) left(now bootTime) time.Duration {
	if now.id != t.Boot {
		return 0
	}
	return min(t.End-now.since, time.Duration(t.Span)*time.Second)
}

// ownFile reports whether the config file itself is on trial.
func (t *trial) ownFile() bool { return t.OnDisk == t.Hash }

func trialPath(dir string) string { return filepath.Join(dir, "trial.json") }

// readTrial returns the trial that is written down, or nil. One that does not
// read is none: the config is what there is.
func readTrial(dir string) (*trial, error) {
	data, err := os.ReadFile(trialPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var t trial
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err == nil && t.Text == "" {
		err = errors.New("it names no config")
	}
	if err != nil {
		return nil, fmt.Errorf("read the trial %s: %w", trialPath(dir), err)
	}
	return &t, nil
}

func (t *trial) write(dir string) error {
	data, err := json.Marshal(t)
	if err == nil {
		err = renameio.WriteFile(trialPath(dir), append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write down the trial: %w (nothing was changed: make room or let root write there)", err)
	}
	return nil
}

// resume returns the config to start with: that of a trial that still runs or
// was confirmed, or else the one on disk, which is l. It writes nothing.
func resume(path string, l loaded, keys keyReader, clock func() bootTime) (loaded, *trial, error) {
	dir := l.cfg.State.Dir
	t, err := readTrial(dir)
	if err != nil || t == nil {
		return l, nil, nil // settleTrial tells
	}
	text := ""
	switch {
	case t.Confirmed || t.left(clock()) > 0:
		text = t.Text
	case l.hash == t.Hash:
		text = t.Before
	}
	if text != "" {
		if l, err = parseConfig(path, []byte(text), keys); err != nil {
			return l, nil, fmt.Errorf("read the config of the trial in %s: %w", trialPath(dir), err)
		}
	}
	return l, t, nil
}

// TrialStatus is a trial as it runs.
type TrialStatus struct {
	File   string `json:"file,omitempty"` // as the asker called it
	Hash   string `json:"hash"`
	EndsIn int64  `json:"ends_in"` // seconds, rounded up; then it is rolled back
	Error  string `json:"error,omitempty"`
	Origin
}

func (d *daemon) trialStatus() *TrialStatus {
	if d.trial == nil {
		return nil
	}
	t := d.trial
	left := max(0, t.left(d.boot()))
	return &TrialStatus{File: t.File, Hash: t.Hash, EndsIn: int64((left + time.Second - 1) / time.Second), Origin: t.Origin}
}

// trialRuns refuses what would get in the way of the trial.
func (d *daemon) trialRuns() error {
	s := d.trialStatus()
	return refuse("a trial of %s by %s runs for another %s: `headgate confirm` or `headgate rollback` first", firstOf(s.File, "a config"), firstOf(s.By, "someone"), Span(s.EndsIn))
}
