package live

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// askers ask url again and again, each request on a connection of its own,
// until stop is called.
type askers struct {
	answered, refused, failed atomic.Int64
	lastErr                   atomic.Value
	done                      chan struct{}
	wg                        sync.WaitGroup
}

func ask(h *host, url string) *askers {
	a := &askers{done: make(chan struct{})}
	for range 4 {
		a.wg.Go(func() {
			c := rig.HTTPClient(h.link.Peer.NS, h.link.Peer.IPv4)
			for {
				select {
				case <-a.done:
					return
				default:
				}
				code, err := get(c, url)
				switch {
				case err == nil && code == 200:
					a.answered.Add(1)
				case err != nil && strings.Contains(err.Error(), "connection refused"):
					a.refused.Add(1)
				default:
					a.failed.Add(1)
					a.lastErr.Store([]any{code, err})
				}
				c.CloseIdleConnections()
			}
		})
	}
	return a
}

func (a *askers) stop() {
	close(a.done)
	a.wg.Wait()
}

// listenIn opens a listening socket in the gate's namespace, as a .socket unit
// would.
func listenIn(t *testing.T, h *host, address string) *os.File {
	t.Helper()
	ln, err := rig.Listen(h.net.Gate, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A restart of the service refuses no connection and breaks no request, with
// the sockets in a .socket unit or left with the manager by the daemon before;
// nor does a kill refuse one. The manager is told ready when both gates are in
// force, and stopping.
func TestRestartRefusesNoConnection(t *testing.T) {
	const restarts = 3
	for _, kind := range []string{"socket unit", "left with the manager"} {
		t.Run(kind, func(t *testing.T) {
			h := newHost(t, "")
			address := h.link.Gate.IPv4.String() + ":8080"
			config := `
network: {interfaces: [IFACE]}
block: [203.0.113.9]
http: {listen: "` + address + `", upstream: ` + upstream(t, h.net) + "}\n"
			h.write(config)
			var unit []*os.File
			if kind == "socket unit" {
				unit = append(unit, listenIn(t, h, address))
			}
			m := manage(t, h, unit...)
			m.env = append(m.env, "WATCHDOG_USEC=300000")
			h.start()
			m.await("READY=1", 1)
			if want := len(unit) == 0; (len(m.stored()) == 1) != want {
				t.Errorf("left with the manager: %q", m.stored())
			}
			load := ask(h, "http://"+address+"/")
			ready := 1
			for range restarts {
				before := load.answered.Load()
				h.await("answers", func() bool { return load.answered.Load() > before+20 })
				h.stop()
				m.await("STOPPING=1", ready)
				h.start()
				ready++
				m.await("READY=1", ready)
			}
			if n := load.failed.Load(); n != 0 {
				t.Errorf("%d restarts broke %d requests, the last: %v", restarts, n, load.lastErr.Load())
			}
			h.kill()
			h.start()
			before := load.answered.Load()
			h.await("answers after the kill", func() bool { return load.answered.Load() > before+20 })
			load.stop()
			if n := load.refused.Load(); n != 0 {
				t.Errorf("%d connections were refused, %d requests answered", n, load.answered.Load())
			}
			t.Logf("%d answered", load.answered.Load())

			h.do("reload")
			m.await("RELOADING=1", 1)
			m.await("READY=1", ready+2)
			m.await("WATCHDOG=1", 3)
			h.write("network: {interfaces: [IFACE]}\n")
			h.do("reload")
			h.await("the manager keeps no socket that is not listened on", func() bool { return len(m.stored()) == 0 })
			h.write(config)
			h.do("reload")
			if code, err := get(h.client(h.link.Peer.IPv4.String()), "http://"+address+"/"); code != 200 {
				t.Errorf("listening again: %d, %v", code, err)
			}
		})
	}
}

// The manager is told ready only when packets are judged and requests
// answered, and a start that fails never says so.
func TestReadyWhenReady(t *testing.T) {
	// an address that is not the host's
	h := newHost(t, "network: {interfaces: [IFACE]}\nhttp: {listen: \"192.0.2.77:8080\", upstream: \"http://127.0.0.1:9\"}\n")
	m := manage(t, h)
	if out, err := h.daemon().CombinedOutput(); err == nil || m.count("READY=1") != 0 {
		t.Fatalf("a start that fails: %v, told %q\n%s", err, m.told, out)
	}
	address := h.link.Gate.IPv4.String() + ":8080"
	h.write("network: {interfaces: [IFACE]}\nblock: [203.0.113.9]\nhttp: {listen: \"" + address + "\", upstream: " + upstream(t, h.net) + "}\n")
	r := rig.Receive(t, h.link)
	h.launch()
	m.await("READY=1", 1)
	h.flow(1000, 100*time.Millisecond, h.packet("203.0.113.9", 80))()
	if got := r.Stop(t).From(netip.MustParseAddr("203.0.113.9")); got.Packets != 0 {
		t.Errorf("%d packets of a blocked source passed after READY=1", got.Packets)
	}
	if code, err := get(h.client(h.link.Peer.IPv4.String()), "http://"+address+"/"); code != 200 {
		t.Errorf("the HTTP gate answers %d, %v after READY=1", code, err)
	}
	if s := h.status(); !s.Ready {
		t.Errorf("status after READY=1: %+v", s)
	}
}

// A socket that cannot be an http listener's is named, and one that no listener
// wants is told of.
func TestSocketsThatDoNotFit(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\n")
	m := manage(t, h, listenIn(t, h, "127.0.0.1:8081"))
	h.start()
	if !strings.Contains(h.log.String(), "no http listener names") || !strings.Contains(h.log.String(), "127.0.0.1:8081") {
		t.Errorf("the log does not tell of a socket that nobody accepts from:\n%s", h.log)
	}
	h.stop()
	datagrams, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	m.unit = []*os.File{datagrams}
	if out, err := h.daemon().CombinedOutput(); err == nil || !strings.Contains(string(out), "headgate.socket") {
		t.Errorf("with a file that is no socket: %v\n%s", err, out)
	}
}
