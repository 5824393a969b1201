package limit

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// grid is what Log and Counter have in common: moments of at most one window,
// of which the newest is kept as it is and each older one as the low 16 bits of
// its number on a grid of 1<<shift ticks, rounded up but not beyond the newest.
// So an older moment may seem later by less than a step, which is between 1/65000
// and 1/32000 of the window, and nothing for windows up to 1 µs: a request may
// count for that much longer, never shorter.
type grid struct {
	newest Ticks
	share  float32 // of the limit, when last charged
	life   uint16  // steps from the newest until it leaves the window, as it was when last charged
	shift  uint8
	denied bool // it has refused since it was last empty

	now, window Ticks // that expired is for; not kept
}

// expired reports whether what has left the window by now is forgotten already: a
// decision asks several times. The window 0 stands for none.
func (g *grid) expired(now, window Ticks) bool {
	if g.now == now && g.window == window {
		return true
	}
	g.now, g.window = now, window
	return false
}

// shiftFor returns the shift of the finest grid that spans so many ticks and a
// little more, up to two years.
func shiftFor(span Ticks) uint8 {
	return uint8(max(0, bits.Len64(span+span>>8+1)-16))
}

// place returns the place on the grid of a moment up to the newest.
func (g *grid) place(moment Ticks) uint16 { return uint16(g.step(moment)) }

// step returns the number of the first step that is not before moment.
func (g *grid) step(moment Ticks) Ticks {
	shift := g.shift & 63 // it is less: the compiler does not know
	return (moment + 1<<shift - 1) >> shift
}

// moment returns what was put at a place.
func (g *grid) moment(place uint16) Ticks {
	newest := g.step(g.newest)
	m := (newest - Ticks(uint16(newest)-place)) << (g.shift & 63)
	if int64(m-g.newest) > 0 {
		return g.newest
	}
	return m
}

// lasts notes how long the newest counts.
func (g *grid) lasts(window Ticks) {
	g.life = uint16(min(math.MaxUint16, (window+1<<g.shift-1)>>g.shift))
}

// record is how a Log or a Counter of a packed table is kept, little endian:
//
//	 0  key
//	16  newest moment
//	24  share, as a float32; 0: worth nothing
//	28  bit 31: denied; 23 to 28: shift; the rest is the kind's own
//	32  life
//	34  the kind's own
type record []byte

const (
	headSize   = 34
	shiftAt    = 23
	shiftMask  = 1<<6 - 1
	deniedMask = 1 << 31
)

func (r record) key() Key {
	return Key{binary.LittleEndian.Uint64(r), binary.LittleEndian.Uint64(r[8:])}
}

func (r record) name(k Key) {
	binary.LittleEndian.PutUint64(r, k.hi)
	binary.LittleEndian.PutUint64(r[8:], k.lo)
}

// load returns the grid of r and the bits that are its kind's own.
func (g *grid) load(r record) (own uint32) {
	_ = r[headSize-1]
	own = binary.LittleEndian.Uint32(r[28:])
	g.newest = binary.LittleEndian.Uint64(r[16:])
	g.share = math.Float32frombits(binary.LittleEndian.Uint32(r[24:]))
	g.life = binary.LittleEndian.Uint16(r[32:])
	g.shift, g.denied = uint8(own>>shiftAt&shiftMask), own&deniedMask != 0
	g.window = 0
	return own &^ (deniedMask | shiftMask<<shiftAt)
}

func (g *grid) save(r record, own uint32) {
	_ = r[headSize-1]
	if own |= uint32(g.shift) << shiftAt; g.denied {
		own |= deniedMask
	}
	binary.LittleEndian.PutUint64(r[16:], g.newest)
	binary.LittleEndian.PutUint32(r[24:], math.Float32bits(g.share))
	binary.LittleEndian.PutUint32(r[28:], own)
	binary.LittleEndian.PutUint16(r[32:], g.life)
}

// used returns the share of the limit that r has in use, 0 where r is worth nothing.
func (r record) used(now Ticks) float32 {
	used, _ := r.standing(now)
	return used
}

// standing returns used, and whether r is firm.
func (r record) standing(now Ticks) (used float32, firm bool) {
	_ = r[headSize-1]
	own := binary.LittleEndian.Uint32(r[28:])
	life := Ticks(binary.LittleEndian.Uint16(r[32:])) << (own >> shiftAt & shiftMask)
	if Until(binary.LittleEndian.Uint64(r[16:])+life, now) > 0 {
		used = math.Float32frombits(binary.LittleEndian.Uint32(r[24:]))
	}
	return used, used > 0 && (own&deniedMask != 0 || used >= 1)
}

func (g *grid) deny() { g.denied = true }
