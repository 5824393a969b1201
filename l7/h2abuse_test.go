package l7

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/await"
)

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
	await.For(t, "100 requests charged", func() bool { c := r.gate.Counters()["all"]; return c.Passed >= 100 })
	if most.Load() > 250 {
		t.Errorf("%d requests at the upstream at a time", most.Load())
	}
	// Others are served meanwhile.
	want(t, "another client", r.client("127.0.0.2").do("GET", "/quick").status, 200)
}

// holds is an upstream that tells of each request, and answers none until its
// client is gone.
func holds() (http.Handler, chan struct{}, *atomic.Int64) {
	began, held := make(chan struct{}, 1000), new(atomic.Int64)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/quick" {
			return
		}
		held.Add(1)
		defer held.Add(-1)
		began <- struct{}{}
		<-r.Context().Done()
	}), began, held
}

// Who resets request after request on one connection loses it, also where each
// had reached the upstream; who gives up a page full of them does not.
func TestResetsEndTheConnection(t *testing.T) {
	t.Parallel()
	upstream, began, held := holds()
	r := newRigOn(t, Policy{}, "127.0.0.1:0", upstream)
	patient := r.frames(t)
	h := r.frames(t)
	go io.Copy(io.Discard, h.Conn)
	sent := 0
	for ; sent < 2000; sent++ {
		stream := uint32(2*sent + 1)
		if h.request(stream, true, get("/")...) != nil {
			break
		}
		ended := false
		for arrived := false; !arrived && !ended; {
			select {
			case <-began:
				arrived = true
			case <-time.After(10 * time.Millisecond):
				ended = r.gate.EndedConnections()[EndResets] > 0
			}
		}
		if ended || h.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			break
		}
	}
	want(t, "ended", r.gate.EndedConnections()[EndResets], 1)
	if sent < 500 || sent > 1000 {
		t.Errorf("after %d resets", sent)
	}
	await.For(t, "nothing held at the upstream", func() bool { return held.Load() == 0 })

	for i := range uint32(200) {
		patient.request(2*i+1, true, get("/")...)
		<-began
		patient.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
	}
	patient.request(401, true, get("/quick")...)
	want(t, "another with some resets", patient.status(401), "200")
}

// One connection has 128 requests at a time, and is told so.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	upstream, began, _ := holds()
	r := newRigOn(t, Policy{}, "127.0.0.1:0", upstream)
	h := r.frames(t)
	for {
		f, err := h.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := f.(*http2.SettingsFrame); ok && !f.IsAck() {
			n, _ := f.Value(http2.SettingMaxConcurrentStreams)
			want(t, "told", n, maxStreams)
			if _, ok := f.Value(http2.SettingEnableConnectProtocol); ok {
				t.Error("extended CONNECT is offered")
			}
			h.WriteSettingsAck()
			break
		}
	}
	for i := range uint32(maxStreams) {
		h.request(2*i+1, true, get("/")...)
		<-began
	}
	h.request(2*maxStreams+1, true, get("/")...)
	want(t, "one more", h.status(2*maxStreams+1), "reset PROTOCOL_ERROR") // it knew
}

// RFC 8441: a WebSocket over HTTP/2 is refused in a way that its client
// understands, and opens another connection.
func TestExtendedConnect(t *testing.T) {
	t.Parallel()
	h := newRig(t, Policy{}).frames(t)
	h.request(1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/", ":authority", "a")
	want(t, "answered", h.status(1), "reset PROTOCOL_ERROR")
	h.request(3, true, ":method", "CONNECT", ":authority", "a:80")
	want(t, "a tunnel", h.status(3), "405")
}

// A client that opens no window for an answer, and answers every ping, is not
// waited for: neither when the upstream sends it, nor when the gate does.
func TestShutWindow(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, zeros{})
		close(gone)
	})
	r := newTunedRig(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "1/1h")}}, "127.0.0.1:0", upstream,
		func(g *Gate) { g.deafTime = 200 * time.Millisecond })
	h := r.frames(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	h.request(1, true, get("/")...)
	want(t, "begins", h.status(1), "200")
	want(t, "ends", h.status(1), "reset INTERNAL_ERROR")
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Error("the upstream is held")
	}
	h.request(3, true, get("/")...)
	want(t, "begins", h.status(3), "429")
	want(t, "ends", h.status(3), "reset INTERNAL_ERROR")
}

