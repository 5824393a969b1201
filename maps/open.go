package maps

import (
	"path/filepath"
	"sync/atomic"
	"time"
)

const controlOpen = 1 << 0 // as in bpf/types.h

// SetOpen opens the gate to every packet, or ends that. It is one write to
// memory that the program reads; rules and blocks stay as they are, and so does
// the gate, over restarts, until it is closed again.
func (g *Gate) SetOpen(open bool) { g.control.setFlag(controlOpen, open) }

// Opened tells whether the gate is open to every packet.
func (g *Gate) Opened() bool { return g.control.hasFlag(controlOpen) }

// SetLeash lets the program filter for d more; from then on it lets everything
// pass, until SetLeash is called again. 0: for ever. Whoever stands behind the
// gate calls it again and again.
func (g *Gate) SetLeash(d time.Duration) {
	end := uint64(0)
	if d > 0 {
		end = max(g.now()+uint64(min(d, longestBlock))*ticksPerNano, 1)
	}
	atomic.StoreUint64(&g.control.fields.LeashEnd, end)
}

// SetOpen is Gate.SetOpen on the maps pinned under pins, for the time when no
// daemon can be asked. Its errors are those of Inspect.
func SetOpen(pins string, open bool) error {
	dir, err := inForce(pins)
	if err != nil {
		return err
	}
	m, err := openPinnedMap(filepath.Join(dir, "controls"), false)
	if err != nil {
		return err
	}
	defer m.Close()
	page, err := openControl(m)
	if err != nil {
		return err
	}
	page.setFlag(controlOpen, open)
	return page.close()
}
