package main

import (
	"fmt"
	"net/netip"

	"github.com/headgate/headgate/internal/rig"
	"golang.org/x/sys/unix"
)

// maxSources bounds the flood's sources: the network's last 16 bits.
const maxSources = 1 << 16

// floodSources are the first n sources of the network that RFC 2544 sets aside
// for benchmarks.
func floodSources(n int) rig.Sources {
	return rig.Sources{First: netip.AddrFrom4([4]byte{198, 18}), Count: uint32(n), Bits: 32}
}

// floodSource is the i-th source.
func floodSource(i int) netip.Addr { return floodSources(maxSources).At(uint32(i)) }

// sender floods one end of a wire from one CPU.
type sender struct {
	flood *rig.Flood
	cpu   int
}

// newSender sends from so many sources at random, on one CPU.
func newSender(w *wire, sources, cpu int) (*sender, error) {
	if sources < 1 || sources > maxSources {
		return nil, fmt.Errorf("flood from %d sources: not 1 to %d", sources, maxSources)
	}
	p := w.link.UDP(floodSource(0), benchPort)
	p.Unmarked = true
	flood, err := rig.NewFlood(w.link, p, floodSources(sources))
	if err != nil {
		return nil, err
	}
	return &sender{flood, cpu}, nil
}

// send sends n frames. Those that find the receiver's ring full are lost and
// counted there.
func (s *sender) send(n int) error { return s.flood.SendOn(s.cpu, n) }

func (s *sender) close() error { return s.flood.Close() }

// keepOn keeps a thread on one CPU.
func keepOn(pid, cpu int) error {
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(pid, &one); err != nil {
		return fmt.Errorf("keep thread %d on CPU %d: %w", pid, cpu, err)
	}
	return nil
}
