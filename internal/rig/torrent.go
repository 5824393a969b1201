package rig

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

const (
	torrentBatch = 64 // frames handed over at once: a veth's ring holds 256
	torrentSize  = 98 // bytes of a frame
)

// Torrent sends UDP packets of several sources in turn, each numbered from 0,
// at rates that a socket does not reach: the kernel makes the frames in one
// long test run and redirects them into the link when they are due. It keeps a
// CPU busy for as long as it lasts.
type Torrent struct {
	link    Link
	sources int
	program *ebpf.Program
	state   *ebpf.Map
	first   time.Time
	lost    uint64 // by the ring, before it started
	thread  atomic.Int64
	stopped atomic.Bool
	ended   chan struct{}
	err     error // once ended
}

// torrentState is the one entry of state.
type torrentState struct {
	Next  uint64 // packets sent
	Start uint64 // CLOCK_MONOTONIC, ns
}

// Poured is what a torrent has sent.
type Poured struct {
	Packets []uint64 // of each source
	Elapsed time.Duration
	Lost    uint64 // found the ring of the link full: the torrent was too fast
}

// Total is the packets of all sources.
func (p Poured) Total() (n uint64) {
	for _, k := range p.Packets {
		n += k
	}
	return n
}

// Rate is packets a second.
func (p Poured) Rate() float64 { return float64(p.Total()) / p.Elapsed.Seconds() }

// Pour starts a torrent of so many sources, first and those that follow it, to
// a port of the gate, at rate packets a second in all; one that comes late
// catches up. It ends with the test; Stop reads it.
func Pour(tb TB, l Link, first netip.Addr, sources int, port uint16, rate float64) *Torrent {
	tb.Helper()
	t, err := pour(l, first, sources, port, rate)
	if err != nil {
		tb.Fatalf("pour: %v", err)
	}
	tb.Cleanup(t.close)
	return t
}

func pour(l Link, first netip.Addr, sources int, port uint16, rate float64) (_ *Torrent, err error) {
	cpus, err := ownCPUs()
	if err != nil {
		return nil, err
	}
	frame, err := torrentFrame(l, first, port)
	if err != nil {
		return nil, err
	}
	t := &Torrent{link: l, sources: sources, ended: make(chan struct{})}
	if t.lost, err = ringLosses(l.Gate); err != nil {
		return nil, err
	}
	if t.state, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1}); err != nil {
		return nil, err
	}
	interval := int32(float64(time.Second) / rate)
	t.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "torrent", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: torrentProgram(t.state.FD(), l.Peer.Index, interval, first, sources),
	})
	if err != nil {
		t.state.Close()
		return nil, fmt.Errorf("load the torrent's program: %w", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, err
	}
	if err := t.state.Put(uint32(0), torrentState{Start: uint64(now.Nano())}); err != nil {
		return nil, err
	}
	t.first = time.Now()
	go func() {
		defer close(t.ended)
		t.err = Run(l.Peer.NS, func() error {
			return onThisCPU(cpus[len(cpus)-1], func() error { return t.run(frame) })
		})
	}()
	return t, nil
}

func (t *Torrent) run(frame []byte) error {
	t.thread.Store(int64(unix.Gettid()))
	for !t.stopped.Load() {
		err := liveRun(t.program, frame, torrentBatch)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("send live frames: %w (needs Linux 5.18)", err)
		}
	}
	return nil
}

// halt interrupts the run, which by itself takes minutes, until it has ended.
func (t *Torrent) halt() error {
	t.stopped.Store(true)
	for {
		if thread := t.thread.Load(); thread != 0 {
			// the runtime uses this signal itself and bears it at any time
			_ = unix.Tgkill(unix.Getpid(), int(thread), unix.SIGURG)
		}
		select {
		case <-t.ended:
			return t.err
		case <-time.After(time.Millisecond):
		}
	}
}

