package rig

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// receiveBuffer holds what arrives while the receiver is off the CPU. The
// kernel counts about 1 kB for a small frame.
const receiveBuffer = 256 << 20

// Receiver counts the frames that arrive at the gate's end of a link, after
// the XDP program and before the rest of the kernel.
type Receiver struct {
	link    Link
	fd      int
	stopped atomic.Bool
	done    chan struct{}
	fences  chan uint64

	mu    sync.Mutex
	flows map[Flow]*sequence
	other uint64
	err   error

	arrivals map[netip.Addr]Arrivals // of sources that are timed
}

// Receive starts a receiver that ends with the test. Use Stop to read it.
func Receive(tb TB, l Link) *Receiver {
	tb.Helper()
	r, err := NewReceiver(l)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(r.quit)
	return r
}

// Stop is Finish for a test: it fails where a frame was lost on the way from
// the interface to the receiver.
func (r *Receiver) Stop(tb TB) Report {
	tb.Helper()
	report, err := r.Finish()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return report
}

// NewReceiver starts a receiver. It hears what arrives after it returns.
func NewReceiver(l Link) (*Receiver, error) {
	fd, err := packetSocket(l.Gate, unix.ETH_P_ALL, receiveOptions)
	if err != nil {
		return nil, fmt.Errorf("receive at %s: %w", l.Gate.Interface, err)
	}
	r := &Receiver{
		link: l, fd: fd,
		done:   make(chan struct{}),
		fences: make(chan uint64, 1024),
		flows:  make(map[Flow]*sequence),
	}
	go r.run()
	return r, nil
}

func receiveOptions(fd int) error {
	// The timeout is how often the receiver looks whether it is to stop.
	timeout := unix.NsecToTimeval(20e6)
	return errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
	)
}

func (r *Receiver) run() {
	defer close(r.done)
	in := newBatch(32, 1<<16)
	for !r.stopped.Load() {
		n, err := in.receive(r.fd)
		switch {
		case err == nil:
			r.count(in, n)
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		default:
			r.mu.Lock()
			r.err = err
			r.mu.Unlock()
			return
		}
	}
}

func (r *Receiver) count(in *batch, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range n {
		frame, truncated := in.received(i)
		stream, seq, ok := readMarker(frame)
		switch {
		case truncated || !ok:
			r.other++
		case stream == fenceStream:
			r.fences <- seq
		default:
			from := source(frame)
			r.flow(Flow{from, stream}).add(seq, len(frame))
			r.arrived(in, i, from)
		}
	}
}

func (r *Receiver) flow(f Flow) *sequence {
	s := r.flows[f]
	if s == nil {
		s = &sequence{}
		r.flows[f] = s
	}
	return s
}

// Snapshot returns what was counted so far.
func (r *Receiver) Snapshot() Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := Report{Flows: make(map[Flow]Tally, len(r.flows)), Other: r.other}
	for f, s := range r.flows {
		report.Flows[f] = s.total()
	}
	return report
}

// Finish waits until all that was sent before is counted, ends the receiver
// and returns what it counted. To know that nothing is left on the way it
// sends an ARP request from each CPU through the link and waits for them; the
// gate's counters see these. It is an error if the receiver lost a frame.
func (r *Receiver) Finish() (Report, error) {
	if r.stopped.Load() {
		return Report{}, fmt.Errorf("receive at %s: already finished", r.link.Gate.Interface)
	}
	err := r.fence()
	drops, derr := r.drops()
	r.quit()
	r.mu.Lock()
	rerr := r.err
	r.mu.Unlock()
	if err := errors.Join(rerr, err, derr); err != nil {
		return Report{}, fmt.Errorf("receive at %s: %w", r.link.Gate.Interface, err)
	}
	if drops != 0 {
		return Report{}, fmt.Errorf("receive at %s: the receiver itself lost %d frames (send slower)", r.link.Gate.Interface, drops)
	}
	return r.Snapshot(), nil
}

func (r *Receiver) drops() (uint32, error) {
	stats, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("read the receiver's losses: %w", err)
	}
	return stats.Drops, nil
}

// quit ends the receiver, once.
func (r *Receiver) quit() {
	if !r.stopped.Swap(true) {
		<-r.done
		unix.Close(r.fd)
	}
}
