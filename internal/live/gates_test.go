package live

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// get asks the HTTP gate for a path with headers ("Name: value") and returns
// the status code.
func get(client *http.Client, url string, headers ...string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// client asks from one source address on the peer's side.
func (h *host) client(source string) *http.Client {
	h.t.Helper()
	a := netip.MustParseAddr(source)
	if a != h.link.Peer.IPv4 && a != h.link.Peer.IPv6 {
		if err := h.link.Peer.AddAddress(netip.PrefixFrom(a, a.BitLen())); err != nil {
			h.t.Fatal(err)
		}
	}
	c := rig.HTTPClient(h.link.Peer.NS, a)
	h.t.Cleanup(c.CloseIdleConnections)
	return c
}

// RC-019: an office of twenty people with keys of their own behind one
// address, under a packet limit: nobody is refused, by either gate. A
// neighbour without a key has the address's own budget.
func TestOfficeBehindOneAddress(t *testing.T) {
	var keys strings.Builder
	for i := range 20 {
		fmt.Fprintf(&keys, "- {sha256: %s, owner: person%d}\n", sha256Hex(fmt.Sprintf("key-%d", i)), i)
	}
	h := newHost(t, "")
	app := upstream(t, h.net)
	if err := os.WriteFile(h.dir+"/keys.yaml", []byte(keys.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	h.write(`
network: {interfaces: [IFACE]}
http:
  listen: "` + h.link.Gate.IPv4.String() + `:8080"
  upstream: ` + app + `
  identities: {key: {header: X-Api-Key, file: keys.yaml}}
rules:
  - {name: packets, per: source, rate: 2000/s, burst: 4000}
  - {name: people, per: key, limit: 50/min, anonymous: {per: client, limit: 60/min}}
`)
	h.start()
	office := h.client(h.link.Peer.IPv4.String())
	url := "http://" + h.link.Gate.IPv4.String() + ":8080/"
	var wg sync.WaitGroup
	var answered [600]atomic.Int64
	for i := range 20 {
		wg.Go(func() {
			for range 40 {
				code, err := get(office, url, fmt.Sprintf("X-Api-Key: key-%d", i))
				if err != nil {
					t.Error(err)
					return
				}
				answered[code].Add(1)
			}
		})
	}
	wg.Wait()
	if n := answered[200].Load(); n != 800 {
		t.Errorf("%d of 800 requests with keys answered 200, %d answered 429", n, answered[429].Load())
	}
	codes := map[int]int{}
	for range 70 {
		code, err := get(office, url)
		if err != nil {
			t.Fatal(err)
		}
		codes[code]++
	}
	if codes[200] != 60 || codes[429] != 10 {
		t.Errorf("without a key: %v, want 60 answered 200 and 10 answered 429", codes)
	}
	if r := h.rule("people"); r.Requests.Passed != 860 || r.Requests.Refused != 10 {
		t.Errorf("status counts %+v, want 860 passed and 10 refused", *r.Requests)
	}
	if r := h.rule("packets"); r.Packets.Refused != 0 {
		t.Errorf("the packet limit refused %d packets of an office", r.Packets.Refused)
	}
}

// RC-020 at both gates: an allowed client gets through packets and requests, a
// blocked one nothing, whatever order they were said in.
func TestAllowAndBlockAtBothGates(t *testing.T) {
	h := newHost(t, "")
	app := upstream(t, h.net)
	h.write(`
network: {interfaces: [IFACE]}
http: {listen: "` + h.link.Gate.IPv4.String() + `:8080", upstream: ` + app + `}
rules:
  - {name: packets, per: source, rate: 50/s, burst: 50}
  - {name: five, per: client, limit: 5/min}
`)
	h.start()
	h.do("block", "198.51.100.0/24", "--for", "1h")
	h.do("allow", "198.51.100.7")
	url := "http://" + h.link.Gate.IPv4.String() + ":8080/"
	friend, stranger := h.client("198.51.100.7"), h.client("203.0.113.5")
	codes := map[int]int{}
	for range 100 {
		code, err := get(friend, url)
		if err != nil {
			t.Fatal(err)
		}
		codes[code]++
	}
	if codes[200] != 100 {
		t.Errorf("allowed client: %v, want 100 answered 200", codes)
	}
	for i := range 8 {
		code, err := get(stranger, url)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{true: 200, false: 429}[i < 5]; code != want {
			t.Errorf("request %d of a stranger: %d, want %d", i+1, code, want)
		}
	}
	blocked := h.client("198.51.100.8")
	blocked.Timeout = 300 * time.Millisecond
	if code, err := get(blocked, url); err == nil {
		t.Errorf("a blocked client was answered %d", code)
	}
}

// RC-003: probes of the daemon's own health and metrics, and of an exempt path
// of the application, are never refused, however the application is flooded.
func TestProbesAreNotLimited(t *testing.T) {
	h := newHost(t, "")
	app := upstream(t, h.net)
	h.write(`
network: {interfaces: [IFACE]}
http:
  listen: "` + h.link.Gate.IPv4.String() + `:8080"
  upstream: ` + app + `
  exempt: [{path: /healthz, from: [10.0.0.0/8]}]
rules:
  - {name: everything, per: client, limit: 10/min}
`)
	text, err := os.ReadFile(h.config())
	if err != nil {
		t.Fatal(err)
	}
	admin := h.link.Gate.IPv4.String() + ":9317"
	if err := os.WriteFile(h.config(), []byte(strings.Replace(string(text), "listen: off", `listen: "`+admin+`"`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	h.start()
	c := h.client(h.link.Peer.IPv4.String())
	app = "http://" + h.link.Gate.IPv4.String() + ":8080"
	codes := map[string]map[int]int{}
	for i := range 100 {
		for _, url := range []string{app + "/page", app + "/healthz", "http://" + admin + "/healthz", "http://" + admin + "/readyz", "http://" + admin + "/metrics"} {
			if i%10 != 0 && strings.HasSuffix(url, "/metrics") {
				continue
			}
			code, err := get(c, url)
			if err != nil {
				t.Fatal(err)
			}
			if codes[url] == nil {
				codes[url] = map[int]int{}
			}
			codes[url][code]++
		}
	}
	for url, got := range codes {
		if strings.HasSuffix(url, "/page") {
			if got[200] != 10 || got[429] != 90 {
				t.Errorf("%s: %v, want 10 answered 200 and 90 answered 429", url, got)
			}
		} else if len(got) != 1 || got[200] == 0 {
			t.Errorf("%s: %v, want nothing but 200", url, got)
		}
	}
}

// The HTTP gate's process is killed again and again in the middle of a flood
// of packets: no connection is refused, the packet limit goes on, and the
// daemon starts the process again.
func TestHTTPProcessKilledInAFlood(t *testing.T) {
	h := newHost(t, "")
	app := upstream(t, h.net)
	h.write(`
network: {interfaces: [IFACE]}
http: {listen: "` + h.link.Gate.IPv4.String() + `:8080", upstream: ` + app + `}
rules:
  - {name: game, match: {protocol: udp, ports: [9000]}, per: source, rate: 1000/s, burst: 1000}
`)
	h.start()
	r := rig.Receive(t, h.link)
	flood := h.flow(20000, 6*time.Second, h.packet("203.0.113.5", 9000))
	url := "http://" + h.link.Gate.IPv4.String() + ":8080/"
	stop := make(chan struct{})
	var answered, broken, refused atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c := rig.HTTPClient(h.link.Peer.NS, h.link.Peer.IPv4)
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := get(c, url)
				switch {
				case err == nil:
					answered.Add(1)
				case strings.Contains(err.Error(), "connection refused"):
					refused.Add(1)
				default:
					broken.Add(1) // a request in flight
				}
				c.CloseIdleConnections()
			}
		})
	}
	pids := map[int]bool{}
	for range 5 {
		h.await("the HTTP gate's process", func() bool { s := h.status().HTTP; return s.Up && !pids[s.PID] })
		pid := h.status().HTTP.PID
		pids[pid] = true
		before := answered.Load()
		h.await("answers", func() bool { return answered.Load() > before+10 })
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	before := answered.Load()
	h.await("answers after the last kill", func() bool { return answered.Load() > before+10 })
	close(stop)
	wg.Wait()
	sent := flood()
	within(t, "the flood", r.Stop(t).From(netip.MustParseAddr("203.0.113.5")).Packets, sent, 1000, 1000)
	if refused.Load() > 0 {
		t.Errorf("%d connections were refused", refused.Load())
	}
	t.Logf("%d answered, %d broken in flight by 5 kills", answered.Load(), broken.Load())
}

func sha256Hex(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
