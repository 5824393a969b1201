package live

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/daemon"
	"github.com/headgate/headgate/internal/packets"
	"github.com/headgate/headgate/internal/rig"
)

// reason is what the status counts for one reason.
func (h *host) reason(name string) daemon.Reason {
	h.t.Helper()
	for _, r := range h.status().Network.Reasons {
		if r.Reason == name {
			return r
		}
	}
	h.t.Fatalf("status has no reason %s", name)
	return daemon.Reason{}
}

// mtu sets both ends of the link.
func (h *host) mtu(bytes int) {
	h.t.Helper()
	for _, end := range []rig.End{h.link.Gate, h.link.Peer} {
		h.ip(end.NS, "link", "set", "dev", end.Interface, "mtu", fmt.Sprint(bytes))
	}
}

func (h *host) ip(ns *rig.Namespace, args ...string) {
	h.t.Helper()
	if out, err := rig.Command(ns, "ip", args...).CombinedOutput(); err != nil {
		h.t.Fatalf("ip %s: %v %s", strings.Join(args, " "), err, out)
	}
}

// Jumbo frames need more than one buffer: they are attached to natively,
// blocked, and limited by all their bytes, which status and receiver agree on.
// A frame whose transport header lies in its second buffer is dropped as
// truncated, though no rule limits its source.
func TestJumboFrames(t *testing.T) {
	h := newHost(t, `
network: {interfaces: [IFACE], attach_mode: native}
allow: [198.51.100.7]
block: [198.51.100.0/24]
rules:
  - {name: bytes, match: {from: 203.0.113.0/24}, per: source, rate: 80kbit/s, burst: 90kB}
`)
	const jumbo = 9014 // MTU 9000
	h.mtu(9000)
	h.start()
	r := rig.Receive(t, h.link)
	large := func(source string) rig.Packet {
		p := h.packet(source, 9000)
		p.Length = jumbo
		return p
	}
	far := large("2001:db8:77::1")
	for range 2 {
		far.Headers = append(far.Headers, rig.Header{Protocol: 60, Body: make([]byte, 2046)})
	}
	const d = time.Second
	limited := h.flow(200, d, large("203.0.113.5"))
	blocked := h.flow(200, d, large("198.51.100.9"))
	allowed := h.flow(200, d, large("198.51.100.7"))
	truncated := h.flow(200, d, far)
	sent, sentBlocked, sentAllowed, sentFar := limited(), blocked(), allowed(), truncated()
	report := r.Stop(t)
	from := func(source string) rig.Tally { return report.From(netip.MustParseAddr(source)) }
	within(t, "the limited source", from("203.0.113.5").Packets, sent, 10_000./jumbo, 90_000./jumbo)
	if got := from("198.51.100.9").Packets + from("2001:db8:77::1").Packets; got != 0 {
		t.Errorf("%d frames of the blocked source and with a far header were delivered", got)
	}
	if got := from("198.51.100.7"); got.Packets != sentAllowed.Packets || got.Bytes != jumbo*sentAllowed.Packets {
		t.Errorf("the allowed source: %+v of %d frames of %d bytes delivered", got, sentAllowed.Packets, jumbo)
	}
	rule := h.rule("bytes")
	if got := from("203.0.113.5"); rule.Bytes.Passed != got.Bytes || rule.Packets.Passed != got.Packets ||
		rule.Bytes.Passed+rule.Bytes.Refused != jumbo*sent.Packets {
		t.Errorf("status counts %+v bytes, %+v packets; sent were %d frames of %d bytes, delivered %+v", *rule.Bytes, *rule.Packets, sent.Packets, jumbo, got)
	}
	if out := h.do("status"); strings.Contains(out, gsoNote) {
		t.Errorf("status says %q of native mode:\n%s", gsoNote, out)
	}
	for name, want := range map[string]uint64{"block": sentBlocked.Packets, "truncated": sentFar.Packets} {
		if got := h.reason(name); got.Packets != want || got.Bytes != jumbo*want {
			t.Errorf("status counts %+v, want %d packets of %d bytes", got, want, jumbo)
		}
	}
}

// gsoNote is what the status says of generic mode.
const gsoNote = "a GSO packet counts once"

