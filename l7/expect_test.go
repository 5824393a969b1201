package l7

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/headgate/headgate/config"
)

// takes is an upstream that reads bodies and tells how much came.
func takes() (http.Handler, *atomic.Int64) {
	n := new(atomic.Int64)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ := io.Copy(io.Discard, r.Body)
		n.Add(got)
		fmt.Fprint(w, got)
	}), n
}

func curl(t *testing.T, stdin io.Reader, args ...string) string {
	t.Helper()
	cmd := exec.Command("curl", append([]string{"-sS", "--max-time", "20", "-w", " %{http_code}"}, args...)...)
	cmd.Stdin = stdin
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("curl: %v: %s", err, out)
	}
	return string(out)
}

// A client that waits before it sends a body is told to go on when it is
// admitted, and is refused before it sends anything when it is not.
func TestExpect(t *testing.T) {
	t.Parallel()
	upstream, came := takes()
	r := newRigOn(t, Policy{Rules: []config.Rule{ruleOf(t, "up", "client", "limit 1/1m")}}, "127.0.0.1:0", upstream)
	body := strings.Repeat("x", 3<<20)
	// curl waits a minute for the word to go on: without it this would time out.
	args := []string{"-H", "Expect: 100-continue", "--expect100-timeout", "60", "--data-binary", "@-", "http://" + r.addr + "/up"}
	if got := curl(t, strings.NewReader(body), args...); got != fmt.Sprint(len(body), " 200") {
		t.Errorf("admitted: %s", got)
	}
	if got := curl(t, strings.NewReader(body), append([]string{"-o", "/dev/null"}, args...)...); got != " 429" {
		t.Errorf("refused: %s", got)
	}
	want(t, "bytes at the upstream", came.Load(), int64(len(body)))
}

// A refused upload is answered before it has come in, and the answer reaches a
// client that sends it all first.
func TestLargeUploadRefused(t *testing.T) {
	t.Parallel()
	upstream, came := takes()
	r := newRigOn(t, Policy{Rules: []config.Rule{ruleOf(t, "up", "client", "limit 1/1m")}}, "127.0.0.1:0", upstream)
	want(t, "the first", r.client("127.0.0.1").do("GET", "/").status, 200)
	for _, size := range []int{100 << 10, 100 << 20} {
		body := io.LimitReader(zeros{}, int64(size))
		got := curl(t, body, "-H", "Expect:", "-H", "Content-Type: application/octet-stream", "-X", "POST",
			"-H", fmt.Sprint("Content-Length: ", size), "-T", "-", "-o", "/dev/null", "http://"+r.addr+"/up")
		if got != " 429" {
			t.Errorf("%d bytes: %s", size, got)
		}
	}
	want(t, "bytes at the upstream", came.Load(), 0)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// h2conn is one connection of HTTP/2 in the clear, frame by frame.
type h2conn struct {
	t *testing.T
	net.Conn
	*http2.Framer
	head bytes.Buffer
	enc  *hpack.Encoder
}

func (r *rig) frames(t *testing.T) *h2conn {
	t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, http2.ClientPreface)
	c := &h2conn{t: t, Conn: conn, Framer: http2.NewFramer(conn, conn)}
	c.enc = hpack.NewEncoder(&c.head)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := c.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

// request opens a stream with a head of pairs.
func (c *h2conn) request(stream uint32, end bool, pairs ...string) error {
	c.head.Reset()
	for i := 0; i < len(pairs); i += 2 {
		c.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.head.Bytes(), EndStream: end, EndHeaders: true})
}

// status returns the status of a stream, or the error that ended it.
func (c *h2conn) status(stream uint32) string {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return "closed"
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				c.WriteSettingsAck()
			}
		case *http2.GoAwayFrame:
			return "goaway " + f.ErrCode.String()
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return "reset " + f.ErrCode.String()
			}
		case *http2.MetaHeadersFrame:
			if f.StreamID == stream {
				return f.PseudoValue("status")
			}
		}
	}
}

