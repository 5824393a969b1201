package rig

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

const (
	floodBatch = 64 // frames handed over at once: a veth ring holds 256

	// A test run waits for grace periods of its own, some milliseconds.
	leastFlood, mostFlood = 2_000, 50_000 // frames a test run
)

// Sources are many addresses. The i-th is First with i added to the 32 bits
// that end at bit Bits; of an IPv6 address the last 16 bits are not the
// caller's: they keep the checksum right.
type Sources struct {
	First netip.Addr
	Count uint32
	Bits  int // 32 for IPv4; IPv6: 64 for a /64 each, 96 for all out of one /64
}

// At is the i-th source; of an IPv6 address up to Bits.
func (s Sources) At(i uint32) netip.Addr {
	b := s.First.AsSlice()
	at := s.Bits/8 - 4
	binary.BigEndian.PutUint32(b[at:], binary.BigEndian.Uint32(b[at:])+i)
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (s Sources) check() error {
	ends := []int{32}
	if s.First.Is6() {
		ends = []int{32, 48, 64, 80, 96, 112}
	}
	for _, bits := range ends {
		if s.Bits != bits {
			continue
		}
		b := s.First.AsSlice()
		if first := binary.BigEndian.Uint32(b[bits/8-4:]); s.Count == 0 || first+(s.Count-1) < first {
			break
		}
		return nil
	}
	return fmt.Errorf("%d sources from %v in the 32 bits up to bit %d: there are none such", s.Count, s.First, s.Bits)
}

// Flood sends one frame again and again, each time from a source drawn at
// random. The kernel makes the frames in test runs and redirects them into the
// veth pair, without a system call, a socket or a queueing discipline a packet:
// one CPU sends a million and more a second. They arrive where the gate's end
// has an XDP program, or GRO switched on; one that finds the ring full is lost
// and counted by the gate's interface as dropped.
type Flood struct {
	program *ebpf.Program
	frame   []byte
	from    End
}

// NewFlood makes a flood of p from sources, whatever p says of its source, out
// of the peer's end of l. All of its frames have one number in their marker.
func NewFlood(l Link, p Packet, sources Sources) (*Flood, error) {
	if err := sources.check(); err != nil {
		return nil, fmt.Errorf("make a flood: %w", err)
	}
	made, err := newFloodFrame(p, sources)
	if err != nil {
		return nil, fmt.Errorf("make a flood: %w", err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "flood", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: made.program(l.Peer.Index),
	})
	if err != nil {
		return nil, fmt.Errorf("load the flood's program: %w", err)
	}
	return &Flood{program, made.frame, l.Peer}, nil
}

// Close unloads the flood's program.
func (f *Flood) Close() error { return f.program.Close() }

// Send sends n frames from the calling thread's CPU, more where a signal
// interrupts it.
func (f *Flood) Send(n int) error {
	return Run(f.from.NS, func() error { return f.send(n) })
}

// SendOn is Send from one CPU.
func (f *Flood) SendOn(cpu, n int) error {
	return Run(f.from.NS, func() error {
		return onThisCPU(cpu, func() error { return f.send(n) })
	})
}

func (f *Flood) send(n int) error {
	_, err := f.program.Run(&ebpf.RunOptions{
		Data: f.frame, Repeat: uint32(n), Flags: liveFrames, BatchSize: floodBatch,
	})
	if err != nil {
		return fmt.Errorf("send live frames: %w (needs Linux 5.18)", err)
	}
	return nil
}

// Run sends rate frames a second on an absolute schedule, 0: back to back, for
// d or until ctx ends. They go in lots, each as fast as can be. What it says
// was sent is the least.
func (f *Flood) Run(ctx context.Context, rate float64, d time.Duration) (Sent, error) {
	start := time.Now()
	sent := Sent{First: start, Last: start}
	for ctx.Err() == nil && time.Since(start) < d {
		n := mostFlood
		if rate > 0 {
			n = min(n, int(time.Since(start).Seconds()*rate)-int(sent.Packets))
			if n < leastFlood {
				pause(ctx, time.Duration(float64(leastFlood-n)/rate*float64(time.Second)))
				continue
			}
		}
		if err := f.Send(n); err != nil {
			return sent, err
		}
		sent.Packets, sent.Last = sent.Packets+uint64(n), time.Now()
	}
	return sent, nil
}

// floodFrame is a frame and where the program writes into it.
type floodFrame struct {
	frame  []byte
	source int // 4 bytes that count
	keep   int // 2 bytes that keep the checksums
	first  uint32
	count  uint32
}

// newFloodFrame builds the frame with a source whose written words and the word
// that keeps the checksum add up to 0xffff, which is a zero to the Internet
// checksum (RFC 1071); the program keeps it so. IPv4's UDP checksum is none.
func newFloodFrame(p Packet, s Sources) (floodFrame, error) {
	b := s.First.AsSlice()
	at := s.Bits/8 - 4
	first := binary.BigEndian.Uint32(b[at:])
	binary.BigEndian.PutUint32(b[at:], 0xffff)
	if s.First.Is6() {
		b[14], b[15] = 0, 0
	}
	p.Src, _ = netip.AddrFromSlice(b)
	frame, err := p.Frame()
	if err != nil {
		return floodFrame{}, err
	}
	const ip = 14
	if len(p.Tags)+len(p.Options)+len(p.Headers) > 0 || p.Fragment != nil || p.Protocol != 0 {
		return floodFrame{}, errors.New("it is plain UDP without tags, options, extension headers and fragments")
	}
	if s.First.Is6() {
		return floodFrame{frame, ip + 8 + at, ip + 8 + 14, first, s.Count}, nil
	}
	clear(frame[ip+20+6 : ip+20+8])
	return floodFrame{frame, ip + 12, ip + 4, first, s.Count}, nil
}

// program writes a random source and redirects the frame to the interface.
func (s floodFrame) program(ifindex int) asm.Instructions {
	const data, end = 0, 4 // in struct xdp_md
	return asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, data, asm.Word),
		asm.LoadMem(asm.R2, asm.R1, end, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R6),
		asm.Add.Imm(asm.R3, int32(max(s.source+4, s.keep+2))),
		asm.JGT.Reg(asm.R3, asm.R2, "short"),

		// source = first + (random * count >> 32)
		asm.FnGetPrandomU32.Call(),
		asm.Mov.Reg32(asm.R0, asm.R0),
		asm.LoadImm(asm.R1, int64(s.count), asm.DWord),
		asm.Mul.Reg(asm.R0, asm.R1),
		asm.RSh.Imm(asm.R0, 32),
		asm.LoadImm(asm.R1, int64(s.first), asm.DWord),
		asm.Add.Reg(asm.R0, asm.R1),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.HostTo(asm.BE, asm.R0, asm.Word),
		asm.StoreMem(asm.R6, int16(s.source), asm.R0, asm.Word),

		// keep = ^(high + low), carries added again
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.RSh.Imm(asm.R1, 16),
		asm.And.Imm(asm.R7, 0xffff),
		asm.Add.Reg(asm.R7, asm.R1),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.RSh.Imm(asm.R1, 16),
		asm.Add.Reg(asm.R7, asm.R1),
		asm.And.Imm(asm.R7, 0xffff),
		asm.Xor.Imm(asm.R7, 0xffff),
		asm.HostTo(asm.BE, asm.R7, asm.Half),
		asm.StoreMem(asm.R6, int16(s.keep), asm.R7, asm.Half),

		asm.Mov.Imm(asm.R1, int32(ifindex)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),

		asm.Mov.Imm(asm.R0, 0).WithSymbol("short"), // XDP_ABORTED
		asm.Return(),
	}
}
