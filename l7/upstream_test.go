package l7

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/logbuffer"
)

// named returns the URL of a server that answers with its name.
func named(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, name)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// nobody returns a URL that refuses connections.
func nobody(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return "http://" + ln.Addr().String()
}

func newUpstreamRig(t *testing.T, p Policy, upstreams ...config.Upstream) *rig {
	t.Helper()
	r := &rig{t: t, logs: new(logbuffer.Buffer), served: make(chan error, 1)}
	r.startAs(p, "127.0.0.1:0", config.Listener{Door: "proxy", Upstreams: upstreams})
	return r
}

// The first upstream that takes host and path gets a request; where none does,
// the answer is 404, and is counted. A path goes by its normal form.
func TestUpstreamByHostAndPath(t *testing.T) {
	r := newUpstreamRig(
		t, Policy{Allow: prefixes("127.0.0.3"), Rules: []config.Rule{ruleOf(t, "all", "client", "100/1h")}},
		config.Upstream{Paths: []string{"/v1/**", "/u/{id}"}, Hosts: []string{"app.example"}, URLs: []string{named(t, "v1")}},
		config.Upstream{Hosts: []string{"*.b.example"}, URLs: []string{named(t, "b")}},
		config.Upstream{Paths: []string{"/static/**"}, URLs: []string{named(t, "static")}},
	)
	for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
		c := r.client(from)
		for _, try := range []struct{ host, target, want string }{
			{"app.example", "/v1/x", "v1"},
			{"APP.example:8080", "/v1", "v1"},
			{"app.example", "/x/../v1/y?a=b", "v1"},
			{"app.example", "/%76%31/", "v1"},
			{"app.example", "/u/7", "v1"},
			{"app.example", "/v1x", ""},
			{"x.b.example", "/v1/x", "b"},
			{"b.example", "/v1/x", ""},
			{"c.example", "/static/a.css", "static"},
			{"c.example", "/", ""},
		} {
			io.WriteString(c.conn, "GET "+try.target+" HTTP/1.1\r\nHost: "+try.host+"\r\n\r\n")
			got, _ := c.read("GET")
			if try.want == "" {
				want(t, try.host+try.target, got.status, 404)
				want(t, "type", got.header.Get("Content-Type"), "application/problem+json")
				continue
			}
			want(t, try.host+try.target, got.body, try.want)
		}
	}
	want(t, "passed", r.gate.Counters()["all"].Passed, 10)
}

// The URLs of an upstream take turns, or the one with the fewest requests in
// flight is next.
func TestUpstreamBalance(t *testing.T) {
	r := newUpstreamRig(t, Policy{}, config.Upstream{URLs: []string{named(t, "a"), named(t, "b"), named(t, "c")}})
	c, seen := r.client("127.0.0.2"), map[string]int{}
	for range 9 {
		seen[c.get().body]++
	}
	want(t, "a", seen["a"], 3)
	want(t, "b", seen["b"], 3)

	held, release := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			held <- struct{}{}
			<-release
		}
		io.WriteString(w, "slow")
	}))
	t.Cleanup(slow.Close)
	r = newUpstreamRig(t, Policy{}, config.Upstream{URLs: []string{slow.URL, named(t, "free")}, Balance: config.LeastRequests})
	busy := r.client("127.0.0.2")
	for begun := false; !begun; { // the turn that meets the slow one
		io.WriteString(busy.conn, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n")
		answered := make(chan reply, 1)
		go func() {
			got, _ := busy.read("GET")
			answered <- got
		}()
		select {
		case <-held:
			begun = true
			t.Cleanup(func() { <-answered })
		case <-answered:
		}
	}
	c = r.client("127.0.0.3")
	for range 6 {
		want(t, "while the other is busy", c.get().body, "free")
	}
	close(release)
}

// A GET that reached nobody goes to another URL; a POST does not; and then the
// one that is down is passed over.
func TestUpstreamUnreachable(t *testing.T) {
	down := nobody(t)
	r := newUpstreamRig(t, Policy{}, config.Upstream{URLs: []string{down, named(t, "up")}})
	c := r.client("127.0.0.2")
	want(t, "GET", c.get().body+c.get().body, "upup")
	for range 6 {
		want(t, "POST while it rests", c.do("POST", "/", "Content-Length: 0").body, "up")
	}
	want(t, "PUT with a body", r.put(t, "127.0.0.3", "text"), "up")

	// Its rest is over: of two in turn one meets it.
	r.pass(restTime + time.Second)
	statuses := map[int]int{}
	for range 2 {
		statuses[c.do("POST", "/", "Content-Length: 0").status]++
	}
	want(t, "POSTs that met it", statuses[502], 1)
	want(t, "POSTs that did not", statuses[200], 1)
	want(t, "warned", strings.Count(r.logs.String(), "does not answer"), 1)

	// All are down: nobody is spared a try, and the answer comes.
	r = newUpstreamRig(t, Policy{}, config.Upstream{URLs: []string{down, nobody(t), nobody(t), nobody(t)}})
	c = r.client("127.0.0.2")
	for range 3 {
		want(t, "all down", c.get().status, 502)
	}
}

func (r *rig) put(t *testing.T, from, text string) string {
	t.Helper()
	c := r.client(from)
	got := ""
	for range 2 { // one of them meets each URL first
		io.WriteString(c.conn, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"+text)
		a, _ := c.read("PUT")
		got = a.body
	}
	return got
}

// A URL that fails its checks gets no request until it passes one again.
func TestUpstreamCheck(t *testing.T) {
	var sick atomic.Bool
	var asked atomic.Value
	patient := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/up" {
			io.WriteString(w, "patient")
			return
		}
		asked.Store(r.URL.String() + " " + r.UserAgent())
		if sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(patient.Close)
	r := newUpstreamRig(t, Policy{}, config.Upstream{
		URLs: []string{patient.URL, named(t, "other")}, Check: &config.HealthCheck{Path: "/up?deep=1", Interval: 5 * time.Millisecond},
	})
	c := r.client("127.0.0.2")
	share := func() (n int) {
		for range 10 {
			if c.get().body == "patient" {
				n++
			}
		}
		return n
	}
	until := func(what string, n int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); share() != n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: never %d requests of 10", what, n)
			}
		}
	}
	until("well", 5)
	sick.Store(true)
	until("sick", 0)
	want(t, "asked", asked.Load().(string), "/up?deep=1 headgate-check")
	sick.Store(false)
	until("well again", 5)
	for _, line := range []string{"upstream is sick", "answered 503", "upstream is well again"} {
		want(t, line, strings.Contains(r.logs.String(), line), true)
	}
}
