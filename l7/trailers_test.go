package l7

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/config"
)

// Fields after a body reach the other side in both directions, over HTTP/1,
// HTTP/2 and mixed; but none that a server which merges them into the header
// would go by.
func TestTrailers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		down, up     bool // HTTP/2 to the client's and the upstream's side
		clientMajor  int
		upstreamSees string
	}{
		{"1 to 1", false, false, 1, "HTTP/1.1"}, {"2 to 1", true, false, 2, "HTTP/1.1"},
		{"1 to 2", false, true, 1, "HTTP/2.0"}, {"2 to 2", true, true, 2, "HTTP/2.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				want(t, "protocol to the upstream", r.Proto, c.upstreamSees)
				if diff := cmp.Diff(http.Header{"X-Sum": {"7"}}, r.Trailer); diff != "" || string(body) != "body" {
					t.Errorf("%q: %s", body, diff)
				}
				w.Header().Set("Trailer", "X-Back")
				io.WriteString(w, "back")
				w.Header().Set("X-Back", "9")
				w.Header().Set(http.TrailerPrefix+"X-Unannounced", "10")
			})
			url := serveBoth(t, upstream)
			if c.up {
				url = "h2c" + strings.TrimPrefix(url, "http")
			}
			p := Policy{HTTP: config.HTTP{KeyHeader: "X-Api-Key"}}
			r := newListenerRig(t, p, config.Listener{Door: "proxy", Upstream: url}, nil)
			transport := &http.Transport{}
			if c.down {
				transport.Protocols = onlyH2C()
			}
			defer transport.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.addr, io.NopCloser(strings.NewReader("body")))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Te", "trailers")
			req.Trailer = http.Header{
				"X-Sum": {"7"}, "X-Forwarded-For": {"192.0.2.1"}, "X_forwarded_for": {"192.0.2.1"}, "X-Api-Key": {"k"},
				"Cookie": {"a=b"}, "X-Http-Method-Override": {"DELETE"},
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || string(body) != "back" || resp.ProtoMajor != c.clientMajor {
				t.Fatalf("%s %q %v", resp.Proto, body, err)
			}
			if diff := cmp.Diff(http.Header{"X-Back": {"9"}, "X-Unannounced": {"10"}}, resp.Trailer); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What was not announced, or comes where nothing may, is not passed on.
func TestUnannouncedTrailers(t *testing.T) {
	t.Parallel()
	up := newObedientUpstream(t)
	r := newRawRig(t, Policy{}, up, nil)
	back, _ := r.say("127.0.0.2", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n1\r\nx\r\n0\r\nX-A: 1\r\nX-B: 2\r\n\r\n")
	if !strings.HasPrefix(back, "200 ") {
		t.Error(back)
	}
	in, err := http.ReadRequest(bufio.NewReader(strings.NewReader(up.got())))
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, in.Body)
	if diff := cmp.Diff(http.Header{"X-A": {"1"}}, in.Trailer); diff != "" {
		t.Error(diff)
	}
}

// A call by gRPC: messages both ways while the stream is open, and the status
// in the trailers; the same client hears in its own words that it is refused.
func TestGRPCEndToEnd(t *testing.T) {
	t.Parallel()
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Te") != "trailers" || r.ProtoMajor != 2 {
			t.Errorf("%s, TE %q", r.Proto, r.Header.Get("Te"))
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		for message := make([]byte, 6); ; {
			if _, err := io.ReadFull(r.Body, message); err != nil {
				break
			}
			w.Write(message)
			http.NewResponseController(w).Flush()
		}
		w.Header().Set("Grpc-Status", "5")
		w.Header().Set("Grpc-Message", "no such thing")
	})
	r := newListenerRig(t, Policy{Rules: []config.Rule{ruleOf(t, "calls", "client", "1/6s")}},
		config.Listener{Door: "proxy", Upstream: "h2c" + strings.TrimPrefix(serveBoth(t, upstream), "http")}, nil)
	transport := &http.Transport{Protocols: onlyH2C()}
	defer transport.CloseIdleConnections()
	call := func() (*http.Response, io.WriteCloser) {
		in, out := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.addr+"/shop.Orders/Watch", in)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp, out
	}
	resp, out := call()
	for i := range 3 {
		message := fmt.Sprintf("\x00\x00\x00\x00\x01%d", i)
		io.WriteString(out, message)
		got := make([]byte, 6)
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != message {
			t.Fatalf("%q, %v", got, err)
		}
	}
	out.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	want(t, "status", resp.Trailer.Get("Grpc-Status"), "5")
	want(t, "message", resp.Trailer.Get("Grpc-Message"), "no such thing")

	resp, _ = call()
	want(t, "HTTP status", resp.StatusCode, 200)
	want(t, "status", resp.Header.Get("Grpc-Status"), resourceExhausted)
	want(t, "message", resp.Header.Get("Grpc-Message"), callDetail)
}
