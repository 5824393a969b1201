package maps

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/gaissmai/bart"
	"golang.org/x/sys/unix"
)

// As in bpf/types.h.
const (
	root4Bits = 16
	root6Bits = 16

	controlWhole4 = 1 << 1
	controlWhole6 = 1 << 2
)

// roots tell the program which lengths are worth a look for an address, see
// bpf/prefix.h. Each change is one store.
type roots struct {
	memory  [2][]byte
	v4, v6  []uint32
	own     [2][]uint32 // what v4 and v6 are to be, in memory of this process alone
	control *controlPage
	seed    [4]uint64
	held    *bart.Lite

	// used counts the prefixes of a length in a root: of IPv4 those longer
	// than the root, of IPv6 those from 33 to 64.
	used [2]map[uint32]int
	// lengths counts the other prefixes of IPv6.
	lengths [129]int
}

func openRoots(g *Gate, held *bart.Lite) (*roots, error) {
	r := &roots{control: g.control, seed: g.meta.Seed, held: held, used: [2]map[uint32]int{{}, {}}}
	var err error
	if r.memory[0], err = mapMemory(g.objects.Roots4, true); err != nil {
		return nil, err
	}
	if r.memory[1], err = mapMemory(g.objects.Roots6, true); err != nil {
		return nil, errors.Join(err, unix.Munmap(r.memory[0]))
	}
	r.v4 = unsafe.Slice((*uint32)(unsafe.Pointer(&r.memory[0][0])), 1<<root4Bits)
	r.v6 = unsafe.Slice((*uint32)(unsafe.Pointer(&r.memory[1][0])), 1<<root6Bits)
	r.own = [2][]uint32{make([]uint32, len(r.v4)), make([]uint32, len(r.v6))}
	return r, nil
}

func (r *roots) close() error {
	return errors.Join(unix.Munmap(r.memory[0]), unix.Munmap(r.memory[1]))
}

// root6 is root6_index of bpf/prefix.h.
func (r *roots) root6(p netip.Prefix) uint32 {
	hi, _ := halves(p.Addr())
	h := (hi>>32 ^ r.seed[1]) * r.seed[3]
	return uint32((h ^ h>>32) * r.seed[2] >> (64 - root6Bits))
}

// add makes the length of p, which is in the table and among held, worth a
// look.
func (r *roots) add(p netip.Prefix) { r.count(p, 1) }

// remove takes that back for p, which has left both.
func (r *roots) remove(p netip.Prefix) { r.count(p, -1) }

func (r *roots) count(p netip.Prefix, n int) {
	switch bits := p.Bits(); {
	case p.Addr().Is4() && bits == 0:
		r.control.setFlag(controlWhole4, n > 0)
	case p.Addr().Is4() && bits <= root4Bits:
		r.shorten(p)
	case p.Addr().Is4():
		_, lo := halves(p.Addr())
		r.use(0, &r.v4[lo>>root4Bits], uint32(lo)>>root4Bits, 32-bits, n)
	case bits > 32 && bits <= 64:
		root := r.root6(p)
		r.use(1, &r.v6[root], root, 64-bits, n)
	default:
		r.lengths[bits] += n
		r.publish6()
	}
}

// use counts a prefix of a root, and sets or clears the bit of its length.
func (r *roots) use(family int, word *uint32, root uint32, bit, n int) {
	at := root<<6 | uint32(bit)
	r.used[family][at] += n
	own := &r.own[family][root]
	if r.used[family][at] > 0 {
		*own |= 1 << bit
		atomic.OrUint32(word, 1<<bit)
		return
	}
	delete(r.used[family], at)
	*own &^= 1 << bit
	atomic.AndUint32(word, ^uint32(1<<bit))
}

// shorten writes into every root that p covers which is the longest of the
// prefixes that cover the root.
func (r *roots) shorten(p netip.Prefix) {
	const longer = 1<<root4Bits - 1 // bits of the lengths beyond
	_, lo := halves(p.Addr())
	first := uint32(lo) >> root4Bits
	for root := first; root < first+1<<(root4Bits-p.Bits()); root++ {
		address := netip.AddrFrom4([4]byte{byte(root >> 8), byte(root)})
		covering, ok := r.held.LookupPrefixLPM(netip.PrefixFrom(address, root4Bits))
		bit := uint32(0)
		if ok && covering.Bits() > 0 {
			bit = 1 << (32 - covering.Bits())
		}
		r.own[0][root] = r.own[0][root]&longer | bit
		if word := &r.v4[root]; *word&^longer != bit {
			atomic.StoreUint32(word, *word&longer|bit)
		}
	}
}

func (r *roots) publish6() {
	var short, long uint64
	for bits := 1; bits <= 32; bits++ {
		if r.lengths[bits] > 0 {
			short |= length6(bits)
		}
	}
	for bits := 65; bits <= 128; bits++ {
		if r.lengths[bits] > 0 {
			long |= length6(bits)
		}
	}
	atomic.StoreUint64(&r.control.fields.Short6, short)
	atomic.StoreUint64(&r.control.fields.Long6, long)
	r.control.setFlag(controlWhole6, r.lengths[0] > 0)
}

// recount brings the roots in line with what is held, after a start: a process
// that was killed may have left them behind. Every word goes from what it was
// to what it is to be in one store.
func (r *roots) recount() {
	live4, live6 := r.v4, r.v6
	r.v4, r.v6 = make([]uint32, len(live4)), make([]uint32, len(live6))
	for p := range r.held.All() {
		if bits := p.Bits(); p.Addr().Is6() && (bits <= 32 || bits > 64) {
			r.lengths[bits]++
		} else {
			r.add(p)
		}
	}
	r.control.setFlag(controlWhole4, r.held.Get(netip.PrefixFrom(netip.IPv4Unspecified(), 0)))
	r.publish6()
	for i, word := range r.v4 {
		atomic.StoreUint32(&live4[i], word)
	}
	for i, word := range r.v6 {
		atomic.StoreUint32(&live6[i], word)
	}
	r.v4, r.v6 = live4, live6
}

// audit puts right what others changed, in the roots and in the control entry,
// and reports whether it was in the roots.
func (r *roots) audit() (different bool) {
	r.control.setFlag(controlWhole4, r.held.Get(netip.PrefixFrom(netip.IPv4Unspecified(), 0)))
	r.publish6()
	for f, live := range [][]uint32{r.v4, r.v6} {
		for i, word := range r.own[f] {
			if atomic.LoadUint32(&live[i]) != word {
				atomic.StoreUint32(&live[i], word)
				different = true
			}
		}
	}
	return different
}
