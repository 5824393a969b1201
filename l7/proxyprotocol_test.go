package l7

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/logbuffer"
)

// newProxiedRig is a rig whose listener expects the PROXY protocol from
// 127.0.0.2 and 203.0.113.200.
func newProxiedRig(t *testing.T, rules []config.Rule, tune func(*Gate)) *rig {
	t.Helper()
	r := &rig{t: t, logs: new(logbuffer.Buffer), served: make(chan error, 1), tune: tune}
	up := httptest.NewServer(http.HandlerFunc(r.record))
	t.Cleanup(up.Close)
	r.startAs(Policy{HTTP: behind("127.0.0.2", "203.0.113.200"), Rules: rules}, "127.0.0.1:0",
		config.Listener{Door: "proxy", Upstream: up.URL, ProxyProtocol: true})
	return r
}

// proxied returns a connection from the load balancer that begins with header.
func (r *rig) proxied(header string) *client {
	r.t.Helper()
	c := r.client("127.0.0.2")
	if _, err := io.WriteString(c.conn, header); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func v1(source string) string { return "PROXY TCP4 " + source + " 192.0.2.80 4711 80\r\n" }

// v2 is a header of version 2: command 0 is LOCAL, 1 is PROXY.
func v2(command byte, source, extension string) string {
	from, to := netip.MustParseAddr(source), netip.MustParseAddr("192.0.2.80")
	family := byte(0x11)
	if from.Is6() {
		family, to = 0x21, netip.MustParseAddr("2001:db8::80")
	}
	var b bytes.Buffer
	b.WriteString("\r\n\r\n\x00\r\nQUIT\n")
	b.Write([]byte{0x20 | command, family})
	addresses := append(from.AsSlice(), to.AsSlice()...)
	binary.Write(&b, binary.BigEndian, uint16(len(addresses)+4+len(extension)))
	b.Write(addresses)
	b.Write([]byte{0x12, 0x67, 0, 80})
	return b.String() + extension
}

// RC-039 (b): clients behind a balancer that speaks the PROXY protocol have
// buckets of their own.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	r := newProxiedRig(t, []config.Rule{ruleOf(t, "all", "client", "5/1m")}, nil)
	want(t, "A by version 1", r.proxied(v1("203.0.113.1")).passed(9), 5)
	want(t, "A by version 2", r.proxied(v2(1, "203.0.113.1", "")).passed(9), 0)
	want(t, "B by version 2, with an extension", r.proxied(v2(1, "203.0.113.2", "\x04\x00\x03pad")).passed(9), 5)
	want(t, "IPv6", r.proxied(v2(1, "2001:db8:1::1", "")).passed(9), 5)
	want(t, "the same /64", r.proxied("PROXY TCP6 2001:db8:1::2 2001:db8::80 1 80\r\n").passed(9), 0)
	want(t, "another /64", r.proxied("PROXY TCP6 2001:db8:2::2 2001:db8::80 1 80\r\n").passed(9), 5)
	want(t, "to the upstream", r.last().Header.Get("X-Forwarded-For"), "2001:db8:2::2")

	want(t, "LOCAL is the balancer itself", r.proxied(v2(0, "203.0.113.9", "")).passed(3), 3)
	want(t, "and so is UNKNOWN", r.proxied("PROXY UNKNOWN\r\n").passed(9), 2)
	want(t, "to the upstream", r.last().Header.Get("X-Forwarded-For"), "127.0.0.2")
}

// The source takes the peer's place in the walk: what it says of others counts
// only if it is a declared proxy itself.
func TestProxyProtocolAndHeaders(t *testing.T) {
	t.Parallel()
	r := newProxiedRig(t, []config.Rule{ruleOf(t, "all", "client", "5/1m")}, nil)
	want(t, "an undeclared source lies", r.proxied(v1("203.0.113.1")).passed(9, xff("192.0.2.1")), 5)
	want(t, "and lies again", r.proxied(v1("203.0.113.1")).passed(9, xff("192.0.2.2")), 0)
	want(t, "a declared one says who asks", r.proxied(v1("203.0.113.200")).passed(9, xff("192.0.2.1")), 5)
	want(t, "and is believed", r.proxied(v1("203.0.113.200")).passed(9, xff("192.0.2.2")), 5)
	want(t, "to the upstream", r.last().Header.Get("X-Forwarded-For"), "192.0.2.2, 203.0.113.200")
}

