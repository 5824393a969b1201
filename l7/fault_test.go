package l7

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// On HTTP/2 a fault costs its stream: others of the connection go on.
func TestFaultCostsOneStream(t *testing.T) {
	var faulty atomic.Bool
	arrived, release := make(chan struct{}), make(chan struct{})
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(arrived)
			<-release
		}
	})
	r := newTunedRig(t, Policy{Rules: []config.Rule{ruleOf(t, "a", "client", "100/1m")}}, "127.0.0.1:0", upstream, func(g *Gate) {
		still := g.Clock
		g.Clock = func() time.Duration {
			if faulty.CompareAndSwap(true, false) {
				panic("a fault that the test makes")
			}
			return still()
		}
	})
	h := r.frames(t)
	h.request(1, true, get("/slow")...)
	<-arrived
	faulty.Store(true)
	h.request(3, true, get("/")...)
	want(t, "the one that met a fault", h.status(3), "500")
	h.request(5, true, get("/")...)
	want(t, "the next", h.status(5), "200")
	close(release)
	want(t, "the one on its way", h.status(1), "200")
}

// A fault of the gate costs the request that meets it and no other, is counted
// and logged.
func TestFaultCostsOneRequest(t *testing.T) {
	var faulty atomic.Bool
	r := newTunedRig(t, Policy{Rules: []config.Rule{ruleOf(t, "a", "client", "100/1m")}}, "127.0.0.1:0", nil, func(g *Gate) {
		still := g.Clock
		g.Clock = func() time.Duration {
			if faulty.CompareAndSwap(true, false) {
				panic("a fault that the test makes")
			}
			return still()
		}
	})
	c := r.client("127.0.0.1")
	for i, want := range []int{200, 500, 200} {
		faulty.Store(want == http.StatusInternalServerError)
		if got := c.get().status; got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	if n := r.gate.Panics(); n != 1 {
		t.Errorf("%d faults are counted, want 1", n)
	}
	if log := r.logs.String(); !strings.Contains(log, "a fault that the test makes") {
		t.Errorf("the log does not tell: %s", log)
	}
}

// faultyBuffers panic when an answer is about to be copied through one.
type faultyBuffers struct {
	buffers
	faulty atomic.Bool
}

func (b *faultyBuffers) Get() []byte {
	if b.faulty.CompareAndSwap(true, false) {
		panic("a fault that the test makes")
	}
	return b.buffers.Get()
}

// A fault while an answer is copied, its head sent already, breaks that answer
// off, so that it is not taken for a whole one; on HTTP/2 other streams of the
// connection go on, and on HTTP/1 other connections do.
func TestFaultWhileCopying(t *testing.T) {
	pool := new(faultyBuffers)
	arrived, release := make(chan struct{}), make(chan struct{})
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		if r.URL.Path == "/slow" {
			close(arrived)
			<-release
		}
		w.Write([]byte("whole"))
	})
	r := newTunedRig(t, Policy{Rules: []config.Rule{ruleOf(t, "a", "client", "100/1m")}}, "127.0.0.1:0", upstream, func(g *Gate) { g.buffers = pool })
	h := r.frames(t)
	h.request(1, true, get("/slow")...)
	<-arrived
	pool.faulty.Store(true)
	broken, err := http.Get("http://" + r.addr + "/")
	if err == nil {
		var body []byte
		if body, err = io.ReadAll(broken.Body); err == nil {
			t.Errorf("%d with %q is taken for a whole answer", broken.StatusCode, body)
		}
		broken.Body.Close()
	}
	want(t, "the next", r.client("127.0.0.1").get().status, 200)
	close(release)
	want(t, "the one on its way", h.status(1), "200")
	if n := r.gate.Panics(); n != 1 {
		t.Errorf("%d faults are counted, want 1", n)
	}
}
