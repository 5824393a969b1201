package live

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/headgate/headgate/internal/rig"
)

// packet is a UDP packet of a source to a port of the gate.
func (h *host) packet(source string, port uint16) rig.Packet {
	return h.link.UDP(netip.MustParseAddr(source), port)
}

// flow sends packets in the background and returns what waits for their end.
func (h *host) flow(rate float64, d time.Duration, packets ...rig.Packet) (wait func() rig.Sent) {
	h.t.Helper()
	s := rig.Stream{Rate: rate, Duration: d}
	for _, p := range packets {
		s.Frames = append(s.Frames, p.MustFrame())
	}
	type result struct {
		sent rig.Sent
		err  error
	}
	done := make(chan result, 1)
	go func() {
		sent, err := rig.Send(context.Background(), h.link.Peer, s)
		done <- result{sent, err}
	}()
	return func() rig.Sent {
		h.t.Helper()
		r := <-done
		if r.err != nil {
			h.t.Fatal(r.err)
		}
		return r.sent
	}
}

// within checks what was delivered of a limited source: never above burst +
// rate·T, and not less than 3 % below what was offered or allowed.
func within(t *testing.T, what string, delivered uint64, sent rig.Sent, rate, burst float64) {
	t.Helper()
	bound := burst + rate*sent.Elapsed().Seconds()
	// the last packets may lie in the receiver's queue for a while, and are
	// judged when they are taken out of it
	const queued = 50 * time.Millisecond
	if most := bound + rate*queued.Seconds(); float64(delivered) > most {
		t.Errorf("%s: %d delivered in %v, the bound is %.1f", what, delivered, sent.Elapsed()+queued, most)
	}
	if want := min(bound, float64(sent.Packets)); float64(delivered) < 0.97*want-1 {
		t.Errorf("%s: %d of %d delivered in %v, want %.0f", what, delivered, sent.Packets, sent.Elapsed(), want)
	}
}

// RC-098: what is delivered is the lesser of what is offered and burst +
// rate·T, at the receiver, for limits and loads of every size, over many flows
// of one source; and the status counts the same.
func TestRateIsWhatItSays(t *testing.T) {
	for _, c := range []struct {
		rate, burst int
		load        float64
	}{
		{10, 10, 10}, {10, 10, 100},
		{1000, 1000, 0.5}, {1000, 1000, 1}, {1000, 100, 2}, {1000, 1000, 10},
		{20000, 20000, 0.5}, {20000, 2000, 5},
	} {
		t.Run(fmt.Sprintf("%d burst %d times %g", c.rate, c.burst, c.load), func(t *testing.T) {
			h := newHost(t, fmt.Sprintf(`
network: {interfaces: [IFACE]}
rules:
  - {name: flood, match: {protocol: udp, ports: [9000]}, per: source, rate: %d/s, burst: %d}
`, c.rate, c.burst))
			h.start()
			r := rig.Receive(t, h.link)
			var flows []rig.Packet
			for i := range 64 {
				p := h.packet("10.0.0.2", 9000)
				p.SrcPort, p.Stream, p.Length = uint16(1024+i), uint32(i), []int{66, 512, 1500}[i%3]
				flows = append(flows, p)
			}
			wait := h.flow(float64(c.rate)*c.load, 2*time.Second, flows...)
			sent := wait()
			got := r.Stop(t).From(netip.MustParseAddr("10.0.0.2"))
			within(t, "the source", got.Packets, sent, float64(c.rate), float64(c.burst))
			rule := h.rule("flood")
			if rule.Packets.Passed != got.Packets || rule.Packets.Passed+rule.Packets.Refused != sent.Packets {
				t.Errorf("status counts %+v, delivered were %d of %d", *rule.Packets, got.Packets, sent.Packets)
			}
			if rule.Bytes.Passed != got.Bytes {
				t.Errorf("status counts %d bytes passed, delivered were %d", rule.Bytes.Passed, got.Bytes)
			}
		})
	}
}

