package maps

import (
	"math/bits"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Bits of a slot's tag, as in bpf/types.h.
const (
	tagReserved  = 1 << 0
	tagDenied    = 1 << 1
	tagKindShift = 2
	tagKind      = 3 << tagKindShift
	tagFlags     = tagReserved | tagDenied
)

// Table is the bucket table, mapped into memory. The program works on it at
// the same time: every access is atomic.
type Table struct {
	memory []byte
	lines  []bpfLine
	seed   [4]uint64
}

func openTable(m *ebpf.Map, meta bpfMeta) (*Table, error) {
	memory, err := mapMemory(m, true)
	if err != nil {
		return nil, err
	}
	lines := unsafe.Slice((*bpfLine)(unsafe.Pointer(&memory[0])), meta.Lines)
	return &Table{memory: memory, lines: lines, seed: meta.Seed}, nil
}

func (t *Table) close() error { return unix.Munmap(t.memory) }

// hash is table_hash of bpf/table.h.
func (t *Table) hash(hi, lo uint64) uint64 { return tableHash(t.seed, hi, lo) }

func tableHash(seed [4]uint64, hi, lo uint64) uint64 {
	h := (hi ^ seed[0]) * seed[1]
	h ^= h >> 32
	h = (h ^ lo) * seed[2]
	return h ^ h>>29
}

// tag is table_tag of bpf/table.h.
func (t *Table) tag(hash, salt uint64, kind bpfSlotKind) uint64 {
	h := (hash ^ salt) * t.seed[3]
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 29
	h &^= tagFlags | tagKind
	h |= uint64(kind) << tagKindShift
	if h == 0 {
		return 1 << 63
	}
	return h
}

// salt makes the limits' and kinds' keys differ: a keyed hash of both.
func (t *Table) salt(kind bpfSlotKind, id uint32) uint64 {
	h := t.hash(uint64(kind)+1, uint64(id))
	h *= t.seed[3]
	return bits.RotateLeft64(h, 31) * t.seed[1]
}

// sourceKey is the key of a source under `per: source`, as packet.hi and lo:
// IPv4 whole, IPv6 by its first bits6.
func sourceKey(a netip.Addr, bits6 int) (hi, lo uint64) {
	a = a.Unmap()
	if a.Is4() {
		b := a.As4()
		return 0, 0xffff<<32 | uint64(b[0])<<24 | uint64(b[1])<<16 | uint64(b[2])<<8 | uint64(b[3])
	}
	p, _ := a.WithZone("").Prefix(bits6)
	b := p.Addr().As16()
	for i := range 8 {
		hi = hi<<8 | uint64(b[i])
		lo = lo<<8 | uint64(b[i+8])
	}
	return hi, lo
}

// find returns the slot that holds tag, or nil.
func (t *Table) find(tag uint64) *bpfSlot {
	line := &t.lines[(tag>>32)&uint64(len(t.lines)-1)]
	for w := range line.Way {
		slot := &line.Way[w]
		if atomic.LoadUint64(&slot.Tag)&^tagDenied == tag {
			return slot
		}
	}
	return nil
}

// Sweep frees the slots whose bucket is full, and returns how many. It is
// called daily, so that no TAT gets old enough to look like the future.
func (t *Table) Sweep(now uint64) int {
	freed := 0
	for i := range t.lines {
		for w := range t.lines[i].Way {
			if sweepSlot(&t.lines[i].Way[w], now) {
				freed++
			}
		}
	}
	return freed
}

// sweepSlot takes the slot like a claim does: a charge that came in between
// gives it back.
func sweepSlot(s *bpfSlot, now uint64) bool {
	tag := atomic.LoadUint64(&s.Tag)
	if tag == 0 || tag&tagReserved != 0 || int64(atomic.LoadUint64(&s.Tat)-now) > 0 {
		return false
	}
	if !atomic.CompareAndSwapUint64(&s.Tag, tag, tag|tagReserved) {
		return false
	}
	if int64(atomic.LoadUint64(&s.Tat)-now) > 0 {
		atomic.StoreUint64(&s.Tag, tag)
		return false
	}
	atomic.StoreUint64(&s.Tag, 0)
	return true
}

// live counts the slots whose bucket is not full.
func (t *Table) live(now uint64) (n uint64) {
	for i := range t.lines {
		for w := range t.lines[i].Way {
			s := &t.lines[i].Way[w]
			if atomic.LoadUint64(&s.Tag) != 0 && int64(atomic.LoadUint64(&s.Tat)-now) > 0 {
				n++
			}
		}
	}
	return n
}
