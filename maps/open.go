package maps

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
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
// daemon can be asked. Where a change of the layout was cut short it opens both:
// packets may be judged by either. Where nothing is pinned the error is an
// fs.ErrNotExist.
func SetOpen(pins string, open bool) error {
	dirs, err := controlled(pins)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := setOpen(dir, open); err != nil {
			return err
		}
	}
	return nil
}

// controlled are the folders of maps that packets may be judged by.
func controlled(pins string) (dirs []string, err error) {
	all, err := layouts(pins)
	if err != nil {
		return nil, err
	}
	for _, dir := range all {
		dirs = append(dirs, dir)
	}
	if next := filepath.Join(pins, nextName); exists(next) {
		dirs = append(dirs, next)
	}
	if len(dirs) == 0 {
		dirs = []string{MapDir(pins)}
	}
	return dirs, nil
}

// setOpen writes the flag in one set of maps, of whatever layout.
func setOpen(dir string, open bool) error {
	m, err := openPinnedMap(filepath.Join(dir, "controls"), false)
	if err != nil {
		return err
	}
	defer m.Close()
	at := uint32(unsafe.Offsetof(bpfControl{}.Flags))
	if s, err := readShapes(dir); err == nil {
		f, ok := s.Maps["controls"].find("flags")
		if !ok || f.Size != 4 || s.Table != tableVersion {
			return fmt.Errorf("open the gate in %s: its version has another way to do it: use that version", dir)
		}
		at = f.At
	} else if filepath.Base(dir) != filepath.Base(MapDir(dir)) {
		return fmt.Errorf("open the gate in %s: %w", dir, err)
	}
	memory, err := mapMemory(m, true)
	if err != nil {
		return err
	}
	flags := (*uint32)(unsafe.Pointer(&memory[at]))
	if open {
		atomic.OrUint32(flags, controlOpen)
	} else {
		atomic.AndUint32(flags, ^uint32(controlOpen))
	}
	return unix.Munmap(memory)
}
