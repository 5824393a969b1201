package daemon

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/l7"
)

func TestIDSecret(t *testing.T) {
	dir := t.TempDir()
	first, warning, err := idSecret(dir)
	if err != nil || warning != "" || len(first) != l7.SecretSize {
		t.Fatalf("%d bytes, %q, %v", len(first), warning, err)
	}
	path := filepath.Join(dir, secretFile)
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if again, _, err := idSecret(dir); err != nil || !bytes.Equal(again, first) {
		t.Errorf("another secret at the second look: %v", err)
	}
	put(t, path, "short")
	if other, warning, err := idSecret(dir); err != nil || bytes.Equal(other, first) || !strings.Contains(warning, "5 bytes") {
		t.Errorf("%q, %v", warning, err)
	}
	if _, _, err := idSecret(filepath.Join(dir, "absent")); err == nil || !strings.Contains(err.Error(), "keep the secret") {
		t.Errorf("without a folder: %v", err)
	}
}

// A refusal's id says which host and rule refused, to who has the secret; that
// outlives the HTTP gate's process.
func TestRequestIDOfARefusal(t *testing.T) {
	address := freeAddress(t)
	b := newBench(t, fmt.Sprintf("http: {listen: %q, upstream: %q}\nrules: [{name: once, gate: http, per: total, limit: 1/day}]", address, upstream(t)))
	background(t, b.d.http.run)
	refusedID := func() string {
		t.Helper()
		for range 2 {
			resp, err := http.Get("http://" + address + "/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests {
				return resp.Header.Get("Request-Id")
			}
		}
		t.Fatal("not refused")
		return ""
	}
	first, pid := refusedID(), b.childPID()
	b.d.http.child.end()
	await.For(t, "another child is up", func() bool { p := b.childPID(); return p != 0 && p != pid })
	secret, err := os.ReadFile(filepath.Join(b.d.policy.cfg.State.Dir, secretFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{first, refusedID()} {
		id, err := l7.OpenRequestID(secret, text)
		if err != nil || id.Rule != "once" || id.Host != hostName() {
			t.Errorf("%s: %+v, %v", text, id, err)
		}
	}
}

// A body is part of the config: it is watched, and told apart by its hash.
func TestBodyIsWatched(t *testing.T) {
	address := freeAddress(t)
	b := newBench(t, "")
	body := filepath.Join(b.dir, "refused.txt")
	put(t, body, "one {{.Rule}}\n")
	b.write(t, fmt.Sprintf("http: {listen: %q, upstream: %q, answers: {body: {file: refused.txt, type: text/plain}}}\nrules: [{name: once, gate: http, per: total, limit: 1/day}]", address, upstream(t)))
	if _, err := b.d.reload(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	background(t, b.d.http.run)
	background(t, b.d.watchConfig)
	await.For(t, "the first body", func() bool { _, text := fetch(t, "http://"+address+"/"); return text == "one once\n" })
	put(t, body, "two {{.Rule}}\n")
	await.For(t, "the second body", func() bool { _, text := fetch(t, "http://"+address+"/"); return text == "two once\n" })
	put(t, body, "three {{.Address}}\n")
	await.For(t, "a bad body is told", func() bool { return b.conf().err != nil })
	if _, text := fetch(t, "http://"+address+"/"); text != "two once\n" {
		t.Errorf("after a bad body: %s", text)
	}
}
