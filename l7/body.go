package l7

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// bodyIdle is how long a client may stop in the middle of a request's body. How
// long the whole takes is not limited.
const bodyIdle = time.Minute

// body is a request's body whose sender must not fall silent. The way to the
// upstream reads and closes it, perhaps after the request was answered: by then
// the connection's deadlines are the server's alone.
type body struct {
	io.ReadCloser
	request *http.Request // that it is of
	conn    *http.ResponseController
	idle    time.Duration

	trailers *trailers // nil: none are passed on

	reading sync.Mutex // held while a read goes on

	mu      sync.Mutex
	closed  bool
	stalled bool // the sender fell silent
	broken  bool // it cannot be read to its end
}

// newBody returns the body of r with a bound on silence; nil if r has none.
func newBody(w http.ResponseWriter, r *http.Request, idle time.Duration) *body {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	return &body{ReadCloser: r.Body, request: r, conn: http.NewResponseController(w), idle: idle}
}

func (b *body) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	b.begin()
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.trailers != nil {
		b.trailers.copy()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(err)
	return n, err
}

// Close may read the rest of a body that the upstream did not want, so that the
// connection can be used again: that too must not take for ever.
func (b *body) Close() error {
	b.begin()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	err := b.ReadCloser.Close()
	b.end(err)
	b.closed = true
	return err
}

// begin gives the sender its time. Where a connection cannot have a deadline,
// none is missed.
func (b *body) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && !b.stalled {
		b.conn.SetReadDeadline(time.Now().Add(b.idle))
	}
}

// end takes the time limit back, unless it was missed: then nothing more is
// waited for. The caller holds b.mu.
func (b *body) end(err error) {
	switch {
	case b.closed:
	case err != nil && err != io.EOF && !errors.Is(err, os.ErrDeadlineExceeded):
		b.broken = true
		endInput(b.request)
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.stalled = true
		endInput(b.request)
	case !b.stalled:
		b.conn.SetReadDeadline(time.Time{})
	}
}

// fellSilent reports whether the sender stopped in the middle. It is asked once
// the request's context is done, which the server sees to before a read that
// failed returns: the wait for that is short.
func (b *body) fellSilent() bool {
	if b == nil {
		return false
	}
	b.reading.Lock()
	defer b.reading.Unlock()
	return b.isStalled()
}

// isStalled is fellSilent of reads that have returned. On HTTP/2 a body whose
// sender is silent leaves the request's context as it is.
func (b *body) isStalled() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stalled
}

// isBroken reports whether the body was cut off, or is framed in a way that
// nobody can read.
func (b *body) isBroken() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broken
}
