package l7

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
)

// proxyBuffer holds a header of PROXY protocol version 2 without extensions in
// plenty, and the begin of a request.
const proxyBuffer = 4 << 10

// proxiedConn is a connection of a declared proxy that begins with a header of
// the PROXY protocol, version 1 or 2. The header is read when the server first
// asks for the peer's address or for data, in the connection's own goroutine, so
// that one that is late keeps nobody waiting. Without a whole header in time the
// connection is closed and ends before its first byte: nothing of it is ever
// taken for a request, and nothing is answered.
type proxiedConn struct {
	*steadyConn

	open sync.Once
	in   *bufio.Reader // nil: closed unread
	peer net.Addr      // who the header says it is, else the socket's

	mu      sync.Mutex
	closed  bool
	release func() // of the client's place; nil: it is not bounded
}

// proxied makes a proxiedConn of tcp, unless its peer is no declared proxy.
func (g *Gate) proxied(c *steadyConn) (net.Conn, bool) {
	peer := peerAddr(c.RemoteAddr())
	if !contains(g.policy.Load().proxies, peer) {
		g.end(EndUndeclared, peer)
		return nil, false
	}
	return &proxiedConn{steadyConn: c, peer: c.RemoteAddr()}, true
}

// begin reads the header, once.
func (c *proxiedConn) begin() {
	c.open.Do(func() {
		from := &noted{Reader: c.TCPConn}
		in := bufio.NewReaderSize(from, proxyBuffer)
		c.TCPConn.SetReadDeadline(time.Now().Add(c.gate.proxyTime))
		h, err := proxyproto.Read(in)
		switch {
		case err != nil && in.Buffered() == 0 && from.err == io.EOF:
			// Balancers look in this way whether somebody listens: no fault.
		case err != nil:
			c.gate.end(reasonOf(err, from.err), peerAddr(c.peer))
		case !c.take(h):
			c.gate.end(EndHeld, peerAddr(c.peer))
			err = errHeld
		}
		if err != nil {
			c.TCPConn.SetLinger(0)
			c.Close()
			return
		}
		c.TCPConn.SetReadDeadline(time.Time{})
		c.in = in
	})
}

var errHeld = errors.New("the client holds as many connections as it may")

// noted keeps how reading failed, which the library tells in its own words.
type noted struct {
	io.Reader
	err error
}

func (n *noted) Read(b []byte) (got int, err error) {
	got, n.err = n.Reader.Read(b)
	return got, n.err
}

// reasonOf tells why a header could not be read, from what the library says and
// how the connection failed.
func reasonOf(err, read error) EndReason {
	switch {
	case errors.Is(read, os.ErrDeadlineExceeded):
		return EndLate
	case errors.Is(err, proxyproto.ErrNoProxyProtocol):
		return EndMissing
	}
	return EndMalformed
}

// take puts the header's source in the peer's place and counts the connection
// as its. LOCAL (a health check by the proxy itself) and what is no IP address
// keep the socket's.
func (c *proxiedConn) take(h *proxyproto.Header) bool {
	source, _, ok := h.TCPAddrs()
	if h.Command.IsLocal() || !ok {
		return true
	}
	c.peer = source
	client, most := c.gate.bounds(source)
	if most == 0 {
		return true
	}
	if !c.gate.connections.take(client, most) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.gate.connections.release(client)
		return false
	}
	c.release = func() { c.gate.connections.release(client) }
	return true
}

// RemoteAddr returns the source that the proxy names. It waits for the header.
func (c *proxiedConn) RemoteAddr() net.Addr {
	c.begin()
	return c.peer
}

func (c *proxiedConn) Read(b []byte) (int, error) {
	c.begin()
	switch {
	case c.in == nil:
		return 0, io.EOF
	case c.in.Buffered() > 0:
		return c.in.Read(b)
	}
	return c.steadyConn.Read(b)
}

// WriteTo keeps the header's reader in the way of what io.Copy would read.
func (c *proxiedConn) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{c})
}

func (c *proxiedConn) Close() error {
	c.mu.Lock()
	release := c.release
	c.closed, c.release = true, nil
	c.mu.Unlock()
	if release != nil {
		release()
	}
	return c.steadyConn.Close()
}

// peerAddr is peerOf for a socket's address.
func peerAddr(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return canonical(tcp.AddrPort().Addr())
	}
	return netip.Addr{}
}
