package l7

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/limit"
)

const (
	// resetCost and resetBurst are how fast the client of an HTTP/2 connection may
	// take its requests back: 100/s, 500 at once. Each costs its rules a request,
	// and the upstream, where it speaks HTTP/1, a connection; no page or caller
	// gives up so much for long (CVE-2023-44487).
	resetCost  = 10 * time.Millisecond
	resetBurst = 500 * resetCost
)

// connection is what the gate knows of a connection, in the context of each of
// its requests.
type connection struct {
	origin atomic.Pointer[origin]
	conn   net.Conn
	resets atomic.Uint64 // theoretical arrival time of the next
	over   atomic.Bool   // it was ended for them
}

type connectionKey struct{}

// keepConnection is a http.Server.ConnContext. The address is not asked for
// before a request is there: with the PROXY protocol it comes with the first
// bytes.
func keepConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{conn: conn})
}

func connectionOf(r *http.Request) *connection {
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	return c
}

// noteReset counts r if its client took it back, and ends the connection of one
// that does little else.
func (g *Gate) noteReset(r *http.Request, from *asker) {
	if r.ProtoMajor < 2 || r.Context().Err() == nil {
		return
	}
	c := connectionOf(r)
	if c == nil || c.mayReset(g.now()) || c.over.Swap(true) {
		return
	}
	g.end(EndResets, from.peer)
	c.socket().Close() // for TLS to say goodbye could take long
}

// socket is the connection below TLS.
func (c *connection) socket() net.Conn {
	if secured, ok := c.conn.(*tls.Conn); ok {
		return secured.NetConn()
	}
	return c.conn
}

// endInput makes sure that nothing more is read from the connection of r, on
// HTTP/1: what comes late of a body must never be taken for another request.
func endInput(r *http.Request) {
	if c := connectionOf(r); c != nil && r.ProtoMajor == 1 {
		if conn, ok := c.socket().(interface{ endInput() }); ok {
			conn.endInput()
		}
	}
}

func (c *connection) mayReset(now limit.Ticks) bool {
	for {
		old := c.resets.Load()
		next, ok := limit.Take(old, now, limit.FromDuration(resetCost), limit.FromDuration(resetBurst))
		if !ok || c.resets.CompareAndSwap(old, next) {
			return ok
		}
	}
}
