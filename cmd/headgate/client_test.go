package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A daemon that hangs is told from one that is dead, and not waited for for ever.
func TestHangingDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket) // its queue takes connections, nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := (&env{socket: socket, getenv: func(string) string { return "" }}).client()
	if err != nil {
		t.Fatal(err)
	}
	if c.wait != askTime {
		t.Errorf("waits %v", c.wait)
	}
	c.wait = 20 * time.Millisecond
	err = c.ask(context.Background(), "GET", "/v1/status", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "did not answer within 20ms") || !strings.Contains(err.Error(), "kill it") {
		t.Errorf("error %v", err)
	}
}

// RC-007: who blocks by sudo, which takes SSH_CONNECTION out of the environment,
// is known by the shell above.
func TestPeerAboveSudo(t *testing.T) {
	proc := t.TempDir()
	process := func(pid, parent int, environ string) {
		dir := filepath.Join(proc, fmt.Sprint(pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		status := fmt.Sprintf("Name:\tx\nPid:\t%d\nPPid:\t%d\n", pid, parent)
		for name, text := range map[string]string{"environ": environ, "status": status} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	process(40, 30, "TERM=xterm\x00SUDO_USER=ann\x00") // sudo
	process(30, 20, "SSH_CONNECTION=192.0.2.50 50022 198.51.100.1 22\x00TERM=xterm\x00")
	process(20, 1, "SSH_CONNECTION=203.0.113.1 1 2 3\x00")
	process(60, 61, "") // a circle
	process(61, 60, "NOT_SSH_CONNECTION=1\x00")
	for pid, want := range map[int]string{40: "192.0.2.50", 20: "203.0.113.1", 60: "", 99: "", 1: ""} {
		e := &env{getenv: func(string) string { return "" }, above: func(name string) string { return inherited(proc, pid, name) }}
		if got := sshPeer(e); got.IsValid() != (want != "") || got.IsValid() && got != netip.MustParseAddr(want) {
			t.Errorf("from process %d: %v, want %q", pid, got, want)
		}
	}
}
