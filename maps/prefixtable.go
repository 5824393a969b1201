package maps

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Sizes and bits of the tables of prefixes, as in bpf/types.h and bpf/prefix.h.
const (
	prefixWays = 8
	prefixHops = 16
	keySpilled = 1 << 63
)

// prefixTable is the table of one family's prefixes, mapped into memory: a hash
// that the program reads while it is written. There is one writer, and each
// change is one store, the record before the key.
type prefixTable struct {
	memory []byte
	lines4 []bpfPrefixLine4 // one of the two
	lines6 []bpfPrefixLine6
	mask   uint32 // lines - 1
	seed   [4]uint64
	held   int

	// retired are places that packets in flight may still read.
	retired map[uint32]bool
}

func openPrefixTable(m *ebpf.Map, seed [4]uint64, writable bool) (*prefixTable, error) {
	memory, err := mapMemory(m, writable)
	if err != nil {
		return nil, err
	}
	t := &prefixTable{memory: memory, mask: m.MaxEntries() - 1, seed: seed, retired: map[uint32]bool{}}
	if first := unsafe.Pointer(&memory[0]); m.ValueSize() == uint32(unsafe.Sizeof(bpfPrefixLine4{})) {
		t.lines4 = unsafe.Slice((*bpfPrefixLine4)(first), m.MaxEntries())
	} else {
		t.lines6 = unsafe.Slice((*bpfPrefixLine6)(first), m.MaxEntries())
	}
	return t, nil
}

func (t *prefixTable) close() error { return unix.Munmap(t.memory) }

func (t *prefixTable) places() int { return (int(t.mask) + 1) * prefixWays }

// line returns the keys and the records of a line.
func (t *prefixTable) line(index uint32) (*[prefixWays]uint64, *[prefixWays]bpfPrefix) {
	index &= t.mask
	if t.lines4 != nil {
		return &t.lines4[index].Key, &t.lines4[index].Prefix
	}
	return &t.lines6[index].Key, &t.lines6[index].Prefix
}

