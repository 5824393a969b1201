package load

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// upstreamHere serves on loopback until the test ends.
func upstreamHere(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- Upstream(ln) }()
	t.Cleanup(func() {
		ln.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String() + "/item"
}

// An ordinary client understands the upstream, again and again on one connection.
func TestUpstream(t *testing.T) {
	t.Parallel()
	url := upstreamHere(t)
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	for range 3 {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || len(body) != bodySize {
			t.Errorf("%s, %d bytes, %v", resp.Status, len(body), err)
		}
	}
}

// A closed loop uses all keys, keeps its connections, and counts what it gets;
// one that the server closes is opened again.
func TestClosed(t *testing.T) {
	t.Parallel()
	var seen, conns atomic.Int64
	var keys sync.Map
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys.Store(r.Header.Get(KeyHeader), true)
		switch seen.Add(1) % 10 {
		case 0:
			w.Header().Set("Connection", "close")
		case 1:
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	got, err := Closed(t.Context(), Load{URL: srv.URL + "/item", Keys: 7, Connections: 3, Warm: 20 * time.Millisecond, For: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Check(http.StatusOK); err != nil {
		t.Fatal(err)
	}
	if got.Sent != uint64(seen.Load()) || got.Answers[200]+got.Answers[429] > got.Sent || got.Answers[429] == 0 || len(got.Answers) != 2 || got.Seconds < 0.2 {
		t.Errorf("%+v, and the server saw %d", got, seen.Load())
	}
	if n, most := conns.Load(), 3+seen.Load()/10; n > most {
		t.Errorf("%d connections for %d requests, want at most %d", n, seen.Load(), most)
	}
	for i := range 7 {
		if _, ok := keys.Load(Key(i)); !ok {
			t.Errorf("%s was not used", Key(i))
		}
	}
}

// What is not answered counts as failed, with the reason, and ends.
func TestClosedWithoutServer(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	got, err := Closed(t.Context(), Load{URL: "http://" + ln.Addr().String() + "/", Keys: 1, Connections: 2, For: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Check(200); got.Sent != 0 || err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%+v: %v", got, err)
	}
}

func TestReadAnswer(t *testing.T) {
	for _, c := range []struct {
		text   string
		status int
		last   bool
		err    string
	}{
		{"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", 200, false, ""},
		{"HTTP/1.0 429 Too Many Requests\r\nContent-Length: 0\r\nconnection: Close\r\n\r\n", 429, true, ""},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 0, false, "without Content-Length"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", 0, false, "read the body"},
		{"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", 0, false, "header"},
		{"HTTP/1.1 200 OK\r\n", 0, false, "read a header"},
		{"HTTP/1.1 two\r\n\r\n", 0, false, "status line"},
		{"SSH-2.0-server\r\n\r\n", 0, false, "no status line"},
		{"", 0, false, "status line"},
	} {
		status, last, err := readAnswer(bufio.NewReader(strings.NewReader(c.text)))
		if status != c.status || last != c.last || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %d, last %v, %v", c.text, status, last, err)
		}
	}
}

func TestQuantilesOf(t *testing.T) {
	list := make([]time.Duration, 2000)
	for i := range list {
		list[len(list)-1-i] = time.Duration(i + 1)
	}
	if got, want := QuantilesOf(list), (Quantiles{1000, 1980, 1998}); got != want {
		t.Errorf("of 1 to 2000: %+v, want %+v", got, want)
	}
	if got, want := QuantilesOf([]time.Duration{5}), (Quantiles{5, 5, 5}); got != want {
		t.Errorf("of one: %+v, want %+v", got, want)
	}
}
