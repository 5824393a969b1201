package l7

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// steadyConn is a connection from a client of any kind. A client that takes
// nothing of what it is sent for a while is cut off, however it keeps the
// connection alive; one that is slow is not. What begins with the PROXY protocol
// although none is expected ends before its first byte.
type steadyConn struct {
	*net.TCPConn
	gate *Gate

	begun bool        // something was read
	over  atomic.Bool // nothing more is
	own   atomic.Bool // whoever has the connection set a deadline of its own
}

func (c *steadyConn) Read(b []byte) (int, error) {
	if c.over.Load() {
		return 0, io.EOF
	}
	n, err := c.TCPConn.Read(b)
	if c.begun || n == 0 {
		return n, err
	}
	if c.begun = true; beginsProxied(b[:n]) {
		c.gate.end(EndUnexpected, peerAddr(c.RemoteAddr()))
		c.endInput()
		c.SetLinger(0)
		c.Close()
		return 0, io.EOF
	}
	return n, err
}

// beginsProxied reports whether b is the begin of a header of the PROXY protocol
// that came in one piece.
func beginsProxied(b []byte) bool {
	return bytes.HasPrefix(b, []byte("PROXY ")) || bytes.HasPrefix(b, []byte("\r\n\r\n\x00\r\nQUIT\n"))
}

// endInput makes the connection end for whoever reads from it; what is still to
// be sent is sent.
func (c *steadyConn) endInput() { c.over.Store(true) }

func (c *steadyConn) Write(b []byte) (n int, err error) {
	for {
		if !c.own.Load() {
			c.TCPConn.SetWriteDeadline(time.Now().Add(c.gate.deafTime))
		}
		m, err := c.TCPConn.Write(b[n:])
		if n += m; err == nil || m == 0 || c.own.Load() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

// SetWriteDeadline takes the place of the deadline of each write, until it is
// called with the zero time.
func (c *steadyConn) SetWriteDeadline(t time.Time) error {
	c.own.Store(!t.IsZero())
	return c.TCPConn.SetWriteDeadline(t)
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *steadyConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// ReadFrom keeps Write in the way of what io.Copy would write.
func (c *steadyConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}
