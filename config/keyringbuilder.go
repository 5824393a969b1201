package config

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"sort"
)

// keyringBuilder takes keys in any order. What it holds of them has no pointers
// either, and does not move as it grows.
type keyringBuilder struct {
	full    [][]keyRecord
	last    []keyRecord
	n       int
	names   pool // by place in text
	text    []byte
	holders pool // by number
	whose   []byte
}

type keyRecord struct {
	part   [KeyPart]byte
	holder uint32
	line   uint32 // of the file
}

const recordsABlock = 1 << 13

func newKeyringBuilder(keys int) *keyringBuilder {
	return &keyringBuilder{text: []byte{0}, last: make([]keyRecord, 0, min(keys, recordsABlock))}
}

// add takes a key that a line of the file names.
func (b *keyringBuilder) add(part [KeyPart]byte, holder, line uint32) {
	if len(b.last) == cap(b.last) {
		if len(b.last) > 0 {
			b.full = append(b.full, b.last)
		}
		b.last = make([]keyRecord, 0, recordsABlock)
	}
	b.last = append(b.last, keyRecord{part, holder, line})
	b.n++
}

// holder returns the number of a holder, of whom one alone is kept.
func (b *keyringBuilder) holder(owner, tenant, plan []byte) uint32 {
	var h [holderSize]byte
	for i, name := range [3][]byte{owner, tenant, plan} {
		binary.LittleEndian.PutUint32(h[4*i:], b.name(name))
	}
	sum := b.holders.sum(h[:])
	at, ok := b.holders.find(sum, func(at uint32) bool { return bytes.Equal(b.whose[holderSize*at:][:holderSize], h[:]) })
	if !ok {
		at = uint32(len(b.whose) / holderSize)
		b.whose = append(b.whose, h[:]...)
		b.holders.add(sum, at)
	}
	return at
}

// name returns the place of a name of at most longestOwner bytes.
func (b *keyringBuilder) name(name []byte) uint32 {
	if len(name) == 0 {
		return 0
	}
	sum := b.names.sum(name)
	at, ok := b.names.find(sum, func(at uint32) bool { return bytes.Equal(b.named(at), name) })
	if !ok {
		at = uint32(len(b.text))
		b.text = append(append(b.text, byte(len(name))), name...)
		b.names.add(sum, at)
	}
	return at
}

func (b *keyringBuilder) named(at uint32) []byte { return b.text[at+1:][:b.text[at]] }

// ring returns the Keyring of all keys. If one is there twice, there is none,
// and the lines that name it are told: those of the first that is repeated.
func (b *keyringBuilder) ring() (k *Keyring, first, again uint32) {
	k = layKeyring(b.n, len(b.whose)/holderSize, len(b.text), directoryBits(b.n))
	k.block = make([]byte, k.size(len(b.text)))
	for i, v := range []int{keyringMagic, k.keys, k.holders, len(b.text), int(k.bits)} {
		binary.LittleEndian.PutUint32(k.block[4*i:], uint32(v))
	}
	copy(k.block[k.whose:], b.whose)
	copy(k.block[k.namesAt:], b.text)
	lines := b.place(k)
	for i := range k.keys - 1 {
		if bytes.Equal(k.part(i), k.part(i+1)) && (again == 0 || max(lines[i], lines[i+1]) < again) {
			first, again = min(lines[i], lines[i+1]), max(lines[i], lines[i+1])
		}
	}
	if again > 0 {
		return nil, first, again
	}
	return k, 0, 0
}

// place puts the keys into k, those that begin alike into one drawer, and each
// drawer in order. It returns each key's line.
func (b *keyringBuilder) place(k *Keyring) []uint32 {
	next := make([]uint32, 1<<k.bits+1) // where the next key of a drawer goes
	for r := range b.records {
		next[r.drawer(k)+1]++
	}
	for i := range next[1:] {
		next[i+1] += next[i]
	}
	for i, at := range next {
		binary.LittleEndian.PutUint32(k.block[keyringHead+4*i:], at)
	}
	lines := make([]uint32, k.keys)
	for r := range b.records {
		d := r.drawer(k)
		at := int(next[d])
		next[d]++
		copy(k.part(at), r.part[:])
		binary.LittleEndian.PutUint32(k.block[k.refs+4*at:], r.holder)
		lines[at] = r.line
	}
	s := drawer{k: k, lines: lines}
	for i := range 1 << k.bits {
		s.from, s.to = int(k.number(keyringHead, i)), int(k.number(keyringHead, i+1))
		if s.to-s.from > 1 {
			sort.Sort(&s)
		}
	}
	return lines
}

func (b *keyringBuilder) records(yield func(*keyRecord) bool) {
	for _, block := range append(b.full, b.last) {
		for i := range block {
			if !yield(&block[i]) {
				return
			}
		}
	}
}

func (r *keyRecord) drawer(k *Keyring) int {
	return int(binary.BigEndian.Uint64(r.part[:]) >> (64 - k.bits))
}

func (k *Keyring) part(i int) []byte { return k.block[k.parts+KeyPart*i:][:KeyPart] }

// drawer is some keys of a Keyring that is being made, to be sorted.
type drawer struct {
	k        *Keyring
	lines    []uint32
	from, to int
}

func (d *drawer) Len() int { return d.to - d.from }

func (d *drawer) Less(i, j int) bool {
	return bytes.Compare(d.k.part(d.from+i), d.k.part(d.from+j)) < 0
}

func (d *drawer) Swap(i, j int) {
	i, j = d.from+i, d.from+j
	var part [KeyPart]byte
	copy(part[:], d.k.part(i))
	copy(d.k.part(i), d.k.part(j))
	copy(d.k.part(j), part[:])
	a, b := d.k.number(d.k.refs, i), d.k.number(d.k.refs, j)
	binary.LittleEndian.PutUint32(d.k.block[d.k.refs+4*i:], b)
	binary.LittleEndian.PutUint32(d.k.block[d.k.refs+4*j:], a)
	d.lines[i], d.lines[j] = d.lines[j], d.lines[i]
}

// pool finds what was put into a keyringBuilder before. A place has a number
// plus 1, 0 if it is free, and above it 32 bits of the sum: what is not the same
// is seldom looked at.
type pool struct {
	slots []uint64
	n     int
	seed  maphash.Seed
}

func (p *pool) sum(b []byte) uint32 {
	if p.slots == nil {
		p.seed, p.slots = maphash.MakeSeed(), make([]uint64, 64)
	}
	return uint32(maphash.Bytes(p.seed, b))
}

// find looks among those of one sum for the one that is the same.
func (p *pool) find(sum uint32, same func(at uint32) bool) (at uint32, ok bool) {
	for i := sum; ; i++ {
		slot := p.slots[i&uint32(len(p.slots)-1)]
		if slot == 0 {
			return 0, false
		}
		if uint32(slot>>32) == sum && same(uint32(slot)-1) {
			return uint32(slot) - 1, true
		}
	}
}

func (p *pool) add(sum, at uint32) {
	if p.n++; 3*p.n > 2*len(p.slots) {
		old := p.slots
		p.slots = make([]uint64, 2*len(old))
		for _, slot := range old {
			if slot != 0 {
				p.put(slot)
			}
		}
	}
	p.put(uint64(sum)<<32 | uint64(at+1))
}

func (p *pool) put(slot uint64) {
	for i := uint32(slot >> 32); ; i++ {
		if s := &p.slots[i&uint32(len(p.slots)-1)]; *s == 0 {
			*s = slot
			return
		}
	}
}
