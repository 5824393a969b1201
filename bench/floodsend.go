package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/headgate/headgate/internal/rig"
	"golang.org/x/sys/unix"
)

const (
	liveFrames = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18
	batch      = 256    // frames that a test run hands over at once, the most it takes

	// maxSources is what the 16 bits that the flood writes can tell apart.
	maxSources = 1 << 16

	// Offsets into an untagged IPv4 frame.
	offsetID     = 14 + 4
	offsetSource = 14 + 12
	offsetEnd    = 14 + 20
	offsetUDPSum = offsetEnd + 6
)

// sender floods one end of a wire with frames that the kernel makes in test
// runs and redirects into the veth pair: no system call, no socket and no
// queueing discipline a packet.
type sender struct {
	program *ebpf.Program
	frame   []byte
	wire    *wire
	cpu     int
}

// newSender sends from so many sources at random, on one CPU.
func newSender(w *wire, sources, cpu int) (*sender, error) {
	if sources < 1 || sources > maxSources {
		return nil, fmt.Errorf("flood from %d sources: not 1 to %d", sources, maxSources)
	}
	frame, err := floodFrame(w.link)
	if err != nil {
		return nil, err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "flood", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: floodProgram(sources, w.link.Peer.Index),
	})
	if err != nil {
		return nil, fmt.Errorf("load the flood's program: %w", err)
	}
	return &sender{program, frame, w, cpu}, nil
}

// floodSource is the i-th source, out of the network that RFC 2544 sets aside
// for benchmarks.
func floodSource(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
}

// floodFrame is a UDP packet in which the low half of the source and the ID
// add up to 0xffff. The program keeps it so, and the header's checksum stays
// right (RFC 1071: 0xffff is a zero). The UDP checksum is none.
func floodFrame(l rig.Link) ([]byte, error) {
	p := l.UDP(floodSource(0xffff), benchPort)
	p.Unmarked = true
	frame, err := p.Frame()
	if err != nil {
		return nil, err
	}
	if id := binary.BigEndian.Uint16(frame[offsetID:]); id != 0 {
		return nil, fmt.Errorf("build the flood's frame: its ID is %d, not 0", id)
	}
	binary.BigEndian.PutUint16(frame[offsetUDPSum:], 0)
	return frame, nil
}

// floodProgram writes a random source and redirects the frame to the
// interface.
func floodProgram(sources, ifindex int) asm.Instructions {
	const data, end = 0, 4 // in struct xdp_md
	return asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, data, asm.Word),
		asm.LoadMem(asm.R2, asm.R1, end, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R6),
		asm.Add.Imm(asm.R3, offsetEnd),
		asm.JGT.Reg(asm.R3, asm.R2, "short"),

		// source = random * sources >> 32
		asm.FnGetPrandomU32.Call(),
		asm.Mov.Reg32(asm.R0, asm.R0),
		asm.Mul.Imm(asm.R0, int32(sources)),
		asm.RSh.Imm(asm.R0, 32),
		asm.HostTo(asm.BE, asm.R0, asm.Half),
		asm.StoreMem(asm.R6, offsetSource+2, asm.R0, asm.Half),
		asm.Xor.Imm(asm.R0, 0xffff),
		asm.StoreMem(asm.R6, offsetID, asm.R0, asm.Half),

		asm.Mov.Imm(asm.R1, int32(ifindex)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),

		asm.Mov.Imm(asm.R0, 0).WithSymbol("short"), // XDP_ABORTED
		asm.Return(),
	}
}

// send sends n frames. Those that find the receiver's ring full are lost and
// counted there.
func (s *sender) send(n int) error {
	return rig.Run(s.wire.link.Peer.NS, func() error {
		release, err := pinThread(0, s.cpu)
		if err != nil {
			return err
		}
		defer release()
		_, err = s.program.Run(&ebpf.RunOptions{
			Data: s.frame, Repeat: uint32(n), Flags: liveFrames, BatchSize: batch,
		})
		if err != nil {
			return fmt.Errorf("send live frames: %w (needs Linux 5.18)", err)
		}
		return nil
	})
}

func (s *sender) close() error { return s.program.Close() }

// pinThread keeps a thread (0: the calling one) on one CPU until release.
func pinThread(pid, cpu int) (release func(), err error) {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &before); err != nil {
		return nil, fmt.Errorf("read the CPUs of thread %d: %w", pid, err)
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(pid, &one); err != nil {
		return nil, fmt.Errorf("keep thread %d on CPU %d: %w", pid, cpu, err)
	}
	return func() { unix.SchedSetaffinity(pid, &before) }, nil
}
