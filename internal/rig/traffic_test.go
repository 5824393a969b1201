package rig

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

func send(t *testing.T, from End, s Stream) Sent {
	t.Helper()
	sent, err := Send(context.Background(), from, s)
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

func checkTally(t *testing.T, what string, got, want Tally) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

func TestEveryPacketArrives(t *testing.T) {
	n := Net(t)
	l := n.Links[0]
	other := netip.MustParseAddr("198.51.100.9")
	far := netip.MustParseAddr("2001:db8:ffff::9")

	tests := []struct {
		name    string
		stream  Stream
		sources []netip.Addr
	}{
		{"back to back", Stream{Count: 3000}, []netip.Addr{l.Peer.IPv4}},
		{"one a call", Stream{Count: 500, Batch: 1}, []netip.Addr{l.Peer.IPv4}},
		{"on a schedule", Stream{Count: 600, Rate: 6000}, []netip.Addr{l.Peer.IPv4}},
		{"three sources in turn", Stream{Count: 3000}, []netip.Addr{l.Peer.IPv4, other, far}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Receive(t, l)
			bytes := make(map[netip.Addr]int)
			for _, source := range tt.sources {
				frame := l.UDP(source, 9).MustFrame()
				tt.stream.Frames = append(tt.stream.Frames, frame)
				bytes[source] = len(frame)
			}
			sent := send(t, l.Peer, tt.stream)
			if sent.Packets != tt.stream.Count {
				t.Fatalf("sent %d packets, want %d", sent.Packets, tt.stream.Count)
			}
			report := r.Stop(t)
			each := sent.Packets / uint64(len(tt.sources))
			for _, source := range tt.sources {
				want := Tally{Packets: each, Bytes: each * uint64(bytes[source])}
				checkTally(t, source.String(), report.From(source), want)
			}
			if total := report.Total().Packets; total != sent.Packets {
				t.Errorf("received %d packets in all, want %d", total, sent.Packets)
			}
		})
	}
}

// The control: what drops packets between sender and receiver must show.
func TestDroppedPacketsShow(t *testing.T) {
	n := Net(t)
	l := n.Links[0]
	attachDropper(t, l)
	r := Receive(t, l)
	frame := l.UDP(l.Peer.IPv4, 9).MustFrame()
	sent := send(t, l.Peer, Stream{Frames: [][]byte{frame}, Count: 1024, Batch: 32, Rate: 20000})
	got := r.Stop(t).From(l.Peer.IPv4)
	// One number in 256 ends in the dropped byte, and none of them is the last.
	want := Tally{Packets: sent.Packets - 4, Bytes: (sent.Packets - 4) * uint64(len(frame)), Missing: 4}
	checkTally(t, "with every 256th dropped", got, want)
}

