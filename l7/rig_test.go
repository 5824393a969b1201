package l7

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/logbuffer"
)

// rig is a gate on real sockets, with a clock that stands still until it is
// moved, before an upstream that tells what it was asked.
type rig struct {
	t      testing.TB
	gate   *Gate
	addr   string
	logs   *logbuffer.Buffer
	clock  atomic.Int64
	served chan error
	tune   func(*Gate) // before it serves; may be nil

	mu   sync.Mutex
	seen []*http.Request
}

func newRig(t testing.TB, p Policy) *rig { return newRigOn(t, p, "127.0.0.1:0", nil) }

// newRigOn listens on address; upstream nil answers 200 and records.
func newRigOn(t testing.TB, p Policy, address string, upstream http.Handler) *rig {
	t.Helper()
	return newTunedRig(t, p, address, upstream, nil)
}

func newTunedRig(t testing.TB, p Policy, address string, upstream http.Handler, tune func(*Gate)) *rig {
	t.Helper()
	r := &rig{t: t, logs: new(logbuffer.Buffer), served: make(chan error, 1), tune: tune}
	if upstream == nil {
		upstream = http.HandlerFunc(r.record)
	}
	up := httptest.NewUnstartedServer(upstream)
	up.Config.DisableGeneralOptionsHandler = true
	up.Start()
	t.Cleanup(up.Close)
	r.start(p, address, up.URL)
	return r
}

// newListenerRig is newRigOn with a listener of a certain kind.
func newListenerRig(t testing.TB, p Policy, l config.Listener, upstream http.Handler) *rig {
	t.Helper()
	r := &rig{t: t, logs: new(logbuffer.Buffer), served: make(chan error, 1)}
	if upstream == nil {
		upstream = http.HandlerFunc(r.record)
	}
	if l.Upstream == "" {
		up := httptest.NewServer(upstream)
		t.Cleanup(up.Close)
		l.Upstream = up.URL
	}
	r.startAs(p, "127.0.0.1:0", l)
	return r
}

func (r *rig) start(p Policy, address, upstream string) {
	r.t.Helper()
	r.startAs(p, address, config.Listener{Door: "proxy", Upstream: upstream})
}

func (r *rig) startAs(p Policy, address string, l config.Listener) {
	r.t.Helper()
	r.gate = New(slog.New(slog.NewTextHandler(r.logs, nil)))
	r.gate.Clock = func() time.Duration { return time.Duration(r.clock.Load()) }
	if r.tune != nil {
		r.tune(r.gate)
	}
	r.set(p)
	ln, err := net.Listen("tcp", address)
	if err != nil {
		r.t.Skipf("listen on %s: %v", address, err)
	}
	r.addr = ln.Addr().String()
	go func() { r.served <- r.gate.Serve(ln, l) }()
	r.t.Cleanup(func() {
		r.gate.Shutdown(context.Background())
		if err := <-r.served; err != nil {
			r.t.Error(err)
		}
	})
}

func (r *rig) set(p Policy) {
	r.t.Helper()
	if err := r.gate.SetPolicy(p); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) pass(d time.Duration) { r.clock.Add(int64(d)) }

func (r *rig) record(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.seen = append(r.seen, req)
	r.mu.Unlock()
	io.WriteString(w, "ok")
}

// last returns what the upstream was asked last.
func (r *rig) last() *http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[len(r.seen)-1]
}

// client is one connection from a loopback address of its own.
type client struct {
	r    *rig
	from string
	conn net.Conn
	in   *bufio.Reader
}

func (r *rig) client(from string) *client {
	c := &client{r: r, from: from}
	c.dial()
	r.t.Cleanup(func() { c.conn.Close() })
	return c
}

func (c *client) dial() {
	_, port, _ := net.SplitHostPort(c.r.addr)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.from)}, Timeout: 10 * time.Second}
	conn, err := d.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		c.r.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(30 * time.Second)) // a hang fails, it never decides
	c.conn, c.in = conn, bufio.NewReader(conn)
}

type reply struct {
	status int
	header http.Header
	body   string
}

// do sends a request with the target exactly as given. Headers are whole lines.
func (c *client) do(method, target string, headers ...string) reply {
	c.r.t.Helper()
	text := method + " " + target + " HTTP/1.1\r\nHost: app.example\r\n"
	for _, h := range headers {
		text += h + "\r\n"
	}
	if _, err := io.WriteString(c.conn, text+"\r\n"); err != nil {
		c.r.t.Fatal(err)
	}
	got, last := c.read(method)
	if last {
		c.conn.Close()
		c.dial()
	}
	return got
}

// read reads one answer, and whether it is the last on its connection.
func (c *client) read(method string) (got reply, last bool) {
	c.r.t.Helper()
	resp, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		c.r.t.Fatalf("%s: %v", method, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.r.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}, resp.Close
}

func (c *client) get(headers ...string) reply {
	c.r.t.Helper()
	return c.do("GET", "/", headers...)
}

// passed sends n requests and returns how many of them were answered 200. All
// others must be 429.
func (c *client) passed(n int, headers ...string) (passed int) {
	c.r.t.Helper()
	for range n {
		switch got := c.get(headers...); got.status {
		case 200:
			passed++
		case 429:
		default:
			c.r.t.Fatalf("answered %d: %s", got.status, got.body)
		}
	}
	return passed
}

// ruleOf returns a rule from the few figures that tests need: a rate "10/1m",
// perhaps with " burst 20", or a limit "limit 10/1m".
func ruleOf(t testing.TB, name, per, figures string) config.Rule {
	t.Helper()
	r := config.Rule{Name: name, Gate: config.GateHTTP, Mode: config.Enforce, Algorithm: config.TokenBucket}
	for p := range strings.SplitSeq(per, ",") {
		r.Per = append(r.Per, config.Per(p))
	}
	r.Algorithm, r.Rate, r.Burst = figuresOf(t, figures)
	return r
}

func figuresOf(t testing.TB, s string) (a config.Algorithm, rate config.Rate, burst int64) {
	t.Helper()
	a = config.TokenBucket
	rest, limit := strings.CutPrefix(s, "limit ")
	figures, b, hasBurst := strings.Cut(rest, " burst ")
	n, per, _ := strings.Cut(figures, "/")
	amount, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	interval, err := time.ParseDuration(per)
	if err != nil {
		t.Fatal(err)
	}
	burst = amount
	if hasBurst {
		if burst, err = strconv.ParseInt(b, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	if limit {
		burst, a = 0, config.SlidingLog
		if amount > 100 {
			a = config.SlidingCounter
		}
	}
	return a, config.Rate{Amount: amount, Interval: interval, Unit: config.Count}, burst
}

func prefixes(texts ...string) (p []netip.Prefix) {
	for _, s := range texts {
		if !strings.Contains(s, "/") {
			a := netip.MustParseAddr(s)
			p = append(p, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func behind(proxies ...string) config.HTTP { return config.HTTP{Proxies: prefixes(proxies...)} }

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func xff(s string) string { return "X-Forwarded-For: " + s }

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