func get(path string, more ...string) []string {
	return append([]string{":method", "GET", ":scheme", "http", ":authority", "app.example", ":path", path}, more...)
}

// HTTP/2 has room for requests that HTTP/1 could not say: none of them gets on
// to the upstream's one.
func TestSmugglingH2(t *testing.T) {
	for _, c := range []struct {
		name  string
		pairs []string
		want  string // of several, any
	}{
		{"plain", get("/a"), "200"},
		{"connection", get("/a", "connection", "close"), "400 reset PROTOCOL_ERROR"},
		{"transfer-encoding", get("/a", "transfer-encoding", "chunked"), "400 reset PROTOCOL_ERROR"},
		{"upper case", get("/a", "X-A", "b"), "reset PROTOCOL_ERROR goaway PROTOCOL_ERROR"},
		{"line end in a value", get("/a", "x", "b\r\nX-User: root"), "reset PROTOCOL_ERROR goaway PROTOCOL_ERROR"},
		{"line end in the path", get("/a HTTP/1.1\r\nX: y"), "400 reset PROTOCOL_ERROR goaway PROTOCOL_ERROR"},
		{"space in the path", get("/a HTTP/1.1"), "400 reset PROTOCOL_ERROR"},
		{"space in the method", []string{":method", "GET /login HTTP/1.1", ":scheme", "http", ":authority", "a", ":path", "/"}, "400 reset PROTOCOL_ERROR"},
		{"host that differs", get("/a", "host", "other.example"), "400 reset PROTOCOL_ERROR"},
		{"host that does not", get("/a", "host", "app.example"), "200"},
		{"no path", []string{":method", "GET", ":scheme", "http", ":authority", "a"}, "reset PROTOCOL_ERROR 400"},
		{"path of another form", get("http://other.example/a"), "400 reset PROTOCOL_ERROR"},
		{"fragment", get("/a#b"), "400"},
		{"pseudo field after others", []string{":method", "GET", "x", "y", ":scheme", "http", ":path", "/"}, "reset PROTOCOL_ERROR goaway PROTOCOL_ERROR"},
		{"unknown pseudo field", get("/a", ":user", "root"), "reset PROTOCOL_ERROR goaway PROTOCOL_ERROR"},
		{"host with a path", []string{":method", "GET", ":scheme", "http", ":authority", "a/b", ":path", "/"}, "400"},
		{"head too large", get("/a", "x", strings.Repeat("y", 2<<20)), "431 closed goaway ENHANCE_YOUR_CALM goaway PROTOCOL_ERROR goaway FRAME_SIZE_ERROR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Policy{})
			h := r.frames(t)
			h.request(1, true, c.pairs...)
			if got := h.status(1); !strings.Contains(" "+c.want+" ", " "+got+" ") {
				t.Errorf("%s, want one of %s", got, c.want)
			}
		})
	}
}

// A client that opens requests and resets them at once (CVE-2023-44487) pays
// for each, gets nothing back, and cannot have more of them at the upstream at
// a time than the gate allows a connection.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	release := make(chan struct{})
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/quick" {
			return
		}
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	r := newRigOn(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "limit 1000/1h")}}, "127.0.0.1:0", upstream)
	t.Cleanup(func() { close(release) })
	h := r.frames(t)
	go io.Copy(io.Discard, h.Conn)
	const streams = 1500
	for i := range streams {
		if h.request(uint32(2*i+1), true, get("/")...) != nil || h.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel) != nil {
			break // the gate has had enough
		}
	}
	// What the gate read of them it charged, whatever became of them.
	await(t, "100 requests charged", func() bool { c := r.gate.Counters()["all"]; return c.Passed >= 100 })
	if most.Load() > 250 {
		t.Errorf("%d requests at the upstream at a time", most.Load())
	}
	// Others are served meanwhile.
	want(t, "another client", r.client("127.0.0.2").do("GET", "/quick").status, 200)
}

// await waits until ok.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
