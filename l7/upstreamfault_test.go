package l7

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// faulty is an upstream that reads the head of each request and then does as
// answer says.
func faulty(t testing.TB, answer func(conn *net.TCPConn)) *rawUpstream {
	return newRawUpstream(t, func(_ int, conn net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err == nil {
			answer(conn.(*net.TCPConn))
		}
	})
}

// reset ends a connection so that the other side is told of an error.
func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

// An upstream that fails before its answer is 502, one that is late 504, with a
// cause and an id; its line in the log comes once. Nothing of a broken answer
// gets to the client as a whole one.
func TestUpstreamFaults(t *testing.T) {
	t.Parallel()
	say := func(text string) func(*net.TCPConn) {
		return func(conn *net.TCPConn) { io.WriteString(conn, text) }
	}
	for _, c := range []struct {
		name   string
		answer func(*net.TCPConn)
		status int
	}{
		{"reset", reset, 502},
		{"closed", func(*net.TCPConn) {}, 502},
		{"garbage", say("220 mail.example ESMTP\r\n\r\n"), 502},
		{"half a head", say("HTTP/1.1 200 OK\r\nContent-Le"), 502},
		{"two lengths", say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), 502},
		{"an unknown coding", say("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nab"), 502},
		{"an endless head", func(conn *net.TCPConn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			for range 100 {
				io.WriteString(conn, "X: "+strings.Repeat("y", 8<<10)+"\r\n")
			}
		}, 502},
		{"silence", func(conn *net.TCPConn) { io.Copy(io.Discard, conn) }, 504},
		{"a head byte by byte", func(conn *net.TCPConn) {
			for range 1000 { // until the gate has had enough
				if _, err := io.WriteString(conn, "H"); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}, 504},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			up := faulty(t, c.answer)
			l := config.Listener{Door: "proxy", Upstream: up.url(), AnswerTimeout: 20 * time.Second}
			if c.status == http.StatusGatewayTimeout {
				l.AnswerTimeout = 100 * time.Millisecond
			}
			r := newListenerRig(t, Policy{}, l, nil)
			client := r.client("127.0.0.2")
			for range 2 {
				got := client.get()
				want(t, "status", got.status, c.status)
				want(t, "type", got.header.Get("Content-Type"), "application/problem+json")
				want(t, "Cache-Control", got.header.Get("Cache-Control"), "no-store")
				var p problem
				if err := json.Unmarshal([]byte(got.body), &p); err != nil || p.Status != c.status || p.RequestID == "" || p.RequestID != got.header.Get("Request-Id") {
					t.Errorf("%v %s: %v", got.header, got.body, err)
				}
			}
			want(t, "lines logged", strings.Count(r.logs.String(), "upstream does not answer"), 1)
		})
	}
}

// An answer that breaks off in the middle breaks off at the client: it cannot
// be taken for a whole one.
func TestUpstreamBreaksOff(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"with a length": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"in chunks":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
		"bad chunks":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nxyz\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := faulty(t, func(conn *net.TCPConn) {
				io.WriteString(conn, text)
				conn.CloseWrite()
				io.Copy(io.Discard, conn)
			})
			r := newRawRig(t, Policy{}, up, nil)
			for major, transport := range map[int]*http.Transport{1: {}, 2: {Protocols: onlyH2C()}} {
				resp, err := (&http.Client{Transport: transport}).Get("http://" + r.addr)
				if err != nil {
					continue // it broke off before its head was sent on
				}
				want(t, "protocol", resp.ProtoMajor, major)
				body, err := io.ReadAll(resp.Body)
				if resp.Body.Close(); err == nil {
					t.Errorf("HTTP/%d: %q was taken for the whole", major, body)
				}
				transport.CloseIdleConnections()
			}
		})
	}
}

func onlyH2C() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// A connection that the upstream closes just as a request goes out on it: what
// may be sent twice is, on another connection, and the client sees nothing of
// it; a POST that may have arrived is not.
func TestStaleConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, body string
		status, sent int
	}{{"GET", "", 200, 2}, {"HEAD", "", 200, 2}, {"POST", "abc", 502, 1}, {"POST", "", 502, 1}, {"PATCH", "abc", 502, 1}} {
		t.Run(c.method+c.body, func(t *testing.T) {
			t.Parallel()
			up := newRawUpstream(t, func(number int, conn net.Conn, in *bufio.Reader) {
				for n := 0; ; n++ {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					if number == 0 && n == 1 {
						return // it had kept the connection for too long
					}
					io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			})
			r := newRawRig(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "9/1h")}}, up, nil)
			client := r.client("127.0.0.2")
			want(t, "first", client.do("GET", "/first").status, 200)
			fmt.Fprintf(client.conn, "%s /second HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", c.method, len(c.body), c.body)
			got, _ := client.read(c.method)
			want(t, "status", got.status, c.status)
			want(t, "sent", strings.Count(up.got(), c.method+" /second"), c.sent)
			want(t, "charged", r.gate.Counters()["all"].Passed, 2)
		})
	}
}
