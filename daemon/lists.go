package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/headgate/headgate/config"
)

// keptList is one list of the config: what it holds and how it fares. It is a
// value: a refresh makes a new one.
type keptList struct {
	config.List
	prefixes []netip.Prefix // sorted, no two the same
	read     time.Time      // when the source held them; zero: never read
	tried    time.Time      // when it was last asked; zero: not since the start
	etag     string
	err      error // of the last try
}

// errNotRead is how a list fares that waits for its first answer.
var errNotRead = errors.New("not read yet")

// lists reads lists and keeps a copy of the last good content of each under
// state.dir/lists, for the time when the source is down or broken.
type lists struct {
	log    *slog.Logger
	config string // path of the config, which files are relative to
	copies string
	fetch  fetcher
}

// source is where a list comes from.
func (ls *lists) source(l config.List) string {
	switch {
	case l.URL != "":
		return l.URL
	case filepath.IsAbs(l.File):
		return l.File
	}
	return filepath.Join(filepath.Dir(ls.config), l.File)
}

// open returns the lists of a config as they can be had at once: files are
// read, of those with an address the copy counts until it is asked. was are the
// lists in force, which go on where their definition is the same. A file that
// cannot be read and has no copy is an error: rules would not do what they say.
func (ls *lists) open(cfg *config.Config, was map[string]keptList, now time.Time) (map[string]keptList, error) {
	all := map[string]keptList{}
	var errs []error
	for _, l := range cfg.Lists {
		old, had := was[l.Name]
		had = had && old.List == l
		if l.URL != "" && had {
			all[l.Name] = old
			continue
		}
		k := keptList{List: l, err: errNotRead}
		if l.File != "" {
			k = ls.readFile(l, now)
		}
		if k.err != nil && had {
			k.prefixes, k.read = old.prefixes, old.read
		} else if k.err != nil {
			k.prefixes, k.read = ls.lastGood(l)
		}
		if l.File != "" && k.err != nil && k.read.IsZero() {
			errs = append(errs, fmt.Errorf("list %s: %w", l.Name, k.err))
		} else if l.File != "" && k.err != nil {
			ls.log.Error("read list: its last good content stays", "list", l.Name, "err", k.err)
		}
		all[l.Name] = k
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &ConfigError{err}
	}
	return all, nil
}

// readFile reads a list from its file.
func (ls *lists) readFile(l config.List, now time.Time) keptList {
	k := keptList{List: l, tried: now}
	path := ls.source(l)
	f, err := os.Open(path)
	if err != nil {
		k.err = fmt.Errorf("%w (make it, or change lists.%s.file)", err, l.Name)
		return k
	}
	defer f.Close()
	read, err := config.ReadPrefixes(path, f)
	if k.err = broken(read, err); k.err == nil {
		k.prefixes, k.read = read.Prefixes, now
	}
	return k
}

// broken is what keeps a list from being used: a list is used whole, because
// nobody looks at what would be left out of it. The first lines are named.
func broken(f config.PrefixFile, err error) error {
	const named = 3
	if err != nil || len(f.Broken) == 0 {
		return err
	}
	first := f.Broken[:min(named, len(f.Broken))]
	text := strings.ReplaceAll(first.Error(), "\n", "; ")
	if more := len(f.Broken) - len(first); more > 0 {
		text += fmt.Sprintf("; and %d more broken lines", more)
	}
	return errors.New(text)
}

// The first line of a copy says where it came from, and its time of change is
// when the source held it.
func (ls *lists) copyOf(name string) string { return filepath.Join(ls.copies, name+".txt") }

func (ls *lists) headOf(l config.List) string { return "# " + ls.source(l) + "\n" }

// keep makes what k holds the last good copy.
func (ls *lists) keep(k keptList) error {
	if err := os.MkdirAll(ls.copies, 0o700); err != nil {
		return err
	}
	path := ls.copyOf(k.Name)
	if held, _ := ls.lastGood(k.List); slices.Equal(held, k.prefixes) && len(held) > 0 {
		return os.Chtimes(path, k.read, k.read)
	}
	if err := renameio.WriteFile(path, append([]byte(ls.headOf(k.List)), prefixLines(k.prefixes)...), 0o600); err != nil {
		return err
	}
	return os.Chtimes(path, k.read, k.read)
}

// lastGood returns the copy, if it came from the same source.
func (ls *lists) lastGood(l config.List) ([]netip.Prefix, time.Time) {
	path := ls.copyOf(l.Name)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.HasPrefix(data, []byte(ls.headOf(l))) {
		return nil, time.Time{}
	}
	var f config.PrefixFile
	var st os.FileInfo
	if err == nil {
		st, err = os.Stat(path)
	}
	if err == nil {
		f, err = config.ReadPrefixes(path, bytes.NewReader(data))
	}
	if err = broken(f, err); err != nil {
		ls.log.Error("read the last good copy of a list", "list", l.Name, "err", err)
		return nil, time.Time{}
	}
	return f.Prefixes, st.ModTime()
}

// named is what the lists hold, by name.
func named(kept map[string]keptList) map[string][]netip.Prefix {
	out := make(map[string][]netip.Prefix, len(kept))
	for name, k := range kept {
		out[name] = k.prefixes
	}
	return out
}

// keepAll makes copies of what was just read.
func (ls *lists) keepAll(kept map[string]keptList) {
	for _, k := range kept {
		if k.err != nil {
			continue
		}
		if err := ls.keep(k); err != nil {
			ls.log.Error("keep a copy of the list: a restart may not find it", "list", k.Name, "err", err)
		}
	}
}

// listFiles are the files of lists, which are watched.
func (d *daemon) listFiles() (paths []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.kept {
		if k.File != "" {
			paths = append(paths, d.lists.source(k.List))
		}
	}
	slices.Sort(paths)
	return paths
}

// listStatus tells how each list fares, in the order of the config. The caller
// holds d.mu.
func (d *daemon) listStatus() []ListStatus {
	var out []ListStatus
	for _, l := range d.policy.cfg.Lists {
		k := d.kept[l.Name]
		s := ListStatus{Name: l.Name, Source: d.lists.source(l), Prefixes: len(k.prefixes)}
		if !k.read.IsZero() {
			s.Read = k.read.Round(0).UTC().Truncate(time.Second)
			s.Age = max(0, int64(d.now().Sub(k.read)/time.Second))
		}
		if k.err != nil {
			s.Error = k.err.Error()
		}
		out = append(out, s)
	}
	return out
}