// The same client with a window that it opens now and then gets all.
func TestSlowWindow(t *testing.T) {
	t.Parallel()
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("x", 10))
	})
	r := newTunedRig(t, Policy{}, "127.0.0.1:0", upstream, func(g *Gate) { g.deafTime = 400 * time.Millisecond })
	h := r.frames(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	h.request(1, true, get("/")...)
	want(t, "begins", h.status(1), "200")
	for n := 0; n < 10; {
		f, err := h.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			n += len(f.Data())
			h.WriteWindowUpdate(1, 1)
		case *http2.RSTStreamFrame:
			t.Fatalf("reset %v after %d bytes", f.ErrCode, n)
		}
	}
}

// A client that stops in the middle of a body is answered 408, and its other
// requests go on.
func TestStalledBodyH2(t *testing.T) {
	t.Parallel()
	r := newTunedRig(t, Policy{}, "127.0.0.1:0", nil, func(g *Gate) { g.bodyIdle = 100 * time.Millisecond })
	h := r.frames(t)
	h.request(1, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/", "content-length", "10")
	h.WriteData(1, false, []byte("half"))
	want(t, "stalled", h.status(1), "408")
	h.request(3, true, get("/")...)
	want(t, "another", h.status(3), "200")
}

// A refused upload hears so before its window is used up, and is told to stop.
func TestRefusedUploadH2(t *testing.T) {
	t.Parallel()
	r := newRefusingRig(t, nil)
	h := r.frames(t)
	h.request(1, true, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/")
	want(t, "admitted", h.status(1), "200")
	h.request(3, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/", "content-length", "100000000")
	want(t, "refused", h.status(3), "429")
	want(t, "then", h.status(3), "reset NO_ERROR")
}

// Floods that cost the sender little end with the connection, and nobody else
// notices: heads without an end (CVE-2023-45288), pings whose answers are not
// read (CVE-2019-9512), resets. Settings are answered together, so that they pile
// nothing up (CVE-2019-9515).
func TestFrameFloods(t *testing.T) {
	t.Parallel()
	r := newRig(t, Policy{})
	pings := strings.Repeat("\x00\x00\x08\x06\x00\x00\x00\x00\x00ping-me-", 1000)
	for name, flood := range map[string]func(h *h2conn, n uint32) error{
		"heads without an end": func(h *h2conn, n uint32) error {
			if n == 0 {
				h.request(1, true, get("/")...)
				return h.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82}})
			}
			return h.WriteContinuation(3, false, []byte(strings.Repeat("\x82", 10000)))
		},
		"pings": func(h *h2conn, n uint32) error {
			_, err := io.WriteString(h.Conn, pings)
			return err
		},
		"settings":                        func(h *h2conn, n uint32) error { return h.WriteSettings() },
		"resets of what was never opened": func(h *h2conn, n uint32) error { return h.WriteRSTStream(2*n+1, http2.ErrCodeCancel) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := r.frames(t)
			h.Conn.SetDeadline(time.Now().Add(3 * time.Minute)) // a hang fails, it never decides
			var err error
			n := uint32(0)
			for ; n < 2_000_000 && err == nil; n++ {
				if err = flood(h, n); name == "settings" && n == 50_000 {
					break
				}
			}
			if err == nil && name != "settings" {
				t.Errorf("%d frames were taken", n)
			}
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Errorf("after %d frames the connection hangs", n)
			}
			want(t, "another", r.client("127.0.0.2").get().status, 200)
		})
	}
}