// A header and a long request in one segment, and one after the other.
func TestProxyProtocolKeepsWhatFollows(t *testing.T) {
	t.Parallel()
	r := newProxiedRig(t, nil, nil)
	body := strings.Repeat("b", 3*proxyBuffer)
	request := "POST / HTTP/1.1\r\nHost: app.example\r\nContent-Length: 12288\r\n\r\n" + body
	for _, header := range []string{v1("203.0.113.1"), v2(1, "203.0.113.1", "\x04\x07\xd0"+strings.Repeat("p", 2000))} {
		c := r.proxied(header + request)
		got, _ := c.read("POST")
		want(t, "first", got.status, 200)
		want(t, "second", c.do("POST", "/", "Content-Length: 0").status, 200)
	}
}

// closedUnread reports a connection on which anything is answered, or that stays
// open. A reset and an end are the same to the peer.
func closedUnread(t *testing.T, what string, conn net.Conn) {
	t.Helper()
	b, err := io.ReadAll(conn)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Errorf("%s: not closed", what)
	}
	if len(b) > 0 {
		t.Errorf("%s: answered %q", what, b)
	}
}

// RC-039 (c): without a good header in time, or from an undeclared peer, nothing
// is read as HTTP, and nobody waits for it.
func TestProxyProtocolRefused(t *testing.T) {
	t.Parallel()
	r := newProxiedRig(t, nil, func(g *Gate) { g.proxyTime = 50 * time.Millisecond })
	const get = "GET / HTTP/1.1\r\nHost: app.example\r\n\r\n"
	all := map[EndReason]uint64{EndUndeclared: 2, EndHeld: 0, EndResets: 0, EndUnexpected: 0}
	for _, c := range []struct {
		name, bytes string
		reason      EndReason
	}{
		{"missing", get, EndMissing},
		{"late", "", EndLate},
		{"half of version 1", "PROXY TCP4 203.0.113.1", EndMalformed},
		{"half of version 2", v2(1, "203.0.113.1", "")[:20], EndLate},
		{"no address", "PROXY TCP4 example 192.0.2.80 1 80\r\n" + get, EndMalformed},
		{"of the other family", "PROXY TCP4 2001:db8::1 2001:db8::2 1 80\r\n" + get, EndMalformed},
		{"in lower case", "proxy TCP4 203.0.113.1 192.0.2.80 1 80\r\n" + get, EndMissing},
		{"without CR", "PROXY TCP4 203.0.113.1 192.0.2.80 1 80\n" + get, EndMalformed},
		{"endless", "PROXY " + strings.Repeat("x", 5000), EndMalformed},
		{"of a version to come", strings.Replace(v2(1, "203.0.113.1", ""), "\x21\x11", "\x31\x11", 1) + get, EndMalformed},
	} {
		closedUnread(t, c.name, r.proxied(c.bytes).conn)
		all[c.reason]++
	}
	// A balancer that looks whether somebody listens does nothing wrong.
	probe := r.client("127.0.0.2")
	probe.conn.(*net.TCPConn).CloseWrite()
	closedUnread(t, "probe", probe.conn)
	for range 2 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}}
		stranger, err := d.Dial("tcp", r.addr)
		if err != nil {
			continue // it was reset before it was told that it is there
		}
		defer stranger.Close()
		stranger.SetDeadline(time.Now().Add(30 * time.Second))
		io.WriteString(stranger, v1("203.0.113.1")+get)
		closedUnread(t, "undeclared peer", stranger)
	}
	if diff := cmp.Diff(all, r.gate.EndedConnections()); diff != "" {
		t.Error(diff)
	}
	for _, reason := range []EndReason{EndUndeclared, EndMissing, EndLate, EndMalformed} {
		want(t, "lines logged of "+string(reason), strings.Count(r.logs.String(), "reason="+string(reason)), 1)
	}
	r.pass(warnEvery)
	closedUnread(t, "a minute later", r.proxied(get).conn)
	want(t, "lines logged a minute later", strings.Count(r.logs.String(), "reason="+string(EndMissing)), 2)
	want(t, "a good one", r.proxied(v1("203.0.113.1")).get().status, 200)
	want(t, "requests relayed", len(r.seen), 1)
}

