package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// controlled serves the control socket and returns a way to ask it.
func controlled(t *testing.T, b *bench) func(method, path, body string) (int, string) {
	t.Helper()
	socket := filepath.Join(b.dir, "s")
	ln, err := listenControl(socket)
	if err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) error {
		return serve(ctx, ln, &http.Server{Handler: b.d.controlHandler(), ConnContext: withPeer})
	})
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	return func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, "http://headgate"+path, bytes.NewBufferString(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
}

// Each answer has a code that the command line's exit codes follow from.
func TestControlAnswers(t *testing.T) {
	b := newBench(t, "rules: [{name: file, match: {path: /f}, per: client, limit: 5/min}]\nblock: [192.0.2.66]")
	ask := controlled(t, b)
	rule := `{"rule": "{name: added, match: {path: /a}, per: client, limit: 5/min}", "why": "test"}`
	for _, c := range []struct {
		method, path, body string
		code               int
		has                string
	}{
		{"GET", "/v1/status", "", 200, `"last_reload_ok":true`},
		{"GET", "/v1/rules", "", 200, `"from":"config"`},
		{"POST", "/v1/rules", rule, 200, `"worst_case":"`},
		{"GET", "/v1/rules", "", 200, `"why":"test"`},
		{"POST", "/v1/rules", `{"rule": "{name: file, match: {path: /a}, per: client, limit: 5/min}"}`, 409, "in the config"},
		{"POST", "/v1/rules", `{"rule": "{name: x, burts: 1}"}`, 400, "burst"},
		{"POST", "/v1/rules", `{"rool": ""}`, 400, "rool"},
		{"POST", "/v1/rules", `{`, 400, "request body"},
		{"POST", "/v1/blocks", `{"prefix": "203.0.113.8/32", "forever": true} {}`, 400, "more than one"},
		{"DELETE", "/v1/rules/added", "", 200, "added"},
		{"DELETE", "/v1/rules/added", "", 404, "no rule"},
		{"DELETE", "/v1/rules/file", "", 409, "in the config"},
		{"POST", "/v1/blocks", `{"prefix": "203.0.113.0/24", "for": 600}`, 200, `"ends_in":600`},
		{"POST", "/v1/blocks", `{"prefix": "203.0.113.1/24", "for": 600}`, 400, "host bits"},
		{"POST", "/v1/blocks", `{"prefix": "203.0.113.0/24"}`, 400, "forever"},
		{"POST", "/v1/blocks", `{"prefix": "203.0.113.0/24", "for": 9, "peer": "203.0.113.5"}`, 409, "203.0.113.5"},
		{"DELETE", "/v1/blocks?prefix=203.0.113.9/32", "", 409, "still covered by 203.0.113.0/24"},
		{"DELETE", "/v1/blocks?prefix=203.0.113.0/24&reason=other", "", 404, "other"},
		{"DELETE", "/v1/blocks?prefix=192.0.2.66/32", "", 409, "by the config"},
		{"DELETE", "/v1/blocks?prefix=203.0.113.0/24", "", 200, `"removed":1`},
		{"DELETE", "/v1/blocks?prefix=x", "", 400, "prefix"},
		{"POST", "/v1/allows", `{"prefix": "192.0.2.66/32", "forever": true}`, 200, "192.0.2.66"},
		{"GET", "/v1/allows", "", 200, "192.0.2.66"},
		{"POST", "/v1/reload", "", 200, `"changed":false`},
		{"POST", "/v1/detach", "", 200, `"interfaces":[]`},
		{"GET", "/v1/nothing", "", 404, "GET /v1/nothing"},
	} {
		code, text := ask(c.method, c.path, c.body)
		if code != c.code || !strings.Contains(text, c.has) {
			t.Errorf("%s %s %s: %d %s, want %d with %q", c.method, c.path, c.body, code, text, c.code, c.has)
		}
		var p Problem
		if err := json.Unmarshal([]byte(text), &p); err != nil || (code != 200) != (p.Error != "") {
			t.Errorf("%s %s: %d, error %q, %v", c.method, c.path, code, p.Error, err)
		}
	}
}

// The kernel says who asked; the record keeps it.
func TestControlRecordsWhoAsked(t *testing.T) {
	b := newBench(t, "")
	ask := controlled(t, b)
	ask("POST", "/v1/blocks", `{"prefix": "203.0.113.0/24", "for": 600, "reason": "test"}`)
	e := b.d.entries(blocks).Entries[0]
	if e.UID == nil || int(*e.UID) != os.Getuid() || e.By != currentUser() || e.At.IsZero() || e.From != FromCommand {
		t.Errorf("%+v", e)
	}
}

func TestControlSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "s")
	ln, err := listenControl(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o660 || st.Mode().Type() != fs.ModeSocket {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, err := listenControl(path); err == nil || !strings.Contains(err.Error(), "another daemon answers") {
		t.Errorf("in use: %v", err)
	}
	// A daemon that was killed leaves its socket behind.
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
	again, err := listenControl(path)
	if err != nil {
		t.Fatalf("over a stale socket: %v", err)
	}
	again.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenControl(path); err == nil {
		t.Error("a file was taken for a stale socket")
	}
}
