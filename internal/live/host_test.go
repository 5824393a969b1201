package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/daemon"
	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/logbuffer"
	"github.com/headgate/headgate/internal/rig"
)

// binary is headgate, built once for all tests.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "headgate-live-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// the HTTP gate's process runs as another user
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "headgate")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "github.com/headgate/headgate/cmd/headgate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build headgate: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// host is a machine under test: headgate in the gate's namespace, with its
// own config, state, pins and socket.
type host struct {
	t    *testing.T
	net  *rig.Network
	link rig.Link
	dir  string
	pins string
	cmd  *exec.Cmd
	done chan struct{}
	log  *logbuffer.Buffer
	as   []string        // what the daemon is started through, such as setpriv(1)
	set  func(*exec.Cmd) // what else the daemon is started with; may be nil
}

// newHost makes the machine, with config as its file. In config, IFACE, PINS,
// DIR and UPSTREAM stand for what differs from test to test.
func newHost(t *testing.T, config string) *host {
	t.Helper()
	return newHostOn(t, rig.Net(t), config)
}

// newHostOn is newHost on a network of any number of links.
func newHostOn(t *testing.T, n *rig.Network, config string) *host {
	t.Helper()
	h := &host{t: t, net: n, link: n.Links[0], dir: t.TempDir(), pins: filepath.Join(rig.BPFFS(t), "headgate")}
	h.write(config)
	t.Cleanup(func() {
		h.kill()
		if out, err := h.try("detach", "--all", "--pins", h.pins); err != nil {
			t.Errorf("detach --all at the end: %v\n%s", err, out)
		}
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", h.log)
		}
	})
	return h
}

const adminConfig = `
admin: {socket: DIR/headgate.sock, listen: off}
state: {dir: DIR/state, pins: PINS}
`

func (h *host) write(config string) {
	h.t.Helper()
	text := strings.NewReplacer(
		"IFACE", h.link.Gate.Interface, "PINS", h.pins, "DIR", h.dir,
	).Replace("version: 1\n" + strings.TrimSpace(config) + adminConfig)
	if err := os.WriteFile(h.config(), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// rewrite replaces old by new in the config.
func (h *host) rewrite(old, new string) {
	h.t.Helper()
	text, err := os.ReadFile(h.config())
	if err != nil {
		h.t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		h.t.Fatalf("the config has no %q", old)
	}
	if err := os.WriteFile(h.config(), []byte(strings.ReplaceAll(string(text), old, new)), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) config() string { return filepath.Join(h.dir, "headgate.yaml") }

// launch runs the daemon in the background.
func (h *host) launch() {
	h.t.Helper()
	if h.log == nil {
		h.log = &logbuffer.Buffer{}
	}
	h.cmd = h.daemon()
	h.cmd.Stdout, h.cmd.Stderr = h.log, h.log
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := h.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	done := make(chan struct{})
	h.done = done
	cmd := h.cmd
	go func() { cmd.Wait(); close(done) }()
}

// start runs the daemon and waits until it says that it is up.
func (h *host) start() {
	h.t.Helper()
	h.launch()
	done := h.done
	h.await("the daemon to be up", func() bool {
		select {
		case <-done:
			h.t.Fatalf("the daemon ended:\n%s", h.log)
		default:
		}
		_, err := h.try("status")
		return err == nil
	})
}

// daemon is the command that runs the daemon.
func (h *host) daemon() *exec.Cmd {
	line := append(append([]string{}, h.as...), binary, "run", "-c", h.config())
	cmd := rig.Command(h.net.Gate, line[0], line[1:]...)
	if h.set != nil {
		h.set(cmd)
	}
	return cmd
}

// kill ends the daemon as hard as can be.
func (h *host) kill() {
	if h.cmd == nil {
		return
	}
	h.cmd.Process.Signal(syscall.SIGKILL)
	<-h.done
	h.cmd = nil
}

// stop ends the daemon as systemd would.
func (h *host) stop() { h.end(syscall.SIGTERM) }

// interrupt ends the daemon as Ctrl-C would.
func (h *host) interrupt() { h.end(syscall.SIGINT) }

func (h *host) end(s syscall.Signal) {
	h.t.Helper()
	h.cmd.Process.Signal(s)
	select {
	case <-h.done:
	case <-time.After(20 * time.Second):
		h.t.Fatalf("the daemon does not stop on %v", s)
	}
	h.cmd = nil
}

// try runs a command of the CLI.
func (h *host) try(args ...string) (string, error) {
	cmd := rig.Command(h.net.Gate, binary, append(args, "-c", h.config())...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// do runs a command that must succeed.
func (h *host) do(args ...string) string {
	h.t.Helper()
	out, err := h.try(args...)
	if err != nil {
		h.t.Fatalf("headgate %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// exits runs a command that must end with code and say all of what.
func (h *host) exits(code int, what []string, args ...string) {
	h.t.Helper()
	out, err := h.try(args...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		h.t.Errorf("headgate %s: %v, want exit code %d\n%s", strings.Join(args, " "), err, code, out)
	}
	for _, w := range what {
		if !strings.Contains(out, w) {
			h.t.Errorf("headgate %s does not say %q:\n%s", strings.Join(args, " "), w, out)
		}
	}
}

// await waits until ok.
func (h *host) await(what string, ok func() bool) {
	h.t.Helper()
	await.For(h.t, what, ok)
}

func (h *host) status() (s daemon.Status) {
	h.t.Helper()
	if err := json.Unmarshal([]byte(h.do("status", "-o", "json")), &s); err != nil {
		h.t.Fatal(err)
	}
	return s
}

// rule is one rule's line of the status.
func (h *host) rule(name string) daemon.Rule {
	h.t.Helper()
	for _, r := range h.status().Rules {
		if r.Name == name {
			return r
		}
	}
	h.t.Fatalf("status has no rule %s", name)
	return daemon.Rule{}
}

// upstream is an application in the gate's namespace; it answers every
// request with 200.
func upstream(t *testing.T, n *rig.Network) string {
	t.Helper()
	l, err := rig.Listen(n.Gate, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello")
	}))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}