// RC-039 (a): what a proxy of one's own says in vain is told, with the cure.
func TestProxyProtocolUnexpected(t *testing.T) {
	t.Parallel()
	r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "5/1m")}})
	const get = "GET / HTTP/1.1\r\nHost: app.example\r\n\r\n"
	for range 3 {
		for _, header := range []string{v1("203.0.113.1"), v2(1, "203.0.113.1", ""), v2(0, "203.0.113.1", "")} {
			closedUnread(t, "unexpected", r.proxied(header+get).conn)
		}
	}
	want(t, "ended", r.gate.EndedConnections()[EndUnexpected], 9)
	want(t, "lines logged", strings.Count(r.logs.String(), "set proxy_protocol on the listener"), 1)
	want(t, "a PUT is none", r.client("127.0.0.3").do("PUT", "/").status, 200)
	r.client("127.0.0.3").get(xff("192.0.2.1"))
	r.client("127.0.0.3").get("Forwarded: for=192.0.2.1")
	want(t, "lines logged of headers", strings.Count(r.logs.String(), "forwarding headers arrive from an undeclared peer"), 1)
}

// One that is silent keeps nobody waiting.
func TestProxyProtocolSilence(t *testing.T) {
	t.Parallel()
	r := newProxiedRig(t, nil, nil)
	for range 20 {
		r.proxied("")
	}
	want(t, "another", r.proxied(v1("203.0.113.1")).get().status, 200)
}

// Connections are bounded by the client that the header names.
func TestProxyProtocolBounds(t *testing.T) {
	t.Parallel()
	r := newProxiedRig(t, nil, nil)
	p := Policy{HTTP: behind("127.0.0.2", "203.0.113.200")}
	p.HTTP.Connections = 2
	r.set(p)
	first, second := r.proxied(v1("203.0.113.1")), r.proxied(v1("203.0.113.1"))
	want(t, "first", first.get().status, 200)
	want(t, "second", second.get().status, 200)
	closedUnread(t, "third", r.proxied(v1("203.0.113.1")).conn)
	want(t, "of another client", r.proxied(v1("203.0.113.2")).get().status, 200)
	want(t, "refused connections", r.gate.EndedConnections()[EndHeld], 1)

	first.conn.Close()
	for began := time.Now(); ; {
		r.gate.connections.mu.Lock()
		held := len(r.gate.connections.held)
		n := r.gate.connections.held[clientOf(netip.MustParseAddr("203.0.113.1"), 64)]
		r.gate.connections.mu.Unlock()
		if n == 1 && held == 2 {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%d connections held by %d clients", n, held)
		}
		time.Sleep(time.Millisecond)
	}
	want(t, "when one is closed", r.proxied(v1("203.0.113.1")).get().status, 200)
}

// TLS comes after the header.
func TestProxyProtocolBeforeTLS(t *testing.T) {
	t.Parallel()
	p, l := secured(Policy{HTTP: behind("127.0.0.2"), Rules: []config.Rule{ruleOf(t, "all", "client", "2/1m")}}, certificateFor(t, "a", "a.example"))
	l.ProxyProtocol = true
	r := newListenerRig(t, p, l, nil)
	c := r.proxied(v1("203.0.113.1"))
	conn := tls.Client(c.conn, &tls.Config{ServerName: "a.example", InsecureSkipVerify: true})
	c.conn, c.in = conn, bufio.NewReader(conn)
	want(t, "passed", c.passed(4), 2)
	want(t, "shown", shown(conn), "a")
	want(t, "to the upstream", r.last().Header.Get("X-Forwarded-For"), "203.0.113.1")
}