// halves are an address as the program has it.
func halves(a netip.Addr) (hi, lo uint64) {
	if a.Is4() {
		b := a.As4()
		return 0, uint64(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// key is the key of p, and the line where it is looked for first.
func (t *prefixTable) key(p netip.Prefix) (key uint64, index uint32) {
	hi, lo := halves(p.Addr())
	if t.lines4 != nil {
		length := uint64(1) << (32 - p.Bits())
		key = lo<<1 | length
		return key, uint32(hash4(t.seed, key))
	}
	key = hash6(t.seed, hi, lo, length6(p.Bits())) | 1
	return key &^ keySpilled, uint32(key >> 32)
}

// hash4 is prefix4_hash of bpf/prefix.h.
func hash4(seed [4]uint64, key uint64) uint64 {
	h := (key ^ seed[2]) * seed[3]
	h ^= h >> 32
	return h * seed[0] >> 32
}

// hash6 is prefix6_hash of bpf/prefix.h.
func hash6(seed [4]uint64, hi, lo, length uint64) uint64 {
	h := tableHash(seed, hi^(length<<7|length>>57), lo) * seed[3]
	return h ^ h>>32
}

// length6 is the bit of a length of IPv6 within its half of the address.
func length6(bits int) uint64 {
	switch {
	case bits == 0:
		return 0
	case bits <= 64:
		return 1 << (64 - bits)
	}
	return 1 << (128 - bits)
}

// find returns the place of p.
func (t *prefixTable) find(p netip.Prefix) (place uint32, ok bool) {
	key, index := t.key(p)
	for hop := range uint32(prefixHops) {
		keys, _ := t.line(index + hop)
		for w := range keys {
			if keys[w]&^keySpilled == key && (t.lines4 != nil || t.nameAt(index+hop, w) == p) {
				return (index+hop)&t.mask*prefixWays + uint32(w), true
			}
		}
		if keys[prefixWays-1]&keySpilled == 0 {
			break
		}
	}
	return 0, false
}

func (t *prefixTable) nameAt(index uint32, w int) netip.Prefix {
	line := &t.lines6[index&t.mask]
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], line.Name[w].Hi)
	binary.BigEndian.PutUint64(b[8:], line.Name[w].Lo)
	return netip.PrefixFrom(netip.AddrFrom16(b), int(line.Bits[w]))
}

// put writes the record of p. It returns false if there is no place for it: the
// table must grow.
func (t *prefixTable) put(p netip.Prefix, value bpfPrefix) bool {
	place, ok := t.find(p)
	if !ok {
		return t.insert(p, value)
	}
	_, records := t.line(place / prefixWays)
	storeRecord(&records[place%prefixWays], value)
	return true
}

// storeRecord stores both halves of a record, each at once.
func storeRecord(r *bpfPrefix, value bpfPrefix) {
	to, from := (*[2]uint64)(unsafe.Pointer(r)), (*[2]uint64)(unsafe.Pointer(&value))
	atomic.StoreUint64(&to[0], from[0])
	atomic.StoreUint64(&to[1], from[1])
}

func (t *prefixTable) insert(p netip.Prefix, value bpfPrefix) bool {
	key, index := t.key(p)
	hop, w := t.free(index)
	if w < 0 && len(t.retired) > 0 {
		waitForReaders()
		clear(t.retired)
		hop, w = t.free(index)
	}
	if w < 0 {
		return false
	}
	for full := range hop {
		keys, _ := t.line(index + full)
		atomic.OrUint64(&keys[prefixWays-1], keySpilled)
	}
	keys, records := t.line(index + hop)
	storeRecord(&records[w], value)
	if t.lines6 != nil {
		line := &t.lines6[(index+hop)&t.mask]
		line.Name[w].Hi, line.Name[w].Lo = halves(p.Addr())
		line.Bits[w] = uint8(p.Bits())
	}
	atomic.StoreUint64(&keys[w], keys[w]&keySpilled|key)
	t.held++
	return true
}

// free is a place that no packet reads, in the lines from index on; -1: none.
func (t *prefixTable) free(index uint32) (hop uint32, way int) {
	for hop := range uint32(prefixHops) {
		keys, _ := t.line(index + hop)
		for w := range keys {
			if keys[w]&^keySpilled == 0 && !t.retired[(index+hop)&t.mask*prefixWays+uint32(w)] {
				return hop, w
			}
		}
	}
	return 0, -1
}

// remove gives up the place of p.
func (t *prefixTable) remove(p netip.Prefix) {
	place, ok := t.find(p)
	if !ok {
		return
	}
	keys, _ := t.line(place / prefixWays)
	atomic.AndUint64(&keys[place%prefixWays], keySpilled)
	t.retired[place] = true
	t.held--
}

// clear empties a place that nothing of ours is in.
func (t *prefixTable) clear(place uint32) {
	keys, _ := t.line(place / prefixWays)
	atomic.AndUint64(&keys[place%prefixWays], keySpilled)
	t.retired[place] = true
}

// each calls fn for all that the table holds.
func (t *prefixTable) each(fn func(netip.Prefix, bpfPrefix)) {
	t.eachPlace(0, t.mask+1, func(_ uint32, p netip.Prefix, v bpfPrefix) { fn(p, v) })
}

// eachPlace calls fn for all that some lines hold.
func (t *prefixTable) eachPlace(first, lines uint32, fn func(uint32, netip.Prefix, bpfPrefix)) {
	for index := first; index < first+lines; index++ {
		keys, records := t.line(index)
		for w := range keys {
			place := index*prefixWays + uint32(w)
			switch key := keys[w] &^ keySpilled; {
			case key == 0:
			case t.lines4 != nil:
				fn(place, named4(key), records[w])
			default:
				fn(place, t.nameAt(index, w), records[w])
			}
		}
	}
}

// named4 is the prefix that a key of IPv4 stands for.
func named4(key uint64) netip.Prefix {
	length := key & -key
	bits := 32
	for l := length; l > 1; l >>= 1 {
		bits--
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32((key^length)>>1))
	return netip.PrefixFrom(netip.AddrFrom4(b), bits)
}