// RC-079 and RC-020 on the wire: one service's limit leaves all else of the
// source alone, an allowed source loses nothing, a blocked one gets nothing
// through, tagged or not (RC-010).
func TestSourcesAndServices(t *testing.T) {
	h := newHost(t, `
network: {interfaces: [IFACE]}
allow: [198.51.100.7]
block: [198.51.100.0/24]
rules:
  - {name: game, match: {protocol: udp, ports: [9000]}, per: source, rate: 100/s, burst: 100}
  - {name: all, per: source, rate: 5000/s, burst: 5000}
`)
	h.start()
	r := rig.Receive(t, h.link)
	tagged := func(p rig.Packet, tags ...rig.Tag) rig.Packet { p.Tags = tags; return p }
	stream := func(p rig.Packet, n uint32) rig.Packet { p.Stream = n; return p }
	const d = 2 * time.Second
	game := h.flow(2000, d, h.packet("203.0.113.5", 9000), tagged(h.packet("203.0.113.5", 9000), rig.Tag{ID: 10}))
	other := h.flow(1000, d, stream(h.packet("203.0.113.5", 9001), 1), stream(rig.Packet{
		Src: netip.MustParseAddr("203.0.113.5"), Dst: h.link.Gate.IPv4, SrcMAC: h.link.Peer.MAC, DstMAC: h.link.Gate.MAC,
		Protocol: layers.IPProtocolTCP, SrcPort: 40000, DstPort: 22,
	}, 2))
	allowed := h.flow(1000, d, h.packet("198.51.100.7", 9000))
	blocked := h.flow(1000, d, h.packet("198.51.100.8", 80), tagged(h.packet("198.51.100.8", 80), rig.Tag{ID: 10}),
		tagged(h.packet("198.51.100.8", 80), rig.Tag{Type: 0x88a8, ID: 1}, rig.Tag{ID: 2}), tagged(h.packet("198.51.100.8", 80), rig.Tag{ID: 0}))
	sent := game()
	sentOther, sentAllowed := other(), allowed()
	blocked()
	report := r.Stop(t)
	flow := func(source string, stream uint32) rig.Tally {
		return report.Flows[rig.Flow{Source: netip.MustParseAddr(source), Stream: stream}]
	}
	within(t, "the limited service", flow("203.0.113.5", 0).Packets, sent, 100, 100)
	if got := flow("203.0.113.5", 1).Packets + flow("203.0.113.5", 2).Packets; got != sentOther.Packets {
		t.Errorf("other services of the limited source: %d of %d delivered", got, sentOther.Packets)
	}
	if got := report.From(netip.MustParseAddr("198.51.100.7")); got.Packets != sentAllowed.Packets || got.Missing != 0 {
		t.Errorf("the allowed source: %+v of %d delivered", got, sentAllowed.Packets)
	}
	if got := report.From(netip.MustParseAddr("198.51.100.8")); got.Packets != 0 {
		t.Errorf("the blocked source: %d delivered", got.Packets)
	}
}

// RC-011: with everything blocked but two allowed peers, neighbour entries
// that are flushed again and again come back, and the peers lose nothing.
func TestNeighboursComeBack(t *testing.T) {
	h := newHost(t, `
network: {interfaces: [IFACE]}
allow: [10.0.0.2, "2001:db8::2"]
block: [0.0.0.0/0, "::/0"]
`)
	h.start()
	flush := func() {
		for _, ns := range []*rig.Namespace{h.net.Gate, h.link.Peer.NS} {
			for _, family := range []string{"-4", "-6"} {
				if out, err := rig.Command(ns, "ip", family, "neigh", "flush", "all").CombinedOutput(); err != nil {
					t.Fatalf("flush neighbours: %v %s", err, out)
				}
			}
		}
	}
	server := echo(t, h.net.Gate)
	ask := func(address netip.Addr) {
		t.Helper()
		if err := rig.Run(h.link.Peer.NS, func() error { return exchange(netip.AddrPortFrom(address, server)) }); err != nil {
			t.Errorf("%s after its neighbour entry was flushed: %v", address, err)
		}
	}
	for range 4 {
		flush()
		ask(h.link.Gate.IPv4)
		ask(h.link.Gate.IPv6)
	}
}

// echo answers UDP in a namespace and returns its port.
func echo(t *testing.T, ns *rig.Namespace) uint16 {
	t.Helper()
	var c *net.UDPConn
	err := rig.Run(ns, func() (err error) {
		c, err = net.ListenUDP("udp", nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			c.WriteToUDPAddrPort(buffer[:n], from)
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

// exchange sends three datagrams and wants each back.
func exchange(to netip.AddrPort) error {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range byte(3) {
		if _, err := c.Write([]byte{i}); err != nil {
			return err
		}
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 64)); err != nil {
			return fmt.Errorf("datagram %d: %w", i, err)
		}
	}
	return nil
}
