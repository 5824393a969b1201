package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watcher tells when files may have changed. It watches their folders, because
// editors and Kubernetes put a new file or symlink in the place of the old one,
// and it looks at them now and then, because a network file system or a symlink
// out of the folder raises no event here.
type watcher struct {
	log   *slog.Logger
	files func() []string
	quiet time.Duration // without events before it tells: an editor writes in steps
	most  time.Duration // it waits for quiet
	poll  time.Duration
}

// run calls changed at once, for what changed before it watched, and after each
// burst of changes, until ctx ends.
func (w watcher) run(ctx context.Context, changed func()) error {
	n, events, failures := w.listen()
	if n != nil {
		defer n.Close()
	}
	poll := time.NewTicker(w.poll)
	defer poll.Stop()
	seen := w.look()
	changed()
	var quiet <-chan time.Time
	var since time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failures:
			w.log.Warn("watch config: looking at it now and then only", "err", err)
		case <-events:
			now := time.Now()
			if quiet == nil {
				since = now
			}
			quiet = time.After(max(0, min(w.quiet, w.most-now.Sub(since))))
		case <-quiet:
			quiet, seen = nil, w.look()
			changed()
		case <-poll.C:
			w.addFolders(n) // one may be new, or have been made anew
			if now := w.look(); now != seen && quiet == nil {
				seen = now
				changed()
			}
		}
	}
}

// listen opens the event source. Without one, polling does all.
func (w watcher) listen() (*fsnotify.Watcher, <-chan fsnotify.Event, <-chan error) {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.Warn("watch config: looking at it now and then only", "err", err)
		return nil, nil, nil
	}
	w.addFolders(n)
	return n, n.Events, n.Errors
}

// addFolders watches the folders of all files; to add one again does nothing.
// A folder that cannot be watched is left to polling.
func (w watcher) addFolders(n *fsnotify.Watcher) {
	if n == nil {
		return
	}
	for _, f := range w.files() {
		if err := n.Add(filepath.Dir(f)); err != nil {
			w.log.Debug("watch folder", "folder", filepath.Dir(f), "err", err)
		}
	}
}

// look returns something that differs when a file does: what the symlinks lead
// to, its size and its time of change.
func (w watcher) look() string {
	var seen []byte
	for _, f := range w.files() {
		st, err := os.Stat(f)
		if err != nil {
			seen = fmt.Appendln(seen, err)
			continue
		}
		end, _ := filepath.EvalSymlinks(f)
		seen = fmt.Appendln(seen, end, st.Size(), st.ModTime().UnixNano())
	}
	return string(seen)
}
