package rig

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// controlRoom holds the one control message of a frame: its time.
const controlRoom = 64

// Time makes the receiver note when each packet of a source arrives: the
// kernel's stamp, set when the XDP program has let it through.
func (r *Receiver) Time(tb TB, source netip.Addr) {
	tb.Helper()
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		tb.Fatalf("receive with times: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.arrivals == nil {
		r.arrivals = make(map[netip.Addr]Arrivals)
	}
	r.arrivals[source] = nil
}

// Arrivals returns when packets of a source arrived that Time was called for,
// in order.
func (r *Receiver) Arrivals(source netip.Addr) Arrivals {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.arrivals[source])
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// arrived notes the time of the frame at place i.
func (r *Receiver) arrived(in *batch, i int, source netip.Addr) {
	list, timed := r.arrivals[source]
	if !timed {
		return
	}
	at, err := in.stamp(i)
	if err != nil && r.err == nil {
		r.err = err
	}
	r.arrivals[source] = append(list, at)
}

// stamp is the kernel's time of the frame at place i.
func (b *batch) stamp(i int) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(b.controls[i][:b.msgs[i].hdr.Controllen])
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of a frame: %w", err)
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))), nil
		}
	}
	return time.Time{}, fmt.Errorf("read the time of a frame: the kernel gave none")
}

// Arrivals are times in order.
type Arrivals []time.Time

// Burst is the least burst of a bucket of so many a second that all of them
// would have passed: the most by which any window's count exceeds rate·T.
func (a Arrivals) Burst(rate float64) float64 {
	most, level := 0.0, 0.0
	for i, at := range a {
		if i > 0 {
			level = max(0, level-rate*at.Sub(a[i-1]).Seconds())
		}
		level++
		most = max(most, level)
	}
	return most
}
