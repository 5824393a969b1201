package l7

import (
	"net"
	"sync"
)

// defaultConnections is how many connections one client may hold at a time. A
// browser opens 6 to a host; many people behind one address share the figure.
const defaultConnections = 256

// connections counts the open connections of each client. A client is a socket's
// peer here, by the same prefix as in bucket keys: no header was read yet.
type connections struct {
	mu   sync.Mutex
	held map[[17]byte]int
}

func newConnections() *connections {
	return &connections{held: map[[17]byte]int{}}
}

// take counts one more connection of client, if it holds fewer than most.
func (c *connections) take(client [17]byte, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[client] >= most {
		return false
	}
	c.held[client]++
	return true
}

func (c *connections) release(client [17]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[client]--; c.held[client] == 0 {
		delete(c.held, client)
	}
}

// boundedListener closes what a client opens beyond its connections. Declared
// proxies carry the connections of many clients, and who is allowed passes all
// limits: neither is bounded.
type boundedListener struct {
	net.Listener
	gate    *Gate
	proxied bool // connections begin with the PROXY protocol: see proxiedConn
}

// Accept returns the next connection that may stay. One beyond the bound is
// reset: it costs no answer, and leaves no state in the kernel.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil
		}
		steady := &steadyConn{TCPConn: tcp, gate: l.gate}
		if l.proxied {
			steady.begun = true
			if conn, ok := l.gate.proxied(steady); ok {
				return conn, nil
			}
		} else if conn, ok := l.gate.admit(steady); ok {
			return conn, nil
		}
		tcp.SetLinger(0)
		tcp.Close()
	}
}

// admit counts a connection as its client's, if it may hold one more.
func (g *Gate) admit(c *steadyConn) (net.Conn, bool) {
	client, most := g.bounds(c.RemoteAddr())
	if most == 0 {
		return c, true
	}
	if !g.connections.take(client, most) {
		g.end(EndHeld, peerAddr(c.RemoteAddr()))
		return nil, false
	}
	return &boundedConn{c, sync.OnceFunc(func() { g.connections.release(client) })}, true
}

// bounds returns the client that a connection of remote belongs to, and how many
// such it may hold; 0 is any number. Who holds more after a reload keeps them.
func (g *Gate) bounds(remote net.Addr) (client [17]byte, most int) {
	p, peer := g.policy.Load(), peerAddr(remote)
	if !peer.IsValid() || contains(p.proxies, peer) || contains(p.allow, peer) {
		return client, 0
	}
	return clientOf(peer, p.clientBits), p.connections
}

// boundedConn is a connection that counts until it is closed, by whomever: an
// upgraded one leaves the server and counts on.
type boundedConn struct {
	*steadyConn
	done func()
}

func (c *boundedConn) Close() error {
	defer c.done()
	return c.steadyConn.Close()
}
