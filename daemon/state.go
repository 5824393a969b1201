package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
)

// stateVersion is the layout of the state file. A file of another version is
// not guessed at.
const stateVersion = 1

// state is all that was added from the command line. It is a value: a change
// makes a new one, so that a change that fails leaves nothing behind.
//
// Ends carry a monotonic reading while the daemon runs, so a step of the wall
// clock moves none of them; in the file they are wall-clock times.
type state struct {
	Version int         `json:"version"`
	Rules   []addedRule `json:"rules"`
	Blocks  []Entry     `json:"blocks"`
	Allows  []Entry     `json:"allows"`

	Overrides []addedOverride `json:"overrides,omitempty"` // of rules of either origin, the oldest first

	BlockImports bulks `json:"block_imports,omitempty"`
	AllowImports bulks `json:"allow_imports,omitempty"`

	Posted posted    `json:"posted,omitzero"` // on all hosts of the fleet
	said   []*notice // of it, what is live

	Saved savedAt `json:"saved,omitzero"` // of the file alone
}

// addedRule is kept as text and read again at each start, like the file's.
type addedRule struct {
	Name string    `json:"name"`
	Text string    `json:"text"`
	End  time.Time `json:"end,omitzero"` // zero: never
	Origin
}

// live returns s without what has ended by now.
func (s state) live(now time.Time) state {
	s.Blocks = liveEntries(s.Blocks, now)
	s.Allows = liveEntries(s.Allows, now)
	s.Rules = slices.DeleteFunc(slices.Clone(s.Rules), func(r addedRule) bool { return ended(r.End, now) })
	s.Overrides = slices.DeleteFunc(slices.Clone(s.Overrides), func(o addedOverride) bool { return ended(o.End, now) })
	s.BlockImports = s.BlockImports.live(now)
	s.AllowImports = s.AllowImports.live(now)
	s.said = s.Posted.live(now)
	return s
}

// nextEnd returns when the next entry or rule ends, if any does.
func (s state) nextEnd() (time.Time, bool) {
	var next time.Time
	for _, r := range s.Rules {
		if !r.End.IsZero() && (next.IsZero() || r.End.Before(next)) {
			next = r.End
		}
	}
	for _, o := range s.Overrides {
		if !o.End.IsZero() && (next.IsZero() || o.End.Before(next)) {
			next = o.End
		}
	}
	for _, list := range [][]Entry{s.Blocks, s.Allows} {
		for _, e := range list {
			if !e.End.IsZero() && (next.IsZero() || e.End.Before(next)) {
				next = e.End
			}
		}
	}
	for _, n := range s.said {
		if !n.Ends.IsZero() && (next.IsZero() || n.Ends.Before(next)) {
			next = n.Ends
		}
	}
	for _, list := range []bulks{s.BlockImports, s.AllowImports} {
		for _, b := range list {
			if !b.End.IsZero() && (next.IsZero() || b.End.Before(next)) {
				next = b.End
			}
		}
	}
	return next, !next.IsZero()
}

// withRule returns s with r added, or in the place of the rule of that name.
func (s state) withRule(r addedRule) state {
	s.Rules = slices.Clone(s.Rules)
	if i := s.rule(r.Name); i >= 0 {
		s.Rules[i] = r
		return s
	}
	s.Rules = append(s.Rules, r)
	return s
}

// withoutRule returns s without the rule of that name.
func (s state) withoutRule(name string) state {
	s.Rules = slices.DeleteFunc(slices.Clone(s.Rules), func(r addedRule) bool { return r.Name == name })
	return s
}

// rule returns the index of the rule of that name, or -1.
func (s state) rule(name string) int {
	return slices.IndexFunc(s.Rules, func(r addedRule) bool { return r.Name == name })
}

func liveEntries(list []Entry, now time.Time) []Entry {
	return slices.DeleteFunc(slices.Clone(list), func(e Entry) bool {
		return ended(e.End, now)
	})
}

