package l7

import (
	"strings"
	"testing"
)

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
