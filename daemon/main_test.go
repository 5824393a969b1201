package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/logbuffer"
)

// TestMain lets the test binary be the launcher and the HTTP gate's process too,
// since the daemon starts its own binary for them.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == LauncherCommand {
		if err := RunLauncher(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == ChildCommand {
		if err := RunChild(slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for what must come; only one that fails
// waits that long.
const patience = 30 * time.Second

// bench is a folder with a config, and a daemon on it whose tasks do not run.
type bench struct {
	dir, config string
	log         *logbuffer.Buffer
	d           *daemon
}

// newBench makes a daemon with rest, lines of YAML, in its config.
func newBench(t testing.TB, rest string) *bench {
	t.Helper()
	b := &bench{dir: t.TempDir(), log: &logbuffer.Buffer{}}
	b.config = filepath.Join(b.dir, "headgate.yaml")
	b.write(t, rest)
	b.d = b.daemon(t)
	return b
}

// text is a whole config with rest in it.
func (b *bench) text(rest string) string {
	return fmt.Sprintf("version: 1\nadmin: {socket: %q, listen: off}\nstate: {dir: %q, pins: %q}\n%s\n",
		filepath.Join(b.dir, "s"), filepath.Join(b.dir, "state"), filepath.Join(b.dir, "pins"), rest)
}

func (b *bench) write(t testing.TB, rest string) {
	t.Helper()
	if err := os.WriteFile(b.config, []byte(b.text(rest)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// daemon starts where the last one on this bench left off.
func (b *bench) daemon(t testing.TB) *daemon {
	t.Helper()
	d, err := newDaemon(Options{ConfigPath: b.config, Version: "test", Log: slog.New(slog.NewTextHandler(b.log, nil)), Stderr: b.log})
	if err != nil {
		t.Fatal(err)
	}
	d.gateways = func() ([]netip.Addr, error) { return nil, nil } // whatever this machine has
	if err := d.recall(); err != nil {
		t.Fatal(err)
	}
	if err := d.open(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.http.close)
	return d
}

// background runs a task of the daemon until the test ends.
func background(t *testing.T, task func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- task(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// upstream is a server behind the HTTP gate.
func upstream(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "upstream", r.URL.Path)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// freeAddress is an address that nothing listens on: the whole of 127/8 is the
// loopback interface, so each call has a host of its own.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+os.Getpid()>>8%250, os.Getpid()&0xff, 1+nextHost()))
		if err != nil {
			continue
		}
		defer ln.Close()
		return ln.Addr().String()
	}
	t.Fatal("no free loopback address")
	return ""
}

var hosts struct {
	sync.Mutex
	n int
}

func nextHost() int {
	hosts.Lock()
	defer hosts.Unlock()
	hosts.n = (hosts.n + 1) % 250
	return hosts.n
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
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
