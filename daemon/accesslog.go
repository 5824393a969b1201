package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// accessLog is the file that the HTTP gate's process writes its access log to.
// The daemon opens it, since that process has no files, and opens it anew when it
// was moved away, as log rotation does.
type accessLog struct {
	path string
	file *os.File // nil: there is none
	at   fileID
}

// fileID tells a file from another that takes its name.
type fileID struct{ device, inode uint64 }

func idOf(info os.FileInfo) (id fileID) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		id = fileID{uint64(s.Dev), s.Ino}
	}
	return id
}

// openAccessLog opens the file at path, empty for none, and makes it and its
// folder where they are missing.
func openAccessLog(path string) (accessLog, error) {
	if path == "" {
		return accessLog{}, nil
	}
	fail := func(err error) (accessLog, error) {
		var e *os.PathError
		if errors.As(err, &e) {
			err = e.Err
		}
		return accessLog{}, fmt.Errorf("open the access log %s: %w (look at http.access_log.file, and at the rights on its folder)", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fail(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o640)
	if err != nil {
		return fail(err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fail(err)
	}
	return accessLog{path, f, idOf(info)}, nil
}

// moved reports whether another file, or none, has the log's name by now.
func (a *accessLog) moved() bool {
	if a.file == nil {
		return a.path != ""
	}
	info, err := os.Stat(a.path)
	return err != nil || idOf(info) != a.at
}

func (a *accessLog) close() {
	if a.file != nil {
		a.file.Close()
	}
}

// logTo makes fresh the child's access log in the place of the one it has. The
// caller holds h.changing.
func (h *httpGate) logTo(ctx context.Context, c *childLink, fresh accessLog) error {
	if c != nil {
		if err := h.ordered(ctx, c, func(ctx context.Context) error { return c.log(ctx, fresh) }); err != nil {
			return err
		}
	}
	if h.access.file != fresh.file {
		h.access.close()
	}
	h.access = fresh
	return nil
}

// log hands the child the file of its access log.
func (c *childLink) log(ctx context.Context, l accessLog) error {
	var fds []int
	if l.file != nil {
		fds = []int{int(l.file.Fd())}
	}
	a, err := c.ask(ctx, order{Do: orderLog}, fds)
	if err == nil && a.Error != "" {
		err = fmt.Errorf("%w: %s", errRefused, a.Error)
	}
	return err
}

// retryLog is how often a log that could not be opened anew is tried again.
const retryLog = 5 * time.Second

// followLog opens the access log anew when its file was moved away.
func (h *httpGate) followLog(ctx context.Context) {
	h.changing.Lock()
	defer h.changing.Unlock()
	if !h.access.moved() || time.Since(h.logTried) < retryLog {
		return
	}
	fresh, err := openAccessLog(h.access.path)
	if err == nil {
		h.mu.Lock()
		c := h.child
		h.mu.Unlock()
		err = h.logTo(ctx, c, fresh)
	}
	switch {
	case err == nil && h.logFault != nil:
		h.log.Info("the access log is written again", "file", fresh.path)
	case err != nil && h.logFault == nil:
		h.log.Error("the access log cannot be opened anew: lines go on to the old file", "err", err)
	}
	if h.logFault = err; err != nil {
		h.logTried = time.Now()
	}
}