// attachDropper drops, at the gate, UDP frames of Link.UDP over IPv4 whose
// number ends in the byte 7.
func attachDropper(t *testing.T, l Link) {
	t.Helper()
	const (
		last  = 14 + 20 + 8 + 8 + 7 // the lowest byte of the number
		frame = 14 + 20 + 8 + markerSize
	)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP,
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
			asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
			asm.Mov.Imm(asm.R0, 2), // XDP_PASS
			asm.Mov.Reg(asm.R4, asm.R2),
			asm.Add.Imm(asm.R4, frame),
			asm.JGT.Reg(asm.R4, asm.R3, "out"),
			asm.LoadMem(asm.R5, asm.R2, 12, asm.Half),
			asm.JNE.Imm(asm.R5, 0x0008, "out"), // IPv4, byte-swapped
			asm.LoadMem(asm.R5, asm.R2, last, asm.Byte),
			asm.JNE.Imm(asm.R5, 7, "out"),
			asm.Mov.Imm(asm.R0, 1), // XDP_DROP
			asm.Return().WithSymbol("out"),
		},
		License: "Apache-2.0",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	err = Run(l.Gate.NS, func() error {
		attached, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: l.Gate.Index})
		if err == nil {
			t.Cleanup(func() { attached.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLossInTheReceiverFails(t *testing.T) {
	n := Net(t)
	l := n.Links[0]
	r := Receive(t, l)
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock() // the receiver takes what it has read and no more
	send(t, l.Peer, Stream{Frames: [][]byte{l.UDP(l.Peer.IPv4, 9).MustFrame()}, Count: 2000})
	r.mu.Unlock()
	_, err := r.Finish()
	if err == nil || !strings.Contains(err.Error(), "itself lost") {
		t.Fatalf("Finish after a full buffer: error %v, want one that tells of loss", err)
	}
}

func TestEveryShapeIsCounted(t *testing.T) {
	n := Net(t)
	l := n.Links[0]
	for _, shape := range shapes(l) {
		t.Run(shape.name, func(t *testing.T) {
			r := Receive(t, l)
			frame := shape.packet.MustFrame()
			send(t, l.Peer, Stream{Frames: [][]byte{frame}, Count: 50})
			got := r.Stop(t).From(shape.packet.Src)
			size := len(frame)
			if len(shape.packet.Tags) > 0 {
				size -= 4 // the kernel takes the outermost tag off
			}
			checkTally(t, "all", got, Tally{Packets: 50, Bytes: uint64(50 * size)})
		})
	}
}

type shape struct {
	name   string
	packet Packet
}

// shapes are packets of every kind that the builder knows.
func shapes(l Link) []shape {
	four, six := l.UDP(l.Peer.IPv4, 9), l.UDP(l.Peer.IPv6, 9)
	with := func(p Packet, change func(p *Packet)) Packet {
		change(&p)
		return p
	}
	return []shape{
		{"udp over ipv4", four},
		{"udp over ipv6", six},
		{"tcp syn over ipv4", with(four, func(p *Packet) { p.Protocol, p.Flags.SYN = layers.IPProtocolTCP, true })},
		{"tcp ack over ipv6", with(six, func(p *Packet) { p.Protocol, p.Flags.ACK = layers.IPProtocolTCP, true })},
		{"icmp", with(four, func(p *Packet) { p.Protocol, p.Type = layers.IPProtocolICMPv4, 8 })},
		{"icmpv6", with(six, func(p *Packet) { p.Protocol, p.Type = layers.IPProtocolICMPv6, 128 })},
		{"gre", with(four, func(p *Packet) { p.Protocol = layers.IPProtocolGRE })},
		{"802.1q", with(four, func(p *Packet) { p.Tags = []Tag{{ID: 10}} })},
		{"802.1ad over 802.1q", with(six, func(p *Packet) {
			p.Tags = []Tag{{Type: layers.EthernetTypeQinQ, ID: 10}, {ID: 20, Priority: 3}}
		})},
		{"ipv4 options", with(four, func(p *Packet) { p.Options = []byte{1, 1, 1, 0} })},
		{"first fragment over ipv4", with(four, func(p *Packet) { p.Fragment = &Fragment{ID: 7, More: true} })},
		{"later fragment over ipv4", with(four, func(p *Packet) { p.Fragment = &Fragment{ID: 7, Offset: 100} })},
		{"later fragment over ipv6", with(six, func(p *Packet) { p.Fragment = &Fragment{ID: 7, Offset: 100, More: true} })},
		{"extension headers", with(six, func(p *Packet) {
			p.Headers = []Header{
				{layers.IPProtocolIPv6HopByHop, []byte{1, 4, 0, 0, 0, 0}},
				{layers.IPProtocolIPv6Destination, make([]byte, 14)},
				{layers.IPProtocolAH, make([]byte, 22)},
			}
		})},
		{"large", with(four, func(p *Packet) { p.Length = 1514 })},
		{"marker as trailer", with(four, func(p *Packet) { p.Trailer, p.Payload = true, []byte("x") })},
	}
}
