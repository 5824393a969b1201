package limit

import (
	"encoding/binary"
	"math"
)

// How each algorithm's state is written down: not as it is kept, but what it
// means, so that what is kept may change.

func (b *Bucket) appendTo(out []byte, now Ticks) []byte {
	out = binary.AppendUvarint(out, b.debt(now))
	out = appendFloat(appendFloat(out, b.cost), max(b.burst, -b.burst))
	return appendBool(out, b.burst < 0)
}

func (b *Bucket) readFrom(d *decoder, now Ticks) {
	*b = Bucket{tat: now + d.number(), cost: d.float(), burst: d.float()}
	if d.bool() {
		b.burst = -b.burst
	}
}

// appendTo appends what grids have in common.
func (g *grid) appendTo(out []byte, now Ticks) []byte {
	out = binary.AppendUvarint(appendMoment(out, g.newest, now), g.lifetime())
	return appendBool(appendFloat(out, g.share), g.denied)
}

// lifetime returns how long the newest counts.
func (g *grid) lifetime() Ticks { return Ticks(g.life) << (g.shift & 63) }

// readFrom reads them, and chooses a grid that reaches back to oldest.
func (g *grid) readFrom(d *decoder, oldest, now Ticks) {
	*g = grid{newest: d.moment(now)}
	life := min(d.number(), 2*FromDuration(year))
	g.share, g.denied = d.float(), d.bool()
	g.shift = shiftFor(max(life, min(Until(g.newest, oldest), 2*FromDuration(year))))
	g.lasts(life)
}

// spent returns how much of the limit is in use, 0 where that is worth nothing.
func (g *grid) spent(now Ticks) float32 {
	if Until(g.newest+g.lifetime(), now) == 0 {
		return 0
	}
	return g.share
}

func (g *Log) appendTo(out []byte, now Ticks) []byte {
	out = binary.AppendUvarint(out, uint64(g.n))
	for i := range g.n {
		out = appendMoment(out, g.at(i), now)
	}
	return g.grid.appendTo(out, now)
}

func (g *Log) readFrom(d *decoder, now Ticks) {
	moments := make([]Ticks, d.count(logMask))
	for i := range moments {
		moments[i] = d.moment(now)
	}
	*g = Log{n: len(moments), ring: make([]byte, 2*len(moments))}
	oldest := now
	if g.n > 0 {
		oldest = moments[0]
	}
	g.grid.readFrom(d, oldest, now)
	for i, m := range moments {
		g.put(i, m)
	}
}

func (g *Log) size() int { return logSize + 2*g.n }

func (c *Counter) appendTo(out []byte, now Ticks) []byte {
	out = binary.AppendUvarint(out, uint64(c.n))
	for i := range c.n {
		out = appendMoment(out, c.moment(c.last[i]), now)
		out = binary.AppendUvarint(out, uint64(c.count[i]))
	}
	return c.grid.appendTo(appendMoment(out, c.moment(c.first), now), now)
}

func (c *Counter) readFrom(d *decoder, now Ticks) {
	*c = Counter{n: d.count(groups)}
	var last [groups]Ticks
	for i := range c.n {
		last[i], c.count[i] = d.moment(now), uint32(min(d.number(), math.MaxUint32))
		c.sum += int64(c.count[i])
	}
	first := d.moment(now)
	oldest := first
	if c.n > 1 {
		oldest -= Until(first, last[0]) // the earlier of the two
	}
	c.grid.readFrom(d, oldest, now)
	for i := range c.n {
		c.last[i] = c.place(last[i])
	}
	c.first = c.place(first)
}

func (c *Counter) size() int { return headSize + 2*max(0, c.n-1) + c.n<<c.width(0) }

func (t *Tally) appendTo(out []byte, now Ticks) []byte {
	out = binary.AppendUvarint(appendMoment(out, t.end, now), uint64(max(0, t.count)))
	return appendBool(appendFloat(out, t.share), t.denied)
}

func (t *Tally) readFrom(d *decoder, now Ticks) {
	*t = Tally{end: d.moment(now), count: int64(min(d.number(), math.MaxInt64)), share: d.float(), denied: d.bool()}
}

func (h *held) appendTo(out []byte, now Ticks) []byte {
	n := len(out)
	out = append(out, 0)
	for i := range h.members {
		if h.alive(i, now) {
			out[n]++
			out = appendMoment(h.members[i].Append(out), h.ends[i], now)
		}
	}
	return out
}

func (h *held) readFrom(d *decoder, now Ticks) {
	*h = held{}
	for i := range d.count(MaxHeld) {
		h.members[i] = d.key()
		h.ends[i] = max(1, d.moment(now)) // 0 is no end
	}
}

// appendMoment appends how far m is from now.
func appendMoment(b []byte, m, now Ticks) []byte { return binary.AppendVarint(b, int64(m-now)) }

func appendFloat(b []byte, f float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// decoder reads what was appended. After a fault it gives zeros.
type decoder struct {
	rest []byte
	bad  bool
}

var zeros [16]byte

// take returns n bytes, at most 16.
func (d *decoder) take(n int) []byte {
	if d.bad || n > len(d.rest) {
		d.bad = true
		return zeros[:n]
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte() byte   { return d.take(1)[0] }
func (d *decoder) bool() bool   { return d.byte() != 0 }
func (d *decoder) slot() uint16 { return binary.LittleEndian.Uint16(d.take(2)) }

func (d *decoder) key() Key {
	b := d.take(16)
	return Key{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

func (d *decoder) float() float32 {
	f := math.Float32frombits(binary.LittleEndian.Uint32(d.take(4)))
	if !(f >= 0 && f <= math.MaxFloat32) {
		d.bad = true
		return 0
	}
	return f
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.rest)
	if d.bad || n <= 0 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// count reads how many follow, at most most.
func (d *decoder) count(most int) int {
	n := d.number()
	if n > uint64(min(most, len(d.rest))) {
		d.bad = true
		return 0
	}
	return int(n)
}

// moment reads one as it is seen from now.
func (d *decoder) moment(now Ticks) Ticks {
	v, n := binary.Varint(d.rest)
	if d.bad || n <= 0 {
		d.bad = true
		return now
	}
	d.rest = d.rest[n:]
	return now + Ticks(v)
}
