package live

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/internal/rig"
)

// RC-138: 1000 packets that pass, 500 that are dropped and 200 requests that are
// refused are counted as just that, over a reload too; what the network gate has
// counted stands over a kill. The attach mode is shown for the interface.
func TestCountersTellTheTruth(t *testing.T) {
	h := newHost(t, "")
	address := h.link.Gate.IPv4.String() + ":8080"
	h.write(`
network: {interfaces: [IFACE]}
http: {listen: "` + address + `", upstream: ` + upstream(t, h.net) + `}
rules:
  - {name: game, match: {protocol: udp, ports: [9000]}, per: source, rate: 1000/day, burst: 1000}
  - {name: search, per: client, limit: 100/h}
`)
	h.start()
	const source = "203.0.113.5"
	r := rig.Receive(t, h.link)
	sent, err := rig.Send(t.Context(), h.link.Peer, rig.Stream{Frames: [][]byte{h.packet(source, 9000).MustFrame()}, Count: 1500, Rate: 5000})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Stop(t).From(netip.MustParseAddr(source)).Packets; got != 1000 || sent.Packets != 1500 {
		t.Fatalf("%d of %d packets delivered, want 1000 of 1500", got, sent.Packets)
	}
	client, codes := h.client(h.link.Peer.IPv4.String()), map[int]int{}
	for range 300 {
		code, err := get(client, "http://"+address+"/")
		if err != nil {
			t.Fatal(err)
		}
		codes[code]++
	}
	if codes[200] != 100 || codes[429] != 200 {
		t.Fatalf("answers %v, want 100 times 200 and 200 times 429", codes)
	}
	packets := func(when string) {
		t.Helper()
		if p := h.rule("game").Packets; p == nil || p.Passed != 1000 || p.Refused != 500 {
			t.Errorf("%s: packets %+v, want 1000 passed and 500 refused", when, p)
		}
		if i := h.status().Network.Interfaces[0]; i.AttachMode != "native" {
			t.Errorf("%s: attach mode %q of %s, want native", when, i.AttachMode, i.Name)
		}
	}
	requests := func(when string) {
		t.Helper()
		h.await("the counters of the HTTP gate", func() bool { return h.status().HTTP.Fresh })
		s := h.status()
		if q := h.rule("search").Requests; q == nil || q.Passed != 100 || q.Refused != 200 || s.HTTP.Answers["429"] != 200 {
			t.Errorf("%s: requests %+v, answers %v, want 100 passed and 200 refused", when, q, s.HTTP.Answers)
		}
	}
	packets("at once")
	requests("at once")
	h.rewrite("network:", "# changed\nnetwork:")
	h.do("reload")
	packets("after a reload")
	requests("after a reload")
	h.kill()
	h.start()
	packets("after a kill")
}
