package maps

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A ring buffer as the kernel maps it (include/uapi/linux/bpf.h, BPF_RINGBUF_*,
// and kernel/bpf/ringbuf.c): a page with the position of the reader, a page with
// that of the writers, then the data, twice in a row so that no record is cut.
const (
	ringBusy    = 1 << 31 // the record is being written
	ringDiscard = 1 << 30
	ringHeader  = 8 // length and flags, then where the ring begins
)

// peek returns the records that nobody has read, and leaves them to the reader
// that comes: the position of the reader stays.
func peek(m *ebpf.Map) (records [][]byte, err error) {
	page := os.Getpagesize()
	reader, err := unix.Mmap(m.FD(), 0, page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the reader of %s into memory: %w", m, err)
	}
	defer unix.Munmap(reader)
	writers, err := unix.Mmap(m.FD(), int64(page), page+2*int(m.MaxEntries()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s into memory: %w", m, err)
	}
	defer unix.Munmap(writers)
	read, written := (*uint64)(unsafe.Pointer(&reader[0])), (*uint64)(unsafe.Pointer(&writers[0]))
	data, mask := writers[page:], uint64(m.MaxEntries())-1
	for at, end := atomic.LoadUint64(read), atomic.LoadUint64(written); at < end; {
		header := atomic.LoadUint32((*uint32)(unsafe.Pointer(&data[at&mask])))
		length := uint64(header &^ (ringBusy | ringDiscard))
		if header&ringBusy != 0 || length > mask {
			break
		}
		begin := at&mask + ringHeader
		record := append([]byte(nil), data[begin:begin+length]...)
		if atomic.LoadUint64(read) > at {
			break // a daemon has come and reads: what was copied may be others'
		}
		if header&ringDiscard == 0 {
			records = append(records, record)
		}
		at += (length + ringHeader + 7) &^ 7
	}
	return records, nil
}

// struck returns the sources that a then has blocked, that are blocked still,
// and that no daemon has been told of.
func (g *Gate) struck() (all []Struck, err error) {
	records, err := peek(g.objects.Events)
	if err != nil {
		return nil, err
	}
	seen := map[bpfSourceKey]bool{}
	for _, record := range records {
		var event bpfEvent
		if _, err := binary.Decode(record, binary.NativeEndian, &event); err != nil {
			return nil, fmt.Errorf("read an event: %w", err)
		}
		left := g.struckFor(event.Source)
		if left <= 0 || seen[event.Source] {
			continue
		}
		seen[event.Source] = true
		all = append(all, Struck{Prefix: event.Source.prefix(), Rule: g.ruleOfID(event.Limit), End: time.Now().Add(left)})
	}
	return all, nil
}

// struckFor is how long a then blocks a source still; 0: it does not.
func (g *Gate) struckFor(key bpfSourceKey) time.Duration {
	slot := g.table.find(g.table.blockTag(key))
	if slot == nil {
		return 0
	}
	return max(0, time.Duration(int64(atomic.LoadUint64(&slot.Tat)-g.now())/ticksPerNano))
}

// blockTag is the tag of the slot that blocks a source.
func (t *Table) blockTag(key bpfSourceKey) uint64 {
	return t.tag(t.hash(key.Hi, key.Lo), t.salt(bpfSlotKindSLOT_BLOCK, 0), bpfSlotKindSLOT_BLOCK)
}
