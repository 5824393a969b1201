package l7

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/selfsigned"
)

// certificateFor returns a certificate that signs itself, for names.
func certificateFor(t testing.TB, file string, names ...string) config.Certificate {
	t.Helper()
	cert, key := selfsigned.Pair(t, time.Now().Add(time.Hour), append([]string{file}, names...)...)
	return config.Certificate{
		CertificateFiles: config.CertificateFiles{CertFile: file, KeyFile: file + ".key"},
		Cert:             cert, Key: key,
	}
}

// secured returns a policy with certs and a listener that uses them all.
func secured(p Policy, certs ...config.Certificate) (Policy, config.Listener) {
	l := config.Listener{Door: "proxy", TLS: &config.TLS{MinVersion: "1.2"}}
	p.HTTP.Certificates = certs
	for _, c := range certs {
		l.TLS.Certificates = append(l.TLS.Certificates, c.CertificateFiles)
	}
	return p, l
}

// dialTLS returns a connection from a loopback address of its own.
func (r *rig) dialTLS(from string, conf *tls.Config) (*tls.Conn, error) {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	conf.InsecureSkipVerify = true // the tests look at the certificate themselves
	return tls.DialWithDialer(d, "tcp", r.addr, conf)
}

func shown(c *tls.Conn) string { return c.ConnectionState().PeerCertificates[0].Subject.CommonName }

// The certificate is that of the name asked for, the protocol what both speak;
// new certificates serve from the next handshake on, and nothing is cut.
func TestTLSCertificates(t *testing.T) {
	a, b := certificateFor(t, "a", "a.example", "*.a.example"), certificateFor(t, "b", "b.example")
	p, l := secured(Policy{}, a, b)
	r := newListenerRig(t, p, l, nil)
	for _, c := range []struct{ name, want, offer, protocol string }{
		{"a.example", "a", "h2", "h2"},
		{"x.a.example", "a", "http/1.1", "http/1.1"},
		{"B.example", "b", "", ""},
		{"c.example", "a", "h2", "h2"},
		{"", "a", "h2", "h2"},
	} {
		conf := &tls.Config{ServerName: c.name}
		if c.offer != "" {
			conf.NextProtos = []string{c.offer}
		}
		conn, err := r.dialTLS("127.0.0.2", conf)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		want(t, c.name+" is shown", shown(conn), c.want)
		want(t, c.name+" speaks", conn.ConnectionState().NegotiatedProtocol, c.protocol)
		conn.Close()
	}

	old, err := r.dialTLS("127.0.0.2", &tls.Config{ServerName: "a.example"})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	ask := func() {
		io.WriteString(old, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
		buf := make([]byte, 12)
		if _, err := io.ReadFull(old, buf); err != nil || string(buf) != "HTTP/1.1 200" {
			t.Fatalf("%q, %v", buf, err)
		}
		old.SetReadDeadline(time.Now().Add(10 * time.Second))
		for rest := string(buf); !strings.HasSuffix(rest, "\r\n\r\nok"); rest += string(buf[:1]) {
			if _, err := old.Read(buf[:1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask()
	fresh := certificateFor(t, "renewed", "a.example")
	fresh.CertificateFiles = a.CertificateFiles
	p.HTTP.Certificates = []config.Certificate{fresh, b}
	r.set(p)
	conn, err := r.dialTLS("127.0.0.2", &tls.Config{ServerName: "a.example"})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "after the change", shown(conn), "renewed")
	conn.Close()
	ask() // on the connection of before

	fresh.Key = b.Key
	p.HTTP.Certificates = []config.Certificate{fresh, b}
	if err := r.gate.SetPolicy(p); err == nil || !strings.Contains(err.Error(), "certificate a") {
		t.Errorf("a key that does not fit: %v", err)
	}
}

// A handshake below the listener's version fails, as does one that never comes.
func TestTLSVersion(t *testing.T) {
	p, l := secured(Policy{}, certificateFor(t, "a", "a.example"))
	l.TLS.MinVersion = "1.3"
	r := newListenerRig(t, p, l, nil)
	if _, err := r.dialTLS("127.0.0.2", &tls.Config{MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 was taken")
	}
	conn, err := r.dialTLS("127.0.0.2", &tls.Config{})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// The upstream is told that the client came over TLS.
func TestTLSIsForwarded(t *testing.T) {
	p, l := secured(Policy{}, certificateFor(t, "a", "a.example"))
	r := newListenerRig(t, p, l, nil)
	resp, err := r.h2(t, "127.0.0.2").Get("https://" + r.addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	want(t, "protocol", resp.ProtoMajor, 2)
	want(t, "X-Forwarded-Proto", r.last().Header.Get("X-Forwarded-Proto"), "https")
	want(t, "X-Forwarded-For", r.last().Header.Get("X-Forwarded-For"), "127.0.0.2")
}

// h2 returns a client that speaks HTTP/2 only: in the clear to http URLs.
func (r *rig) h2(t testing.TB, from string) *http.Client {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	speaks := new(http.Protocols)
	speaks.SetHTTP2(true)
	speaks.SetUnencryptedHTTP2(true)
	tr := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return d.DialContext(ctx, network, r.addr)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: speaks,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}
