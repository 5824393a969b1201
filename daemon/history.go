package daemon

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"
)

const (
	historySpan = 90 * 24 * time.Hour
	// historyMost bounds the file. Past it what is too old goes, and of the rest
	// the oldest, until historyKept are left.
	historyMost = 4 << 20
	historyKept = 3 << 20
)

// HistoryEntry is one change by someone.
type HistoryEntry struct {
	ID      uint64 `json:"id"`
	What    string `json:"what"`    // block, unblock, rule add, apply, ...
	Subject string `json:"subject"` // the prefix, the rule, the file
	Detail  string `json:"detail,omitempty"`
	Origin
	Undoes uint64 `json:"undoes,omitempty"` // the change that this one took back
	Undone bool   `json:"undone,omitempty"` // by a later one
}

// record is an entry as the file has it, with what takes it back.
type record struct {
	HistoryEntry
	Patch  *patch `json:"patch,omitempty"`  // of what was added from the command line
	Config int    `json:"config,omitempty"` // number of the config that was in force before
}

// undoable reports whether there is a way back.
func (r record) undoable() bool { return r.Patch != nil || r.Config != 0 }

// history is an append-only file with a line of JSON a change. A line that does
// not read is passed over; a line that could not be written whole is taken back.
type history struct {
	log  *slog.Logger
	path string

	mu   sync.Mutex
	last uint64 // the highest id given
	err  error  // of the last try to write
}

// add appends r with the next id. That it fails stops no change: it is logged
// once, and status tells.
func (h *history) add(r record, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.append(r, now)
	if err != nil && h.err == nil {
		h.log.Error("write history: changes are made all the same", "err", err)
	}
	h.err = err
}

func (h *history) append(r record, now time.Time) error {
	if h.last == 0 {
		old, _, err := h.read()
		if err != nil {
			return err
		}
		for _, o := range old {
			h.last = max(h.last, o.ID)
		}
	}
	h.last++
	r.ID = h.last
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(h.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if size > 0 && !endsLine(f, size) { // one that a crash or a full disk cut short
		line = append([]byte{'\n'}, line...)
	}
	if _, err := f.Write(line); err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if size+int64(len(line)) > historyMost {
		return h.shorten(now)
	}
	return nil
}

func endsLine(f *os.File, size int64) bool {
	var last [1]byte
	_, err := f.ReadAt(last[:], size-1)
	return err == nil && last[0] == '\n'
}

// read returns all that reads, the oldest first, and how many lines did not.
func (h *history) read() (all []record, broken int, err error) {
	f, err := os.Open(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read history: %w", err)
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		var r record
		switch {
		case len(bytes.TrimSpace(line)) == 0:
		case json.Unmarshal(line, &r) != nil || r.ID == 0:
			broken++
		default:
			all = append(all, r)
		}
		if err == io.EOF {
			return all, broken, nil
		}
		if err != nil {
			return all, broken, fmt.Errorf("read history: %w", err)
		}
	}
}

// shorten writes the file anew without what is too old or too much.
func (h *history) shorten(now time.Time) error {
	all, _, err := h.read()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r record) bool { return now.Sub(r.At) > historySpan })
	var lines [][]byte
	size := 0
	for _, r := range slices.Backward(all) {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if size += len(line) + 1; size > historyKept {
			break
		}
		lines = append(lines, append(line, '\n'))
	}
	slices.Reverse(lines)
	return renameio.WriteFile(h.path, bytes.Join(lines, nil), 0o600)
}

// failing is why the last change is not in the file, or nil.
func (h *history) failing() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// known reads the file and marks what was undone.
func (h *history) known(now time.Time) ([]record, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, broken, err := h.read()
	undone := map[uint64]bool{}
	for _, r := range all {
		if r.Undoes != 0 {
			undone[r.Undoes] = true
		}
	}
	for i, r := range all {
		all[i].Undone = undone[r.ID]
	}
	all = slices.DeleteFunc(all, func(r record) bool { return now.Sub(r.At) > historySpan })
	return all, broken, err
}

// History is the answer to GET /v1/history, the oldest first.
type History struct {
	Entries []HistoryEntry `json:"entries"`
	Broken  int            `json:"broken,omitempty"` // lines of the file that do not read
	Error   string         `json:"error,omitempty"`  // why the last change was not written down
}

func (d *daemon) changes() (History, error) {
	all, broken, err := d.history.known(d.now())
	out := History{Entries: []HistoryEntry{}, Broken: broken}
	for _, r := range all {
		out.Entries = append(out.Entries, r.HistoryEntry)
	}
	if failing := d.history.failing(); failing != nil {
		out.Error = failing.Error()
	}
	return out, err
}

// change is what note writes down.
type change struct {
	what, subject, detail string
	who                   Origin
	patch                 *patch
	config                int // the one before
	undoes                uint64
}

func (d *daemon) note(c change) {
	if c.who.At.IsZero() {
		c.who.At = stamp(d.now())
	}
	d.history.add(record{
		HistoryEntry: HistoryEntry{What: c.what, Subject: c.subject, Detail: c.detail, Origin: c.who, Undoes: c.undoes},
		Patch:        c.patch, Config: c.config,
	}, d.now())
}
