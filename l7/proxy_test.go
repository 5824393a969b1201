package l7

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/logbuffer"
	"github.com/headgate/headgate/limit"
)

func TestIdentityHeadersAreStripped(t *testing.T) {
	r := newRig(t, Policy{HTTP: behind("127.0.0.2")})
	lies := []string{
		"X-Forwarded-For: 192.0.2.1", "X_Forwarded_For: 192.0.2.2", "x-forwarded_FOR: 192.0.2.3", "X-Real-IP: 192.0.2.4",
		"X_REAL_IP: 192.0.2.5", "Forwarded: for=192.0.2.6", "X-Forwarded-Host: bad.example", "X-Forwarded-Proto: https",
		"X-Forwarded-Port: 443", "X-Forwarded-User: root", "X-Other: kept",
	}
	r.client("127.0.0.3").get(lies...)
	got := r.last().Header
	want(t, "X-Forwarded-For", strings.Join(got["X-Forwarded-For"], "|"), "127.0.0.3")
	want(t, "X-Forwarded-Host", got.Get("X-Forwarded-Host"), "app.example")
	want(t, "X-Forwarded-Proto", got.Get("X-Forwarded-Proto"), "http")
	want(t, "X-Other", got.Get("X-Other"), "kept")
	for name, values := range got {
		if all := strings.Join(values, " "); strings.Contains(all, "192.0.2.") || strings.Contains(all, "bad.example") || name == "X-Forwarded-User" || name == "X-Forwarded-Port" {
			t.Errorf("the upstream was told %s: %s", name, all)
		}
	}

	r.client("127.0.0.2").get(append(lies, "X-Forwarded-For: 203.0.113.1")...)
	got = r.last().Header
	want(t, "chain", strings.Join(got["X-Forwarded-For"], "|"), "192.0.2.1, 203.0.113.1, 127.0.0.2")
	want(t, "declared X-Forwarded-Proto", got.Get("X-Forwarded-Proto"), "https")
	want(t, "declared X-Real-Ip", got.Get("X-Real-Ip"), "192.0.2.4")
	for name := range got {
		if strings.Contains(name, "_") {
			t.Errorf("underscore spelling %s passed", name)
		}
	}

	// A client that calls them hop-by-hop changes nothing.
	r.client("127.0.0.3").get("X-Forwarded-For: 192.0.2.1", "Connection: X-Forwarded-For, X-Forwarded-Host")
	want(t, "X-Forwarded-For", r.last().Header.Get("X-Forwarded-For"), "127.0.0.3")
}

func TestUpstreamDown(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close() // nobody listens there now
	r := &rig{t: t, logs: new(logbuffer.Buffer), served: make(chan error, 1)}
	r.start(Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "9/1m")}}, "127.0.0.1:0", "http://"+ln.Addr().String())
	c := r.client("127.0.0.2")
	for range 3 {
		got := c.get()
		want(t, "status", got.status, 502)
		want(t, "type", got.header.Get("Content-Type"), "application/problem+json")
		want(t, "Cache-Control", got.header.Get("Cache-Control"), "no-store")
	}
	want(t, "lines logged", strings.Count(r.logs.String(), "\n"), 1)
	r.pass(warnEvery)
	c.get()
	want(t, "lines logged a minute later", strings.Count(r.logs.String(), "\n"), 2)
	want(t, "answers", r.gate.Answers()[502], 4)
}

// A switched connection carries bytes both ways, and lives on after a limit is
// used up.
func TestUpgrade(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(w, "plain")
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		io.Copy(conn, rw)
	})
	r := newRigOn(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "2/1h")}}, "127.0.0.1:0", echo)
	c := r.client("127.0.0.2")
	io.WriteString(c.conn, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v %v", resp, err)
	}
	other := r.client("127.0.0.2")
	want(t, "others passed", other.passed(5), 1)
	for _, line := range []string{"one\n", "two\n"} {
		io.WriteString(c.conn, line)
		got, err := c.in.ReadString('\n')
		if err != nil || got != line {
			t.Fatalf("echo %q %v, want %q", got, err, line)
		}
	}
	want(t, "answers", r.gate.Answers()[101], 1)
	r.pass(time.Hour)
	for _, protocol := range []string{"h2c", "websocket, H2C", "HTTP/2.0"} {
		got := r.client("127.0.0.3").get("Connection: Upgrade, HTTP2-Settings", "Upgrade: "+protocol, "HTTP2-Settings: AAMAAABkAAQ")
		r.pass(time.Hour)
		want(t, protocol+" is not relayed", got.body, "plain")
	}
}

