package maps

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// controlPage is the entry of controls, mapped into memory: the program reads
// a field the moment that it is stored.
type controlPage struct {
	memory  []byte
	fields  *bpfControl
	isFixed bool
}

func openControl(m *ebpf.Map) (*controlPage, error) {
	memory, err := mapMemory(m, true)
	if err != nil {
		return nil, err
	}
	return &controlPage{memory: memory, fields: (*bpfControl)(unsafe.Pointer(&memory[0]))}, nil
}

// mapMemory maps all values of an array into memory.
func mapMemory(m *ebpf.Map, writable bool) ([]byte, error) {
	access := unix.PROT_READ
	if writable {
		access |= unix.PROT_WRITE
	}
	size := int(m.MaxEntries()) * int((m.ValueSize()+7)&^7)
	page := unix.Getpagesize()
	size = (size + page - 1) / page * page
	memory, err := unix.Mmap(m.FD(), 0, size, access, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s into memory: %w", m, err)
	}
	return memory, nil
}

// close lets go of the page. What is asked of it later changes nothing.
func (c *controlPage) close() error {
	c.fields = new(bpfControl)
	return unix.Munmap(c.memory)
}

func (c *controlPage) generation() uint32 { return atomic.LoadUint32(&c.fields.Generation) }

func (c *controlPage) setGeneration(generation uint32) {
	atomic.StoreUint32(&c.fields.Generation, generation)
}

func (c *controlPage) setPrefixes(v4, v6 int) {
	atomic.StoreUint32(&c.fields.Prefixes4, uint32(v4))
	atomic.StoreUint32(&c.fields.Prefixes6, uint32(v6))
}

func (c *controlPage) setFlag(flag uint32, on bool) {
	if on {
		atomic.OrUint32(&c.fields.Flags, flag)
	} else {
		atomic.AndUint32(&c.fields.Flags, ^flag)
	}
}

func (c *controlPage) hasFlag(flag uint32) bool {
	return atomic.LoadUint32(&c.fields.Flags)&flag != 0
}

func (c *controlPage) setNow(ticks uint64) {
	c.isFixed = true
	atomic.StoreUint64(&c.fields.Now, ticks)
}

func (c *controlPage) fixed() (uint64, bool) {
	return atomic.LoadUint64(&c.fields.Now), c.isFixed
}