// In generic mode a packet that the sender's kernel left for its card to cut
// up comes whole: it counts once, with all its bytes, and the status says so.
// Cut up by the sender it counts as the frames that it is.
func TestOffloadedPacketsCountOnce(t *testing.T) {
	h := newHost(t, `
network: {interfaces: [IFACE], attach_mode: generic}
rules:
  - {name: whole, match: {protocol: tcp, ports: [7000]}, per: source, rate: 1000000/s}
  - {name: cut, match: {protocol: tcp, ports: [7001]}, per: source, rate: 1000000/s}
`)
	h.start()
	const size = 2 << 20
	const frame = 1514
	h.transfer(7000, size)
	h.ip(h.link.Peer.NS, "link", "set", "dev", h.link.Peer.Interface, "gso_max_segs", "1")
	h.transfer(7001, size)
	whole, cut := h.rule("whole"), h.rule("cut")
	if whole.Bytes.Passed < size || whole.Bytes.Passed/whole.Packets.Passed <= frame {
		t.Errorf("whole packets: counted %d with %d bytes for a transfer of %d: none is larger than a frame", whole.Packets.Passed, whole.Bytes.Passed, size)
	}
	if cut.Bytes.Passed < size || cut.Bytes.Passed/cut.Packets.Passed > frame {
		t.Errorf("cut up: counted %d with %d bytes for a transfer of %d: some are larger than a frame", cut.Packets.Passed, cut.Bytes.Passed, size)
	}
	if out := h.do("status"); !strings.Contains(out, gsoNote) {
		t.Errorf("status does not say %q:\n%s", gsoNote, out)
	}
}

// transfer sends bytes from the peer to a port of the gate by TCP.
func (h *host) transfer(port, bytes int) {
	h.t.Helper()
	address := netip.AddrPortFrom(h.link.Gate.IPv4, uint16(port)).String()
	l, err := rig.Listen(h.net.Gate, "tcp", address)
	if err != nil {
		h.t.Fatal(err)
	}
	defer l.Close()
	received := make(chan error, 1)
	go func() { received <- receiveAll(l, bytes) }()
	err = rig.Run(h.link.Peer.NS, func() error {
		c, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(make([]byte, bytes))
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := <-received; err != nil {
		h.t.Fatal(err)
	}
}

func receiveAll(l net.Listener, want int) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	n, err := io.Copy(io.Discard, c)
	if err == nil && n != int64(want) {
		err = fmt.Errorf("received %d bytes, want %d", n, want)
	}
	return err
}

// RC-010 over the wire, in both attach modes: in every stack of VLAN tags a
// blocked source gets nothing through, an allowed one loses nothing, and a
// limited one has one bucket for all stacks together. Behind more tags than
// are looked through nobody gets through.
func TestVLANStacksOverTheWire(t *testing.T) {
	const (
		blocked4, blocked6 = "198.51.100.9", "2001:db8:bad::9"
		allowed4, allowed6 = "198.51.100.7", "2001:db8:bad:7::7"
		limited4, limited6 = "203.0.113.5", "2001:db8:1::5"
	)
	for _, mode := range []string{"native", "generic"} {
		t.Run(mode, func(t *testing.T) {
			h := newHost(t, `
network: {interfaces: [IFACE], attach_mode: `+mode+`}
allow: [`+allowed4+`, "`+allowed6+`"]
block: [198.51.100.0/24, "2001:db8:bad::/48"]
rules:
  - {name: all, per: source, rate: 10/s, burst: 20}
`)
			h.start()
			r := rig.Receive(t, h.link)
			send := func(source string, stream uint32, stacks ...[]rig.Tag) rig.Sent {
				var dressed []rig.Packet
				for _, tags := range stacks {
					p := h.packet(source, 9000)
					p.Tags, p.Stream = tags, stream
					dressed = append(dressed, p)
				}
				return h.flow(1000, 100*time.Millisecond, dressed...)()
			}
			const looked, tooDeep = 0, 1 // streams
			stacks := slices.Collect(maps.Values(packets.Stacks()))
			deep := [][]rig.Tag{make([]rig.Tag, 5), make([]rig.Tag, 9)}
			sent := map[string]rig.Sent{}
			dropped := uint64(0)
			for _, source := range []string{blocked4, blocked6, allowed4, allowed6, limited4, limited6} {
				dropped += send(source, tooDeep, deep...).Packets
				sent[source] = send(source, looked, stacks...)
			}
			report := r.Stop(t)
			got := func(source string, stream uint32) uint64 {
				return report.Flows[rig.Flow{Source: netip.MustParseAddr(source), Stream: stream}].Packets
			}
			for source, s := range sent {
				if n := got(source, tooDeep); n != 0 {
					t.Errorf("%s: %d delivered behind too many tags", source, n)
				}
				switch n := got(source, looked); source {
				case blocked4, blocked6:
					if n != 0 {
						t.Errorf("%s is blocked: %d of %d delivered", source, n, s.Packets)
					}
				case allowed4, allowed6:
					if n != s.Packets {
						t.Errorf("%s is allowed: %d of %d delivered", source, n, s.Packets)
					}
				default:
					within(t, source, n, s, 10, 20)
				}
			}
			if n := h.reason("vlan_depth").Packets; n != dropped {
				t.Errorf("status counts %d packets as vlan_depth, sent were %d", n, dropped)
			}
		})
	}
}
