package l7

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// newRefusingRig is a gate that refuses each POST but the first.
func newRefusingRig(t *testing.T, tune func(*Gate)) *rig {
	rule := ruleOf(t, "up", "client", "1/1h")
	rule.Match.Methods = []string{"POST"}
	r := newTunedRig(t, Policy{Rules: []config.Rule{rule}}, "127.0.0.1:0", nil, tune)
	want(t, "the first", r.client("127.0.0.2").do("POST", "/", "Content-Length: 0").status, 200)
	return r
}

// A refusal does not wait for the body, and after a small one the connection
// goes on.
func TestRefusedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRefusingRig(t, func(g *Gate) { g.drainTime = time.Hour })
	c := r.client("127.0.0.2")
	io.WriteString(c.conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
	got, last := c.read("POST")
	want(t, "status", got.status, 429)
	want(t, "the last on its connection", last, false)
	io.WriteString(c.conn, "andmor")
	want(t, "the next on the same connection", c.get().status, 200)

	// The rest of one that never comes is not waited for.
	r = newRefusingRig(t, func(g *Gate) { g.drainTime = 50 * time.Millisecond })
	c = r.client("127.0.0.2")
	io.WriteString(c.conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
	got, _ = c.read("POST")
	want(t, "status", got.status, 429)
	if n, err := c.conn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the connection stays: %d, %v", n, err)
	}
}

// What comes late of a body is never taken for a request, when the upstream
// answered before it had read all and the client paused.
func TestPausedBody(t *testing.T) {
	t.Parallel()
	up := newRawUpstream(t, func(_ int, conn net.Conn, in *bufio.Reader) {
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			io.Copy(io.Discard, r.Body)
		}
	})
	r := newRawRig(t, Policy{}, up, func(g *Gate) { g.bodyIdle = time.Second })
	c := r.client("127.0.0.2")
	io.WriteString(c.conn, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
	got, _ := c.read("POST")
	if got.status != 200 && got.status != 408 { // the latter on a machine that slept meanwhile
		t.Errorf("answered %d", got.status)
	}
	if b, err := io.ReadAll(c.in); len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays: %q, %v", b, err)
	}
	io.WriteString(c.conn, hidden)
	c = r.client("127.0.0.2")
	want(t, "another", c.get().status, 200)
	if strings.Contains(up.got(), "/hidden") {
		t.Error("the rest of the body was read as a request")
	}
}

// A client that sends its whole body first sees why it was refused, and so does
// one that sends far too much, of which most is never read.
func TestRefusedUploads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, framing, begin string
		size                 int // of the whole body
	}{
		{"large", "Content-Length: 900000", "", 900_000},
		{"in chunks", "Transfer-Encoding: chunked", "fffffff\r\n", 900_000},
		{"huge", "Content-Length: 1000000000", "", 1_000_000_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRefusingRig(t, nil)
			client := r.client("127.0.0.2")
			fmt.Fprintf(client.conn, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n%s", c.framing, c.begin)
			var sent atomic.Int64
			done := make(chan error, 1)
			go func() {
				piece := bytes.Repeat([]byte("b"), 100_000)
				var err error
				for sent.Load() < int64(c.size) && err == nil {
					var n int
					n, err = client.conn.Write(piece)
					sent.Add(int64(n))
				}
				done <- err
			}()
			if c.size < drainBytes {
				if err := <-done; err != nil {
					t.Errorf("met %v before it had sent all", err)
				}
			}
			got, last := client.read("POST")
			want(t, "status", got.status, 429)
			want(t, "the last on its connection", last, true)
			if c.size < drainBytes {
				return
			}
			if err := <-done; err == nil {
				t.Error("it was let send all")
			}
			if n := sent.Load(); n > 100<<20 { // the kernel's buffers are part of it
				t.Errorf("%d bytes were taken", n)
			}
		})
	}
}

// RFC 9110, 10.1.1: who waits for a word before it sends a body hears it from
// the upstream when the request is admitted, and a refusal instead otherwise.
func TestExpectByTheByte(t *testing.T) {
	t.Parallel()
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s, expected %q", body, r.Header.Get("Expect"))
	})
	r := newRigOn(t, Policy{Rules: []config.Rule{ruleOf(t, "up", "client", "1/1h")}}, "127.0.0.1:0", upstream)
	const head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
	c := r.client("127.0.0.2")
	io.WriteString(c.conn, head)
	line, err := c.in.ReadString('\n')
	if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	c.in.ReadString('\n')
	io.WriteString(c.conn, "body")
	got, _ := c.read("POST")
	want(t, "admitted", got.body, `body, expected "100-continue"`)

	io.WriteString(c.conn, head)
	got, last := c.read("POST")
	want(t, "refused", got.status, 429)
	want(t, "the last on its connection", last, true)
	if n, err := c.conn.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the connection stays: %d, %v", n, err)
	}
}

// A client that sends its head by the byte is let go.
func TestSlowHead(t *testing.T) {
	t.Parallel()
	r := newTunedRig(t, Policy{}, "127.0.0.1:0", nil, func(g *Gate) { g.headerTime = 100 * time.Millisecond })
	for _, begin := range []string{"", "G", "GET / HTTP/1.1\r\nHost: a\r\nX: ", "PRI * HTTP/2.0\r\n"} {
		c := r.client("127.0.0.2")
		io.WriteString(c.conn, begin)
		if b, err := io.ReadAll(c.conn); err != nil || strings.Contains(string(b), " 200 ") {
			t.Errorf("%q: %q, %v", begin, b, err)
		}
	}
	want(t, "another", r.client("127.0.0.3").get().status, 200)
}

// A client that takes nothing of its answer does not hold the upstream, on
// HTTP/1 and after an upgrade either; one that only has nothing to say does.
func TestDeafClient(t *testing.T) {
	t.Parallel()
	ended := make(chan string, 2)
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- r.URL.Path }()
		var to io.Writer = w
		if r.URL.Path != "/plain" {
			conn, in, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			if r.URL.Path == "/quiet" {
				io.Copy(conn, in)
				return
			}
			to = conn
		}
		io.Copy(to, zeros{})
	})
	r := newTunedRig(t, Policy{}, "127.0.0.1:0", upstream, func(g *Gate) { g.deafTime = 100 * time.Millisecond })
	for _, path := range []string{"/plain", "/upgraded"} {
		c := r.client("127.0.0.2")
		io.WriteString(c.conn, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		select {
		case got := <-ended:
			want(t, "let go", got, path)
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: the upstream is held", path)
		}
	}
	c := r.client("127.0.0.2")
	io.WriteString(c.conn, "GET /quiet HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	c.in.ReadString('\n')
	for range 3 {
		time.Sleep(150 * time.Millisecond) // longer than anybody may be deaf
		io.WriteString(c.conn, "echo\n")
		for line := ""; line != "echo\n"; {
			var err error
			if line, err = c.in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
}
