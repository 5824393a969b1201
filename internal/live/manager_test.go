package live

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// manager speaks systemd's side of its protocols for real: it hands over
// listening sockets (sd_listen_fds(3)), is told how the service fares
// (sd_notify(3)) and keeps sockets for it (FDSTORE).
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	env  []string
	unit []*os.File // of the .socket unit

	mu    sync.Mutex
	told  []string
	store map[string]*os.File
}

// manage makes h's daemon a service of a manager.
func manage(t *testing.T, h *host, unit ...*os.File) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "headgate-notify-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{t: t, conn: conn, unit: unit, store: map[string]*os.File{}, env: []string{"NOTIFY_SOCKET=" + path}}
	t.Cleanup(func() {
		conn.Close()
		os.RemoveAll(dir)
		for _, f := range m.store {
			f.Close()
		}
	})
	go m.listen()
	// the protocol wants the number of the process, which only it knows
	h.as = append([]string{"sh", "-c", `export LISTEN_PID=$$ WATCHDOG_PID=$$; exec "$@"`, "sh"}, h.as...)
	h.set = m.pass
	return m
}

// pass gives a command what systemd would.
func (m *manager) pass(cmd *exec.Cmd) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, f := range m.unit {
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		names = append(names, "headgate.socket")
	}
	for name, f := range m.store {
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		names = append(names, name)
	}
	cmd.Env = append(os.Environ(), m.env...)
	if len(names) > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("LISTEN_FDS=%d", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
}

// listen takes datagrams, with the sockets that ride on them, until conn is
// closed.
func (m *manager) listen() {
	text, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(16*4))
	for {
		n, rn, _, _, err := m.conn.ReadMsgUnix(text, rights)
		if err != nil {
			return
		}
		var files []*os.File
		if msgs, err := unix.ParseSocketControlMessage(rights[:rn]); err == nil {
			for _, msg := range msgs {
				fds, _ := unix.ParseUnixRights(&msg)
				for _, fd := range fds {
					unix.CloseOnExec(fd)
					files = append(files, os.NewFile(uintptr(fd), "stored"))
				}
			}
		}
		m.take(strings.Split(string(text[:n]), "\n"), files)
	}
}

func (m *manager) take(lines []string, files []*os.File) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, lines...)
	var name string
	for _, l := range lines {
		if v, ok := strings.CutPrefix(l, "FDNAME="); ok {
			name = v
		}
	}
	switch {
	case slices.Contains(lines, "FDSTORE=1") && len(files) == 1:
		m.store[name] = files[0]
	case slices.Contains(lines, "FDSTOREREMOVE=1") && m.store[name] != nil:
		m.store[name].Close()
		delete(m.store, name)
	}
}

// count tells how often a line came.
func (m *manager) count(line string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.told {
		if l == line {
			n++
		}
	}
	return n
}

func (m *manager) stored() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.store {
		names = append(names, name)
	}
	return names
}

// await waits until a line has come so often.
func (m *manager) await(line string, times int) {
	m.t.Helper()
	for end := time.Now().Add(20 * time.Second); m.count(line) < times; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.t.Fatalf("the manager was not told %s %d times: %q", line, times, m.told)
		}
	}
}
