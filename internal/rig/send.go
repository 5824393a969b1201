package rig

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Stream is what Send sends: its frames in turn, each numbered from 0 on its
// own, until Count packets or Duration, whichever comes first.
type Stream struct {
	Frames   [][]byte       // with markers, see Packet.Frame
	Rate     float64        // packets a second on an absolute schedule; 0: back to back
	Batch    int            // most packets a system call, 1 to 1024; 0: 64
	Count    uint64         // 0: no end by count
	Duration time.Duration  // 0: no end by time
	Progress *atomic.Uint64 // grows with what was sent; may be nil
}

// Sent is what was really sent. First is read before the first packet and
// Last after the last one left, so that all of them lie between.
type Sent struct {
	Packets     uint64
	First, Last time.Time
}

// Elapsed is the time that all packets lie in.
func (s Sent) Elapsed() time.Duration { return s.Last.Sub(s.First) }

// Send sends the stream from the interface. A late packet does not delay
// those after it: what is due is sent at once. A packet that the kernel
// refuses for lack of room is sent again. Ending ctx ends the stream early,
// without an error.
func Send(ctx context.Context, from End, s Stream) (Sent, error) {
	if err := s.check(); err != nil {
		return Sent{}, fmt.Errorf("send from %s: %w", from.Interface, err)
	}
	fd, err := packetSocket(from, 0)
	if err != nil {
		return Sent{}, fmt.Errorf("open packet socket on %s: %w", from.Interface, err)
	}
	defer unix.Close(fd)
	out := newSender(fd, s)
	sent, err := out.run(ctx)
	if err != nil {
		return sent, fmt.Errorf("send from %s: %w", from.Interface, err)
	}
	return sent, nil
}

func (s Stream) check() error {
	switch {
	case len(s.Frames) == 0:
		return errors.New("no frames (give at least one)")
	case s.Count == 0 && s.Duration == 0:
		return errors.New("no end (set Count or Duration)")
	case s.Rate < 0 || s.Batch < 0 || s.Batch > 1024:
		return fmt.Errorf("rate %v, batch %d: want a rate of 0 or more, a batch up to 1024", s.Rate, s.Batch)
	}
	for i, f := range s.Frames {
		if _, _, ok := readMarker(f); !ok {
			return fmt.Errorf("frame %d has no marker (build it by Packet.Frame, not Unmarked)", i)
		}
	}
	return nil
}

// sender numbers and sends the packets of one stream.
type sender struct {
	Stream
	fd    int
	batch *batch
	next  uint64 // packets sent
}

func newSender(fd int, s Stream) *sender {
	if s.Batch == 0 {
		s.Batch = 64
	}
	size := 0
	for _, f := range s.Frames {
		size = max(size, len(f))
	}
	return &sender{Stream: s, fd: fd, batch: newBatch(s.Batch, size)}
}

func (s *sender) run(ctx context.Context) (Sent, error) {
	start := time.Now()
	sent := Sent{First: start, Last: start}
	for ctx.Err() == nil {
		n, wait := s.due(time.Since(start))
		if wait < 0 {
			break
		}
		if wait > 0 {
			if !pause(ctx, wait) {
				break
			}
			continue
		}
		if err := s.send(ctx, n); err != nil {
			return sent, err
		}
		sent.Packets, sent.Last = s.next, time.Now()
	}
	return sent, nil
}

// due returns how many packets to send now, or how long to wait for the next
// one; a negative wait says that the stream has ended.
func (s *sender) due(elapsed time.Duration) (n int, wait time.Duration) {
	if s.Count != 0 && s.next >= s.Count || s.Duration != 0 && elapsed >= s.Duration {
		return 0, -1
	}
	n = s.Batch
	if s.Rate > 0 {
		// Packet i is due at i/Rate, the first one at once.
		due := uint64(elapsed.Seconds()*s.Rate) + 1
		if due <= s.next {
			at := time.Duration(float64(s.next) / s.Rate * float64(time.Second))
			return 0, max(at-elapsed, time.Microsecond)
		}
		n = int(min(uint64(n), due-s.next))
	}
	if s.Count != 0 {
		n = int(min(uint64(n), s.Count-s.next))
	}
	return n, 0
}

// send sends the next n packets.
func (s *sender) send(ctx context.Context, n int) error {
	frames := uint64(len(s.Frames))
	for i := range n {
		seq := s.next + uint64(i)
		number(s.batch.set(i, s.Frames[seq%frames]), seq/frames)
	}
	for from := 0; from < n; {
		k, err := s.batch.send(s.fd, from, n)
		switch {
		case err == nil:
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EAGAIN):
			if !pause(ctx, 50*time.Microsecond) {
				return nil
			}
		default:
			return err
		}
		from += k
		s.next += uint64(k)
		if s.Progress != nil {
			s.Progress.Add(uint64(k))
		}
	}
	return nil
}

// pause waits, and tells whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
