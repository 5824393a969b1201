package daemon

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/logbuffer"
	"github.com/headgate/headgate/internal/selfsigned"
)

// writePair puts a certificate for name, and its key, into the bench's folder.
func (b *bench) writePair(t *testing.T, name string, ends time.Time) {
	t.Helper()
	cert, key := selfsigned.Pair(t, ends, name)
	for file, text := range map[string][]byte{"site.key": key, "site.pem": cert} {
		if err := os.WriteFile(filepath.Join(b.dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// shown is the name on the certificate that address shows.
func shown(t *testing.T, address string) string {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// A new certificate serves as soon as its files are there; broken ones leave the
// old in force and status says so; one that ends soon is warned of. The process
// that serves has no access to the files, only to what they hold.
func TestCertificatesAreReadAgain(t *testing.T) {
	b := &bench{dir: t.TempDir(), log: &logbuffer.Buffer{}}
	b.config = filepath.Join(b.dir, "headgate.yaml")
	b.writePair(t, "old.example", time.Now().Add(400*24*time.Hour))
	address := freeAddress(t)
	b.write(t, fmt.Sprintf("http: {listen: %q, upstream: %q, tls: {certificates: [{cert_file: site.pem, key_file: site.key}]}}", address, upstream(t)))
	b.d = b.daemon(t)
	background(t, b.d.watchConfig)
	if got := shown(t, address); got != "old.example" {
		t.Errorf("shown %s", got)
	}
	st := b.d.snapshot(t.Context())
	if c := st.HTTP.Certificates; len(c) != 1 || c[0].File != "site.pem" || c[0].DaysLeft != 399 || strings.Contains(strings.Join(st.Config.Warnings, "\n"), "certificate") {
		t.Errorf("certificates %+v, warnings %q", c, st.Config.Warnings)
	}
	kept, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()

	if err := os.WriteFile(filepath.Join(b.dir, "site.pem"), []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	await.For(t, "status tells of the broken file", func() bool {
		return strings.Contains(b.d.snapshot(t.Context()).Config.Error, `certificate "site.pem"`)
	})
	if got := shown(t, address); got != "old.example" {
		t.Errorf("with a broken file: shown %s", got)
	}

	pid := b.childPID()
	b.writePair(t, "new.example", time.Now().Add(9*24*time.Hour+time.Hour))
	await.For(t, "the new certificate is shown", func() bool { return shown(t, address) == "new.example" })
	if now := b.childPID(); now != pid {
		t.Errorf("process %d became %d", pid, now)
	}
	fmt.Fprintf(kept, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	kept.SetReadDeadline(soon())
	buf := make([]byte, 12)
	if _, err := kept.Read(buf); err != nil || string(buf) != "HTTP/1.1 200" {
		t.Errorf("the connection of before: %q, %v", buf, err)
	}
	st = b.d.snapshot(t.Context())
	if all := strings.Join(st.Config.Warnings, "\n"); !st.Config.OK || !strings.Contains(all, "certificate site.pem ends in 9 days") {
		t.Errorf("status: %v %q, warnings %q", st.Config.OK, st.Config.Error, all)
	}
	if text := fmt.Sprint(settings(b.d.policy.cfg)); strings.Contains(text, "PRIVATE") || !strings.Contains(text, "certificate in site.pem") {
		t.Errorf("settings for a difference: %s", text)
	}
}

func TestCertificateWarnings(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	cert := func(left time.Duration) []config.Certificate {
		return []config.Certificate{{CertificateFiles: config.CertificateFiles{CertFile: "a.pem"}, Ends: now.Add(left)}}
	}
	for _, c := range []struct {
		left time.Duration
		days int
		want string
	}{
		{30 * 24 * time.Hour, 30, ""},
		{14*24*time.Hour - time.Second, 13, "certificate a.pem ends in 13 days, on 2026-05-15: "},
		{time.Hour, 0, "certificate a.pem ends in 0 days, on 2026-05-01: "},
		{-time.Hour, -1, "certificate a.pem HAS ENDED on 2026-05-01: "},
	} {
		got := strings.Join(certificateWarnings(cert(c.left), now), "|")
		if got != c.want && (c.want == "" || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%v: %q, want %q", c.left, got, c.want)
		}
		if days := certificateStatus(cert(c.left), now)[0].DaysLeft; days != c.days {
			t.Errorf("%v: %d days left, want %d", c.left, days, c.days)
		}
	}
}
