package rig

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
)

func TestNetIsRemoved(t *testing.T) {
	var names []string
	t.Run("use", func(t *testing.T) {
		n := Star(t, 2)
		names = []string{n.Gate.Name, n.Links[0].Peer.NS.Name, n.Links[1].Peer.NS.Name}
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(namespaces, name)); err != nil {
				t.Error(err)
			}
		}
	})
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(namespaces, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("namespace %s is still there: %v", name, err)
		}
	}
}

func TestStaleIsRemoved(t *testing.T) {
	RequireRoot(t)
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	stale := fmt.Sprintf("%s-%d-1", prefix, dead.Process.Pid)
	err := inThread(func(netns.NsHandle) error {
		handle, err := netns.NewNamed(stale)
		if err == nil {
			err = handle.Close()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := mountBPFFS(); err != nil {
		t.Fatal(err)
	}
	pins := filepath.Join(bpffs, stale)
	if err := os.Mkdir(pins, 0o700); err != nil {
		t.Fatal(err)
	}
	n := Net(t) // removes what is stale, and only that
	removeStale()
	for _, path := range []string{filepath.Join(namespaces, stale), pins} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s of a dead process is still there: %v", path, err)
		}
	}
	if _, err := os.Stat(n.Gate.Path()); err != nil {
		t.Errorf("a living process's namespace is gone: %v", err)
	}
}

func TestMaker(t *testing.T) {
	for name, want := range map[string]int{
		"headgate-test-12-3":  12,
		"headgate-test-12":    0,
		"headgate-test-x-1":   0,
		"headgate-test-0-1":   0,
		"headgate-test-12-3x": 0,
		"headgate":            0,
		"other-12-3":          0,
	} {
		if pid, ok := maker(name); ok != (want != 0) || ok && pid != want {
			t.Errorf("maker(%q) = %d, %v; want %d", name, pid, ok, want)
		}
	}
}

func TestRunComesHome(t *testing.T) {
	n := Net(t)
	id := func() string {
		ns, err := netns.Get()
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		return ns.UniqueId()
	}
	home := id()
	for range 20 {
		var inside string
		if err := Run(n.Gate, func() error { inside = id(); return nil }); err != nil {
			t.Fatal(err)
		}
		if inside == home {
			t.Fatal("ran in the namespace that it came from")
		}
		if got := id(); got != home {
			t.Fatalf("after Run in namespace %s, want %s", got, home)
		}
	}
	if err := Run(n.Gate, func() error { return io.EOF }); err != io.EOF {
		t.Errorf("Run returned %v, want the function's error", err)
	}
}

// FailNow and SkipNow end their goroutine; Run must hand that on.
func TestRunHandsOnTheEndOfATest(t *testing.T) {
	n := Net(t)
	past := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		Run(n.Gate, func() error { runtime.Goexit(); return nil })
		past = true
	}()
	<-done
	if past {
		t.Error("the caller went on after its goroutine was ended inside Run")
	}
}

func TestHTTPFromAnySource(t *testing.T) {
	n := Net(t)
	l := n.Links[0]
	extra := netip.MustParseAddr("203.0.113.5")
	if err := l.Peer.AddAddress(netip.PrefixFrom(extra, 32)); err != nil {
		t.Fatal(err)
	}
	if err := l.StaticNeighbours(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ source, gate netip.Addr }{
		{l.Peer.IPv4, l.Gate.IPv4}, {extra, l.Gate.IPv4}, {l.Peer.IPv6, l.Gate.IPv6},
	} {
		t.Run(tt.source.String(), func(t *testing.T) {
			ln, err := Listen(n.Gate, "tcp", netip.AddrPortFrom(tt.gate, 0).String())
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, netip.MustParseAddrPort(r.RemoteAddr).Addr())
			})}
			go server.Serve(ln)
			t.Cleanup(func() { server.Close() })
			client := HTTPClient(l.Peer.NS, tt.source)
			defer client.CloseIdleConnections()
			resp, err := client.Get("http://" + ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, _ := io.ReadAll(resp.Body); string(body) != tt.source.String() {
				t.Errorf("server saw %q, want %v", body, tt.source)
			}
		})
	}
}

func TestCommandSeesNamespaceAndPins(t *testing.T) {
	n := Net(t)
	pins := BPFFS(t)
	out, err := Command(n.Gate, "sh", "-c", `cat /proc/self/net/dev && ls -d "$1"`, "sh", pins).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{n.Links[0].Gate.Interface, pins} {
		if !strings.Contains(string(out), want) {
			t.Errorf("output lacks %s:\n%s", want, out)
		}
	}
}

func TestBPFFSIsRemoved(t *testing.T) {
	var dir string
	t.Run("use", func(t *testing.T) {
		dir = BPFFS(t)
		if err := os.Mkdir(filepath.Join(dir, "links"), 0o700); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}
