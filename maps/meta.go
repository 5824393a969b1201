package maps

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Ids of the built-in limits; those of rules follow.
const (
	limitVitalSource = 1
	limitVitalTotal  = 2
	firstLimit       = 3
)

// openMeta reads what was fixed when the maps were made, or fixes it now.
func openMeta(m *ebpf.Map, lines uint32) (bpfMeta, error) {
	var meta bpfMeta
	if err := m.Lookup(uint32(0), &meta); err != nil {
		return meta, fmt.Errorf("read the maps' meta data: %w", err)
	}
	if meta.Magic == metaMagic {
		if meta.Layout != LayoutVersion {
			return meta, fmt.Errorf("the pinned maps say layout %d, expected %d: remove them with `headgate detach --all`", meta.Layout, LayoutVersion)
		}
		// who changes the size may be killed before it is written here
		meta.Lines = lines
		return meta, nil
	}
	meta = bpfMeta{Magic: metaMagic, Layout: LayoutVersion, Lines: lines, NextLimit: firstLimit, Epoch: monotonic()}
	for i := range meta.Seed {
		var seed [8]byte
		if _, err := rand.Read(seed[:]); err != nil {
			return meta, fmt.Errorf("draw the table's seed: %w", err)
		}
		// odd: it is a multiplier
		meta.Seed[i] = binary.NativeEndian.Uint64(seed[:]) | 1
	}
	if err := m.Put(uint32(0), &meta); err != nil {
		return meta, fmt.Errorf("write the maps' meta data: %w", err)
	}
	return meta, nil
}

// monotonic is CLOCK_MONOTONIC in ns, which bpf_ktime_get_ns reads too.
func monotonic() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock is always there
	}
	return uint64(ts.Nano())
}

// now is the present in ticks of the table.
func (g *Gate) now() uint64 {
	if now, fixed := g.control.fixed(); fixed {
		return now
	}
	return (monotonic() - g.meta.Epoch) * ticksPerNano
}