// ended reports whether an end has come; the zero time never does.
func ended(end, now time.Time) bool { return !end.IsZero() && !end.After(now) }

// withEntry returns list with e. An entry of the same prefix and reason is
// replaced unless it ends later: to shorten one, it is removed first, so that
// no two writers can end each other's early.
func withEntry(list []Entry, e Entry) []Entry {
	out := make([]Entry, 0, len(list)+1)
	for _, old := range list {
		if old.Prefix != e.Prefix || old.Reason != e.Reason {
			out = append(out, old)
			continue
		}
		if endsAfter(old, e) {
			e = old
		}
	}
	return append(out, e)
}

// withoutEntries returns list without the entries of exactly p, or of those
// only the ones with that reason, and what was taken away.
func withoutEntries(list []Entry, p netip.Prefix, reason *string) (kept, removed []Entry) {
	for _, e := range list {
		if e.Prefix == p && (reason == nil || e.Reason == *reason) {
			removed = append(removed, e)
			continue
		}
		kept = append(kept, e)
	}
	return kept, removed
}

// endsAfter reports whether a lasts longer than b; an entry without an end
// outlasts all others.
func endsAfter(a, b Entry) bool {
	if a.End.IsZero() || b.End.IsZero() {
		return a.End.IsZero() && !b.End.IsZero()
	}
	return a.End.After(b.End)
}

// covering returns the entries of list whose prefix contains all of p, the
// widest first.
func covering(list []Entry, p netip.Prefix) []Entry {
	var out []Entry
	for _, e := range list {
		if e.Prefix.Bits() <= p.Bits() && e.Prefix.Contains(p.Addr()) {
			out = append(out, e)
		}
	}
	sortEntries(out)
	return out
}

// sortEntries sorts by prefix, then by end, the entries without an end last.
func sortEntries(list []Entry) {
	slices.SortStableFunc(list, func(a, b Entry) int {
		if c := a.Prefix.Compare(b.Prefix); c != 0 {
			return c
		}
		switch {
		case endsAfter(b, a):
			return -1
		case endsAfter(a, b):
			return 1
		}
		return 0
	})
}

// store keeps a state in one file.
type store struct {
	path    string
	boot    func() bootTime
	written *fs.FileInfo // the file as it was written last
}

func newStore(dir string) store {
	return store{path: filepath.Join(dir, "state.json"), boot: bootClock, written: new(fs.FileInfo)}
}

// load reads the state, without what ended meanwhile. No file is an empty
// state; one that cannot be read is an error, because starting without it
// would lift every block that was set by hand.
func (s store) load(now time.Time) (state, error) {
	st, err := readState(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return state{Version: stateVersion}, nil
	}
	if err != nil {
		return state{}, err
	}
	if st.Version != stateVersion {
		return state{}, fmt.Errorf("read state %s: version %d, this headgate reads version %d (install the headgate that wrote it, or move it away)", s.path, st.Version, stateVersion)
	}
	st.shift(st.Saved.stepped(now, s.boot()))
	st.Saved = savedAt{}
	anchor(st.Blocks, now)
	anchor(st.Allows, now)
	for i, r := range st.Rules {
		st.Rules[i].End = anchored(r.End, now)
	}
	st.Posted = st.Posted.moved(func(end time.Time) time.Time { return anchored(end, now) })
	st.BlockImports, st.AllowImports = st.BlockImports.anchored(now), st.AllowImports.anchored(now)
	for _, b := range slices.Concat(st.BlockImports, st.AllowImports) {
		if err := s.loadImport(b); err != nil {
			return state{}, err
		}
	}
	return st.live(now), nil
}

// errDamaged is a state file that is no JSON any more.
var errDamaged = errors.New("it is damaged")

