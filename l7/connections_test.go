package l7

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// opens dials from an address and reports whether the connection may stay: it
// is answered then, and reset otherwise.
func (r *rig) opens(from string) (net.Conn, bool) {
	r.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.Dial("tcp", r.addr)
	if errors.Is(err, syscall.ECONNRESET) {
		return nil, false
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second)) // a hang fails, it never decides
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return conn, false
	}
	n, _ := conn.Read(make([]byte, 4096))
	return conn, n > 0
}

// One client cannot hold all connections: those beyond its bound are reset and
// counted, and others are served. Declared proxies and who is allowed may hold
// as many as they open.
func TestConnectionsPerClient(t *testing.T) {
	policy := Policy{HTTP: behind("127.0.0.3"), Allow: prefixes("127.0.0.4")}
	policy.HTTP.Connections = 5
	r := newRig(t, policy)
	var first net.Conn
	for i := range 9 {
		conn, ok := r.opens("127.0.0.2")
		if first == nil {
			first = conn
		}
		want(t, "connection of one client", ok, i < 5)
		for _, other := range []string{"127.0.0.3", "127.0.0.4"} {
			if _, ok := r.opens(other); !ok {
				t.Errorf("connection %d of %s was refused", i+1, other)
			}
		}
	}
	if _, ok := r.opens("127.0.0.5"); !ok {
		t.Error("another client was refused")
	}
	want(t, "refused", r.gate.EndedConnections()[EndHeld], 4)

	// A place is free once the server has seen the end of a connection.
	first.Close()
	for end := time.Now().Add(30 * time.Second); ; {
		if _, ok := r.opens("127.0.0.2"); ok {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a connection that was closed is still counted")
		}
	}
}

// What is upgraded leaves the server, and is a connection all the same until it
// ends; then nothing is kept of the client.
func TestConnectionsAreForgotten(t *testing.T) {
	c := newConnections()
	who := clientOf(prefixes("2001:db8::1")[0].Addr(), 64)
	for range defaultConnections {
		if !c.take(who, defaultConnections) {
			t.Fatal("refused too early")
		}
	}
	if c.take(clientOf(prefixes("2001:db8::2")[0].Addr(), 64), defaultConnections) {
		t.Error("an address of the same /64 has connections of its own")
	}
	for range defaultConnections {
		c.release(who)
	}
	want(t, "clients kept", len(c.held), 0)
}

// A client that stops in the middle of a body is answered 408 and let go; one
// that is slow but steady is not.
func TestBodyMustKeepComing(t *testing.T) {
	r := newTunedRig(t, Policy{}, "127.0.0.1:0", nil, func(g *Gate) { g.bodyIdle = 200 * time.Millisecond })
	c := r.client("127.0.0.2")
	io.WriteString(c.conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
	got, last := c.read("POST")
	want(t, "status", got.status, 408)
	want(t, "the last on its connection", last, true)
	if n, err := c.conn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the connection stays: %d, %v", n, err)
	}
	want(t, "answers 408", r.gate.Answers()[408], 1)

	r = newRig(t, Policy{})
	c = r.client("127.0.0.2")
	io.WriteString(c.conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
	for _, part := range []string{"a", "b", "c"} {
		io.WriteString(c.conn, part)
	}
	got, _ = c.read("POST")
	want(t, "status", got.status, 200)
	want(t, "the next on the same connection", c.get().status, 200)
}
