package rig

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// sum is the ones' complement sum of RFC 1071.
func sum(words ...[]byte) uint32 {
	var s uint32
	for _, b := range words {
		for i := 0; i+1 < len(b); i += 2 {
			s += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		if len(b)%2 == 1 {
			s += uint32(b[len(b)-1]) << 8
		}
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return s
}

// Whatever source the program writes, all checksums of the frame hold, all
// sources are used and no others, and nothing else of the frame changes.
func TestFloodSources(t *testing.T) {
	l := Net(t).Links[0]
	for _, s := range []Sources{
		{netip.MustParseAddr("100.64.0.0"), 5, 32},
		{netip.MustParseAddr("198.18.255.254"), 5, 32}, // carries
		{netip.MustParseAddr("2001:db8:ffff:fffe::"), 1, 64},
		{netip.MustParseAddr("2001:db8:0:fffe::"), 5, 64},
		{netip.MustParseAddr("2001:db8:5:6::"), 5, 96},
	} {
		f, err := NewFlood(l, l.UDP(s.First, 9), s)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		seen := map[netip.Addr]bool{}
		for range 100 {
			_, frame, err := f.program.Test(f.frame)
			if err != nil {
				t.Fatal(err)
			}
			seen[checkFlooded(t, f, frame, s)] = true
		}
		for i := range s.Count {
			if !seen[s.At(i)] {
				t.Errorf("%+v: no frame of 100 is from %v", s, s.At(i))
			}
		}
		if len(seen) != int(s.Count) {
			t.Errorf("%+v: %d sources are used: %v", s, len(seen), seen)
		}
	}
}

// checkFlooded returns the source of a frame, as Sources.At writes it.
func checkFlooded(t *testing.T, f *Flood, frame []byte, s Sources) netip.Addr {
	t.Helper()
	from := source(frame)
	was := bytes.Clone(f.frame)
	if from.Is4() {
		if got := sum(frame[14:34]); got != 0xffff {
			t.Fatalf("%v: its IPv4 header adds up to %#x", from, got)
		}
		if udp := frame[40:42]; udp[0] != 0 || udp[1] != 0 {
			t.Fatalf("%v: its UDP checksum is %x, want none", from, udp)
		}
		copy(was[18:20], frame[18:20])
		copy(was[26:30], frame[26:30])
	} else {
		if got := sum(frame[22:54], frame[18:20], []byte{0, 17}, frame[54:]); got != 0xffff {
			t.Fatalf("%v: its pseudo header and UDP add up to %#x", from, got)
		}
		copy(was[22:38], frame[22:38])
		b := from.As16()
		b[14], b[15] = 0, 0
		from = netip.AddrFrom16(b)
	}
	if !bytes.Equal(was, frame) {
		t.Fatalf("%v: more than source and checksum is written", from)
	}
	return from
}

func TestFloodRefuses(t *testing.T) {
	l := Net(t).Links[0]
	four, six := netip.MustParseAddr("198.18.0.0"), netip.MustParseAddr("2001:db8::")
	for _, s := range []Sources{
		{}, {four, 0, 32}, {four, 1, 64}, {six, 1, 128}, {six, 1, 40}, {netip.MustParseAddr("255.255.255.255"), 2, 32},
	} {
		if f, err := NewFlood(l, l.UDP(four, 9), s); err == nil {
			f.Close()
			t.Errorf("a flood of %+v was made", s)
		}
	}
	tagged := l.UDP(four, 9)
	tagged.Tags = []Tag{{ID: 10}}
	if f, err := NewFlood(l, tagged, Sources{four, 1, 32}); err == nil {
		f.Close()
		t.Error("a flood of tagged frames was made")
	}
}

// Every frame of a flood arrives, or found the ring full and is counted as
// that; on a schedule it sends neither more nor less than that asks for.
func TestFloodArrives(t *testing.T) {
	l := Net(t).Links[0]
	passer, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer passer.Close()
	var attached link.Link
	err = Run(l.Gate.NS, func() (err error) {
		attached, err = link.AttachXDP(link.XDPOptions{Program: passer, Interface: l.Gate.Index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer attached.Close()
	f, err := NewFlood(l, l.UDP(l.Peer.IPv4, 9), Sources{netip.MustParseAddr("198.18.0.0"), 16, 32})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := Receive(t, l)
	sent, err := f.Run(t.Context(), 100_000, 500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if most := 100_000 * sent.Elapsed().Seconds(); float64(sent.Packets) > most {
		t.Errorf("%d frames in %v, the schedule has %.0f", sent.Packets, sent.Elapsed(), most)
	}
	report := r.Stop(t)
	full, err := ringLosses(l.Gate)
	if err != nil {
		t.Fatal(err)
	}
	if got := report.Total().Packets + full; sent.Packets == 0 || got < sent.Packets {
		t.Errorf("%d frames were sent, %d arrived and %d found the ring full", sent.Packets, report.Total().Packets, full)
	}
	if len(report.Flows) != 16 {
		t.Errorf("frames of %d sources arrived, want 16", len(report.Flows))
	}
}