// Stop ends the torrent and returns what it sent.
func (t *Torrent) Stop(tb TB) Poured {
	tb.Helper()
	if err := t.halt(); err != nil {
		tb.Fatalf("pour: %v", err)
	}
	p := Poured{Elapsed: time.Since(t.first), Packets: make([]uint64, t.sources)}
	var state torrentState
	if err := t.state.Lookup(uint32(0), &state); err != nil {
		tb.Fatalf("pour: read what was sent: %v", err)
	}
	for i := range p.Packets {
		p.Packets[i] = (state.Next + uint64(t.sources-1-i)) / uint64(t.sources)
	}
	lost, err := ringLosses(t.link.Gate)
	if err != nil {
		tb.Fatalf("pour: %v", err)
	}
	p.Lost = lost - t.lost
	return p
}

func (t *Torrent) close() {
	_ = t.halt() // told by Stop
	t.program.Close()
	t.state.Close()
}

// ringLosses is how many frames found the ring of a veth end full: it counts
// them as dropped.
func ringLosses(e End) (uint64, error) {
	link, err := e.NS.links.LinkByIndex(e.Index)
	if err != nil {
		return 0, fmt.Errorf("read the losses of %s: %w", e.Interface, err)
	}
	return link.Attrs().Statistics.RxDropped, nil
}

// Offsets into an untagged IPv4 frame.
const (
	offsetID     = 14 + 4
	offsetSource = 14 + 12
	offsetUDPSum = 14 + 20 + 6
	offsetNumber = torrentSize - 16
)

// torrentFrame is a frame in which the low half of the source and the ID add
// up to 0xffff, a zero of the header's checksum (RFC 1071): the program keeps
// it so. There is no UDP checksum.
func torrentFrame(l Link, first netip.Addr, port uint16) ([]byte, error) {
	if !first.Is4() {
		return nil, fmt.Errorf("a torrent of %s: it takes IPv4 sources", first)
	}
	address := first.As4()
	address[2], address[3] = 0xff, 0xff
	p := l.UDP(netip.AddrFrom4(address), port)
	p.Length = torrentSize
	frame, err := p.Frame()
	if err != nil {
		return nil, err
	}
	if id := binary.BigEndian.Uint16(frame[offsetID:]); id != 0 {
		return nil, fmt.Errorf("build the torrent's frame: its ID is %d, not 0", id)
	}
	binary.BigEndian.PutUint16(frame[offsetUDPSum:], 0)
	return frame, nil
}

// torrentProgram writes source and number, and redirects the frame.
func torrentProgram(state, ifindex int, interval int32, first netip.Addr, sources int) asm.Instructions {
	const data, end = 0, 4 // in struct xdp_md
	low := binary.BigEndian.Uint16(first.AsSlice()[2:])
	return asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, data, asm.Word),
		asm.LoadMem(asm.R2, asm.R1, end, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R6),
		asm.Add.Imm(asm.R3, torrentSize),
		asm.JGT.Reg(asm.R3, asm.R2, "short"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, state),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "short"),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.LoadMem(asm.R7, asm.R8, 0, asm.DWord),

		// not before start + n * interval
		asm.FnKtimeGetNs.Call(),
		asm.LoadMem(asm.R1, asm.R8, 8, asm.DWord),
		asm.Sub.Reg(asm.R0, asm.R1),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Mul.Imm(asm.R1, interval),
		asm.JLT.Reg(asm.R0, asm.R1, "wait"),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R8, 0, asm.R1, asm.DWord),

		// source = first + n % sources
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Mod.Imm(asm.R1, int32(sources)),
		asm.Add.Imm(asm.R1, int32(low)),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.StoreMem(asm.R6, offsetSource+2, asm.R1, asm.Half),
		asm.Xor.Imm(asm.R1, 0xffff),
		asm.StoreMem(asm.R6, offsetID, asm.R1, asm.Half),

		// number = n / sources
		asm.Div.Imm(asm.R7, int32(sources)),
		asm.HostTo(asm.BE, asm.R7, asm.DWord),
		asm.StoreMem(asm.R6, offsetNumber, asm.R7, asm.DWord),
		asm.Xor.Imm(asm.R7, -1),
		asm.StoreMem(asm.R6, offsetNumber+8, asm.R7, asm.DWord),

		asm.Mov.Imm(asm.R1, int32(ifindex)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),

		asm.Mov.Imm(asm.R0, 1).WithSymbol("wait"), // XDP_DROP
		asm.Return(),

		asm.Mov.Imm(asm.R0, 0).WithSymbol("short"), // XDP_ABORTED
		asm.Return(),
	}
}
