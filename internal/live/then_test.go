package live

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// A source that is refused again and again is blocked whole, at once, by the
// data path; the daemon writes it down with its reason, and unblock lifts both:
// the next packet passes, and what was refused before counts no more (RC-096).
func TestThenBlocksOnTheWire(t *testing.T) {
	h := newHost(t, `
network: {interfaces: [IFACE]}
rules:
  - {name: game, match: {protocol: udp, ports: [9000]}, per: source, rate: 100/s, burst: 100, then: {block: 60s, after: 100/1s}}
`)
	h.start()
	r := rig.Receive(t, h.link)
	attack := h.flow(5000, 2*time.Second, h.packet("203.0.113.5", 9000))
	sent := attack()
	other := h.packet("203.0.113.5", 80)
	other.Stream = 1
	h.flow(1000, 200*time.Millisecond, other)()
	report := r.Stop(t)
	// burst, then 100 refusals within the first second, then nothing
	got := report.Flows[rig.Flow{Source: netip.MustParseAddr("203.0.113.5")}]
	if got.Packets < 100 || got.Packets > 120 {
		t.Errorf("%d of %d packets of the attacker were delivered, want its burst of 100 and little more", got.Packets, sent.Packets)
	}
	if n := report.Flows[rig.Flow{Source: netip.MustParseAddr("203.0.113.5"), Stream: 1}].Packets; n != 0 {
		t.Errorf("%d packets to another port were delivered from a blocked source", n)
	}
	h.await("the block to be written down", func() bool {
		out := h.do("blocks")
		return strings.Contains(out, "203.0.113.5") && strings.Contains(out, "rule game")
	})
	h.do("unblock", "203.0.113.5")
	r = rig.Receive(t, h.link)
	again := h.flow(1000, 200*time.Millisecond, other)()
	if got := r.Stop(t).From(netip.MustParseAddr("203.0.113.5")); got.Packets != again.Packets {
		t.Errorf("%d of %d packets were delivered after unblock", got.Packets, again.Packets)
	}
}

// The same with the daemon dead: the block holds, and a daemon that comes back
// writes it down.
func TestThenBlocksWithTheDaemonDead(t *testing.T) {
	h := newHost(t, `
network: {interfaces: [IFACE]}
rules:
  - {name: game, match: {protocol: udp, ports: [9000]}, per: source, rate: 100/s, burst: 100, then: {block: 60s, after: 100/1s}}
`)
	h.start()
	h.kill()
	h.flow(5000, time.Second, h.packet("203.0.113.5", 9000))()
	r := rig.Receive(t, h.link)
	h.flow(1000, 200*time.Millisecond, h.packet("203.0.113.5", 80))()
	if n := r.Stop(t).From(netip.MustParseAddr("203.0.113.5")).Packets; n != 0 {
		t.Errorf("%d packets of a blocked source were delivered with the daemon dead", n)
	}
	if out := h.do("blocks"); !strings.Contains(out, "203.0.113.5") || !strings.Contains(out, "game") {
		t.Errorf("with the daemon dead, blocks say:\n%s", out)
	}
	h.start()
	h.await("the block to be written down", func() bool { return strings.Contains(h.do("blocks"), "203.0.113.5") })
}

// RC-012 in small, on the wire: a flood of sources that are used once is cut to
// the cap on unknown sources; a source that is vouched for loses nothing.
func TestFloodOfUnknownSources(t *testing.T) {
	h := newHost(t, `
network: {interfaces: [IFACE]}
rules:
  - {name: all, per: source, rate: 100/s, burst: 100, unknown: 1000/s}
`)
	h.start()
	h.do("vouch", "203.0.113.9", "--for", "5m")
	if out := h.do("vouches"); !strings.Contains(out, "203.0.113.9") {
		t.Errorf("vouches: %s", out)
	}
	r := rig.Receive(t, h.link)
	var flood []rig.Packet
	for i := range 20_000 {
		flood = append(flood, h.packet(netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}).String(), 80))
	}
	wait := h.flow(10_000, 2*time.Second, flood...)
	good := h.flow(50, 2*time.Second, h.packet("203.0.113.9", 80))
	sent, sentGood := wait(), good()
	report := r.Stop(t)
	passed := report.Total().Packets - report.From(netip.MustParseAddr("203.0.113.9")).Packets
	within(t, "the flood", passed, sent, 1000, 1000)
	if got := report.From(netip.MustParseAddr("203.0.113.9")); got.Packets != sentGood.Packets {
		t.Errorf("a vouched source: %d of %d delivered", got.Packets, sentGood.Packets)
	}
	h.do("unvouch", "203.0.113.9")
	if out := h.do("vouches"); strings.Contains(out, "203.0.113.9") {
		t.Errorf("vouches after unvouch: %s", out)
	}
}
