package l7

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// rawUpstream answers whatever looks like a request line, and keeps every byte
// that came: it reads requests as loosely as a server can.
type rawUpstream struct {
	net.Listener
	mu   sync.Mutex
	seen strings.Builder
}

func newRawUpstream(t *testing.T) *rawUpstream {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &rawUpstream{Listener: ln}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go u.serve(conn)
		}
	}()
	return u
}

// serve answers each request when its head is whole, and reads its body by
// length or chunks as net/http does.
func (u *rawUpstream) serve(conn net.Conn) {
	defer conn.Close()
	b := bufio.NewReader(io.TeeReader(conn, u))
	for {
		r, err := http.ReadRequest(b)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

func (u *rawUpstream) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen.Write(p)
}

func (u *rawUpstream) bytes() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen.String()
}

var statusLine = regexp.MustCompile(`HTTP/1\.[01] (\d{3})`)

// say sends raw bytes on a connection of its own and returns all that comes back
// until it is closed, or silent.
func (r *rig) say(raw string) string {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, raw)
	var got strings.Builder
	buf := make([]byte, 4096)
	for {
		conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := conn.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			return got.String()
		}
	}
}

// No shape of a request makes the upstream see one that the gate did not decide:
// whatever hides in lengths, chunks, lines or names is refused, or is sent on in
// one form that all read alike.
func TestSmuggling(t *testing.T) {
	const hidden = "POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
	head := func(lines ...string) string {
		return strings.Join(append([]string{"POST /up HTTP/1.1", "Host: a"}, lines...), "\r\n") + "\r\n\r\n"
	}
	for _, c := range []struct {
		name, raw string
		status    string // of the answers, in order
		logins    int    // that the upstream saw
	}{
		{"length beside chunks", head("Content-Length: 5", "Transfer-Encoding: chunked") + "0\r\n\r\n" + hidden, "200", 0},
		{"chunks, then another request", head("Transfer-Encoding: chunked") + "0\r\n\r\n" + hidden, "200", 0},
		{"two lengths", head("Content-Length: 0", "Content-Length: 52") + hidden, "400", 0},
		{"a list of lengths", head("Content-Length: 0, 52") + hidden, "400", 0},
		{"length with a sign", head("Content-Length: +0") + hidden, "400", 0},
		{"negative length", head("Content-Length: -1") + hidden, "400", 0},
		{"unknown coding", head("Transfer-Encoding: xchunked") + hidden, "501", 0},
		{"coding twice", head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + "0\r\n\r\n" + hidden, "400 501", 0},
		{"chunked, identity", head("Transfer-Encoding: chunked, identity") + "0\r\n\r\n" + hidden, "400 501", 0},
		{"coding after a tab", head("Transfer-Encoding:\tchunked") + "0\r\n\r\n" + hidden, "200", 0},
		{"coding after a line feed", head("X: a\nTransfer-Encoding: chunked") + "0\r\n\r\n" + hidden, "200", 0},
		{"folded coding", head("Transfer-Encoding:", " chunked") + "0\r\n\r\n" + hidden, "200 400 501", 0},
		{"space before the colon", head("Content-Length : 52") + hidden, "400", 0},
		{"coding of HTTP/1.0", "POST /up HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n" + hidden, "200 400 501", 0},
		{"size of a chunk too large", head("Transfer-Encoding: chunked") + "10000000000000000\r\n" + hidden, "400", 0},
		{"chunk without its end", head("Transfer-Encoding: chunked") + "1\r\naX" + hidden, "400", 0},
		{"chunk extension", head("Transfer-Encoding: chunked") + "1;a=\"b\"\r\nx\r\n0\r\n\r\n", "200", 0},
		{"NUL in a value", head("X: a\x00b"), "400", 0},
		{"control in a name", head("X\x01: a"), "400", 0},
		{"no name", head(": a"), "400", 0},
		{"two hosts", head("Host: b"), "400", 0},
		{"no host", "GET /up HTTP/1.1\r\n\r\n", "400", 0},
		{"host with a path", "GET /up HTTP/1.1\r\nHost: a/b\r\n\r\n", "400", 0},
		{"host with a user", "GET /up HTTP/1.1\r\nHost: a@b\r\n\r\n", "400", 0},
		{"host with a space", "GET /up HTTP/1.1\r\nHost: a b\r\n\r\n", "400", 0},
		{"fragment", "GET /up#/login HTTP/1.1\r\nHost: a\r\n\r\n", "400", 0},
		{"tunnel", "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", "405", 0},
		{"two requests, both decided", head("Content-Length: 0") + hidden, "200 200", 1},
		{"a line with a bare return", "GET /up HTTP/1.1\rX: y\r\nHost: a\r\n\r\n", "400", 0},
		{"version 2 in a line", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			up := newRawUpstream(t)
			r := newListenerRig(t, Policy{}, config.Listener{Door: "proxy", Upstream: "http://" + up.Addr().String()}, nil)
			answers := r.say(c.raw)
			var got []string
			for _, m := range statusLine.FindAllStringSubmatch(answers, -1) {
				got = append(got, m[1])
			}
			statuses := strings.Join(got, " ")
			if one := len(got) == 1 && strings.Contains(c.status, statuses); statuses != c.status && !one {
				t.Errorf("answered %q, want %q", statuses, c.status)
			}
			seen := up.bytes()
			if n := strings.Count(seen, "POST /login "); n != c.logins {
				t.Errorf("the upstream saw %d logins, want %d: %q", n, c.logins, seen)
			}
			// One whose body turns out broken may have begun upstream; its
			// connection ends there, too.
			broken := statuses == "400" && strings.Contains(c.name, "chunk") && !strings.Contains(seen, "0\r\n\r\n")
			if n := strings.Count(seen, " HTTP/1.1\r\n"); n != strings.Count(statuses, "200") && !broken {
				t.Errorf("the upstream saw %d requests and the client %q", n, statuses)
			}
			if strings.Contains(seen, "Transfer-Encoding") && strings.Contains(seen, "Content-Length") {
				t.Errorf("the upstream got a length and chunks: %q", seen)
			}
		})
	}
}

// Many field lines cost more than their bytes, and large ones their memory.
func TestTooManyFields(t *testing.T) {
	t.Parallel()
	r := newRig(t, Policy{})
	for _, c := range []struct {
		name, lines, want string
	}{
		{"few", strings.Repeat("X: y\r\n", 100), "200"},
		{"many", strings.Repeat("X: y\r\n", 300), "431"},
		{"large", "X: " + strings.Repeat("y", 2<<20) + "\r\n", "431"},
	} {
		got := r.say("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + c.lines + "\r\n")
		if m := statusLine.FindStringSubmatch(got); m == nil || m[1] != c.want {
			t.Errorf("%s: %.80q, want %s", c.name, got, c.want)
		}
	}
}