// A stream reaches the client as it is written, and its headers before that.
func TestStream(t *testing.T) {
	step := make(chan string)
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Trailer", "X-Sum")
		for line := range step {
			io.WriteString(w, line)
			http.NewResponseController(w).Flush()
		}
		w.Header().Set("X-Sum", "42")
	})
	r := newRigOn(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "5/1m")}}, "127.0.0.1:0", upstream)
	c := r.client("127.0.0.2")
	io.WriteString(c.conn, "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n")
	step <- "data: 1\n"
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "limits", unnamed(resp.Header), `"all";r=4;t=48`)
	lines := bufio.NewReader(resp.Body)
	for _, next := range []string{"data: 1\n", "data: 2\n", "data: 3\n"} {
		got, err := lines.ReadString('\n')
		if err != nil || got != next {
			t.Fatalf("%q %v, want %q", got, err, next)
		}
		if next != "data: 3\n" {
			step <- "data: " + string(next[6]+1) + "\n"
		}
	}
	close(step)
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Fatalf("%q %v", rest, err)
	}
	want(t, "trailer", resp.Trailer.Get("X-Sum"), "42")
}

// Informational answers are passed on and do not use up the place for limits.
func TestEarlyHints(t *testing.T) {
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "ok")
	})
	r := newRigOn(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "5/1m")}}, "127.0.0.1:0", upstream)
	c := r.client("127.0.0.2")
	io.WriteString(c.conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	for _, status := range []int{103, 200} {
		resp, err := http.ReadResponse(c.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "status", resp.StatusCode, status)
		want(t, "limits", resp.Header.Get("RateLimit") != "", status == 200)
	}
	want(t, "answers", r.gate.Answers()[103], 0)
}

// A body of any size passes, also while the upstream answers already: known
// length and chunked, large and small.
func TestBodiesPass(t *testing.T) {
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		c.EnableFullDuplex()
		c.Flush()
		io.Copy(w, r.Body)
	})
	r := newRigOn(t, Policy{}, "127.0.0.1:0", upstream)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, size := range []int{100 << 10, 4 << 20} {
		for _, chunked := range []bool{false, true} {
			text := strings.Repeat("0123456789abcdef", size/16)
			var body io.Reader = strings.NewReader(text)
			if chunked {
				body = io.MultiReader(body)
			}
			req, err := http.NewRequestWithContext(ctx, "POST", "http://"+r.addr+"/", body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(got) != text {
				t.Fatalf("chunked %v: %d bytes came back of %d: %v", chunked, len(got), size, err)
			}
		}
	}
}

// What comes from the upstream is not decompressed, and its own limits stay.
func TestAnswersPassUnchanged(t *testing.T) {
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Add("RateLimit", `"app";r=1;t=2`)
		io.WriteString(w, "not really gzip "+r.Header.Get("Accept-Encoding")+r.Header.Get("User-Agent"))
	})
	r := newRigOn(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "5/1m")}}, "127.0.0.1:0", upstream)
	got := r.client("127.0.0.2").get()
	want(t, "body", got.body, "not really gzip ")
	want(t, "RateLimit", unnamed(got.header), `"app";r=1;t=2, "all";r=4;t=48`)
}

// No type is guessed for an answer that came without one: a guess of text/html
// would let a browser run what somebody uploaded as text.
func TestNoTypeIsGuessed(t *testing.T) {
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		io.WriteString(w, "<html><script>")
	})
	r := newRigOn(t, Policy{}, "127.0.0.1:0", upstream)
	got := r.client("127.0.0.2").get()
	want(t, "body", got.body, "<html><script>")
	want(t, "Content-Type", strings.Join(got.header["Content-Type"], "|"), "")
}

func TestUpstreamURL(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:80", "ftp://x", "http://", "http://x/path", "http://x:y"} {
		if _, err := newProxy(New(nil), config.Listener{Upstream: bad}); err == nil {
			t.Errorf("upstream %q was taken", bad)
		}
	}
	for _, good := range []string{"http://127.0.0.1:9000", "https://x/", "http://[::1]:80"} {
		if _, err := newProxy(New(nil), config.Listener{Upstream: good}); err != nil {
			t.Errorf("upstream %q: %v", good, err)
		}
	}
}

// BenchmarkProxy0 and 3 compare the door with and without rules.
func BenchmarkProxy0(b *testing.B) { benchProxy(b, 0) }
func BenchmarkProxy3(b *testing.B) { benchProxy(b, 3) }

func benchProxy(b *testing.B, rules int) {
	p := Policy{}
	for i := range rules {
		p.Rules = append(p.Rules, ruleOf(b, "r"+string(rune('a'+i)), "client", "50000000/1s"))
	}
	r := newRig(b, p)
	r.gate.Clock = func() time.Duration { return limit.ToDuration(1 << 40) }
	b.RunParallel(func(pb *testing.PB) {
		c := r.client("127.0.0.2")
		for pb.Next() {
			if got := c.get(); got.status != 200 {
				b.Fatal(got.status)
			}
		}
	})
}
