package l7

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/logbuffer"
)

// rawUpstream is a server that keeps every byte it is sent, a buffer each
// connection, and leaves it to serve what to do with them.
type rawUpstream struct {
	ln net.Listener

	mu    sync.Mutex
	conns []*bytes.Buffer
}

// lockedTap copies what is read into a buffer of its upstream.
type lockedTap struct {
	net.Conn
	up *rawUpstream
	to *bytes.Buffer
}

func (t *lockedTap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.up.mu.Lock()
	defer t.up.mu.Unlock()
	t.to.Write(p[:n])
	return n, err
}

// newRawUpstream calls serve for each connection, the first is number 0, and
// closes it after.
func newRawUpstream(t testing.TB, serve func(number int, conn net.Conn, in *bufio.Reader)) *rawUpstream {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &rawUpstream{ln: ln}
	var serving sync.WaitGroup
	t.Cleanup(func() { ln.Close(); serving.Wait() })
	serving.Go(func() {
		for number := 0; ; number++ {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.SetDeadline(time.Now().Add(30 * time.Second))
			tap := &lockedTap{conn, u, new(bytes.Buffer)}
			u.mu.Lock()
			u.conns = append(u.conns, tap.to)
			u.mu.Unlock()
			serving.Go(func() {
				defer conn.Close()
				serve(number, conn, bufio.NewReader(tap))
			})
		}
	})
	return u
}

// newObedientUpstream answers each request that it understands with 200 and
// what it asked for, until one has no sense or no end.
func newObedientUpstream(t testing.TB) *rawUpstream {
	return newRawUpstream(t, func(_ int, conn net.Conn, in *bufio.Reader) {
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			text := fmt.Sprintf("%s %s at %s: %s", r.Method, r.RequestURI, r.Host, body)
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		}
	})
}

// got returns what has come so far, all connections in a row.
func (u *rawUpstream) got() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all strings.Builder
	for _, b := range u.conns {
		all.Write(b.Bytes())
	}
	return all.String()
}

func (u *rawUpstream) url() string { return "http://" + u.ln.Addr().String() }

// newRawRig is a gate before u.
func newRawRig(t testing.TB, p Policy, u *rawUpstream, tune func(*Gate)) *rig {
	t.Helper()
	r := &rig{t: t, logs: new(logbuffer.Buffer), served: make(chan error, 1), tune: tune}
	r.startAs(p, "127.0.0.1:0", config.Listener{Door: "proxy", Upstream: u.url()})
	return r
}

// say sends bytes as they are on a new connection, and returns all that comes
// back until the gate ends it. open tells that it had to be ended from here.
func (r *rig) say(from, text string) (back string, open bool) {
	r.t.Helper()
	c := r.client(from)
	if _, err := io.WriteString(c.conn, text); err != nil {
		r.t.Fatal(err)
	}
	var all bytes.Buffer
	for {
		resp, err := http.ReadResponse(c.in, nil)
		if err != nil {
			break // the end, or a reset after the last answer
		}
		body, _ := io.ReadAll(resp.Body)
		fmt.Fprintf(&all, "%d %s\n", resp.StatusCode, body)
		if !resp.Close && resp.StatusCode >= 200 {
			open = true
			break
		}
	}
	return all.String(), open
}