func readState(path string) (state, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return state{}, fmt.Errorf("read state: %w", err)
	}
	var st state
	if err := json.Unmarshal(data, &st); err != nil {
		return state{}, fmt.Errorf("read state %s: %w: %w (move it away to start without what was added from the command line)", path, errDamaged, err)
	}
	return st, nil
}

// recover is load that, where the file is damaged, goes back to the one before
// the last change. Warnings say what is lost.
func (s store) recover(now time.Time) (st state, warning string, err error) {
	defer s.noteWritten()
	st, err = s.load(now)
	if !errors.Is(err, errDamaged) {
		return st, "", err
	}
	old := s
	old.path = s.old()
	before, oldErr := readState(old.path)
	if oldErr != nil || before.Version != stateVersion {
		return st, "", err
	}
	kept, asideErr := s.setAside("damaged")
	if asideErr != nil {
		return st, "", errors.Join(err, asideErr)
	}
	if err := os.Link(old.path, s.path); err != nil {
		return st, "", fmt.Errorf("put the state before the last change back: %w", err)
	}
	st, err = s.load(now)
	return st, fmt.Sprintf("the state file was damaged and is kept as %s: the last change from the command line is lost (see: headgate blocks, headgate rule ls)", kept), err
}

// anchor gives wall-clock ends the monotonic reading of now.
func anchor(list []Entry, now time.Time) {
	for i, e := range list {
		list[i].End = anchored(e.End, now)
	}
}

func anchored(end, now time.Time) time.Time {
	if end.IsZero() {
		return end
	}
	return now.Add(end.Sub(now))
}

// save writes st as it is at now, in one step: a reader sees the old file or
// the new one, also after a crash or on a full disk.
func (s store) save(st state, now time.Time) error {
	st = st.live(now)
	st.Version = stateVersion
	settle(st.Blocks, now)
	settle(st.Allows, now)
	for i, r := range st.Rules {
		st.Rules[i].End = settled(r.End, now)
	}
	st.Posted = st.Posted.moved(func(end time.Time) time.Time { return settled(end, now) })
	st.BlockImports, st.AllowImports = st.BlockImports.settled(now), st.AllowImports.settled(now)
	boot := s.boot()
	st.Saved = savedAt{Wall: now.Round(0).UTC(), Boot: boot.id, Up: boot.since}
	data, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	pending, err := renameio.NewPendingFile(s.path, renameio.WithTempDir(filepath.Dir(s.path)), renameio.WithStaticPermissions(0o600))
	if err == nil {
		defer pending.Cleanup()
		_, err = pending.Write(append(data, '\n'))
	}
	if err == nil {
		s.keepOld()
		err = pending.CloseAtomicallyReplace()
	}
	if err != nil {
		return fmt.Errorf("write state: %w (nothing was changed: make room or let root write there)", err)
	}
	s.noteWritten()
	return nil
}

// settle turns ends into wall-clock times by what remains of them, so that a
// step of the wall clock while running does not get into the file.
func settle(list []Entry, now time.Time) {
	for i, e := range list {
		list[i].End = settled(e.End, now)
	}
}

func settled(end, now time.Time) time.Time {
	if end.IsZero() {
		return end
	}
	return now.Round(0).Add(end.Sub(now)).UTC().Truncate(time.Millisecond)
}

// anchored and settled are anchor and settle for imports, which others share.
// What has ended is left out, so that its file need not be there.
func (list bulks) anchored(now time.Time) bulks {
	return list.moved(now, func(end time.Time) time.Time { return anchored(end, now) })
}

func (list bulks) settled(now time.Time) bulks {
	return list.moved(now, func(end time.Time) time.Time { return settled(end, now) })
}

func (list bulks) moved(now time.Time, move func(time.Time) time.Time) bulks {
	var out bulks
	for _, b := range list {
		if b.End.IsZero() {
			out = append(out, b)
		} else if b.End.After(now) {
			c := *b
			c.End = move(b.End)
			out = append(out, &c)
		}
	}
	return out
}
