package l7

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2conn is one connection of HTTP/2 in the clear, frame by frame.
type h2conn struct {
	t *testing.T
	net.Conn
	*http2.Framer
	head bytes.Buffer
	enc  *hpack.Encoder
}

func (r *rig) frames(t *testing.T, settings ...http2.Setting) *h2conn {
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
	if err := c.WriteSettings(settings...); err != nil {
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

// serveBoth returns the URL of a server of HTTP/1 and of HTTP/2 in the clear.
func serveBoth(t testing.TB, h http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = protocols()
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}
