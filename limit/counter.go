package limit

import (
	"encoding/binary"
	"math"
)

// groups is how many groups a Counter keeps. A group spans at most
// window/(groups-1); as groups that hold anything begin at least that far
// apart, this many always suffice.
const groups = 16

// Counter is a sliding counter: admissions in at most 16 groups, each counted
// whole until its newest member has left the window. It never admits more than
// N in any half-open window (t−window, t]. Its error is on the strict side: an
// admission may count for up to window/15 and a step of the grid longer than in a
// Log, so a client that asks without pause gets at least 15/16 of N a window.
//
// The textbook's counter keeps two windows of the clock and estimates: 3 now and
// 5 in the window before are, 15 s into a minute, 3 + 5 × 75 % = 6.75. That is
// right for requests that come evenly, and admits almost 2·N in a window when
// they come in bursts; N in any window is what a limit promises here, so this one
// counts instead. TestTextbookCounter compares the two. The zero value is empty.
// A counter takes 32 bytes, and 3 to 6 a group as its largest count needs 1, 2 or
// 4 bytes: at most 128.
type Counter struct {
	grid
	last  [groups]uint16 // place of the newest member of each group, oldest group first
	count [groups]uint32
	first uint16 // place of the oldest member of the newest group
	n     int    // groups
	sum   int64  // of all counts
}

func (c *Counter) expire(now Ticks, l *Limit) {
	if c.expired(now, l.window) {
		return
	}
	gone := 0
	for gone < c.n && Until(c.moment(c.last[gone])+l.window, now) == 0 {
		c.sum -= int64(c.count[gone])
		gone++
	}
	if gone > 0 {
		copy(c.last[:], c.last[gone:c.n])
		copy(c.count[:], c.count[gone:c.n])
		c.n -= gone
	}
	c.denied = c.denied && c.n > 0
}

func (c *Counter) wait(now Ticks, l *Limit) Ticks {
	c.expire(now, l)
	return c.until(now, l, l.most)
}

// until returns when less than n will be counted.
func (c *Counter) until(now Ticks, l *Limit, n int64) Ticks {
	left, group := c.sum, 0
	for ; left >= n && group < c.n; group++ {
		left -= int64(c.count[group])
	}
	if group == 0 {
		return 0
	}
	return Until(c.moment(c.last[group-1])+l.window, now)
}

func (c *Counter) charge(now Ticks, l *Limit) {
	c.expire(now, l)
	fresh := c.opens(now, l)
	if c.n > 0 {
		now += Until(c.newest, now)
	}
	c.fit(now, l)
	c.newest = now
	if fresh {
		c.first, c.count[c.n] = c.place(now), 0
		c.n++
	}
	newest := c.n - 1
	c.last[newest] = c.place(now)
	if c.count[newest] < math.MaxUint32 { // refused requests may count without end
		c.count[newest]++
		c.sum++
	}
	c.lasts(l.window)
	c.note(l)
}

// opens reports whether a request at now begins a group.
func (c *Counter) opens(now Ticks, l *Limit) bool {
	if c.n == 0 {
		return true
	}
	span := (l.window + groups - 2) / (groups - 1)
	age := now - c.moment(c.first)
	return age >= span && int64(age) >= 0 && c.n < groups
}

// fit chooses the grid of l's window, or a coarser one where the counter reaches
// further back from newest.
func (c *Counter) fit(newest Ticks, l *Limit) {
	span := l.window
	if c.n > 0 {
		span = max(span, newest-c.moment(c.last[0]), newest-c.moment(c.first))
	}
	to := c.grid
	if to.shift = shiftFor(span); to.shift == c.shift {
		return
	}
	for i := range c.n {
		c.last[i] = to.place(c.moment(c.last[i]))
	}
	c.first = to.place(c.moment(c.first))
	c.shift = to.shift
}

func (c *Counter) note(l *Limit) { c.share = float32(c.sum) / float32(l.most) }

// giveBack takes from the newest group first: what it gives lasts as long as
// it can. What is counted beyond the limit, refused requests or more than a
// lowered limit, is taken on top, lest the gift vanish in it.
func (c *Counter) giveBack(now Ticks, l *Limit, n int64) int64 {
	c.expire(now, l)
	excess := max(0, c.sum-l.most)
	take := n + excess
	for i := c.n - 1; i >= 0 && take > 0; i-- {
		part := min(take, int64(c.count[i]))
		c.count[i] -= uint32(part)
		c.sum -= part
		take -= part
	}
	c.denied = false
	c.note(l)
	return min(n, n+excess-take)
}

func (c *Counter) answer(now Ticks, l *Limit) Answer {
	a := Answer{Wait: c.wait(now, l), Remaining: max(0, l.quota-c.sum), Over: c.sum > l.quota}
	if a.Under = a.Wait; l.quota != l.most {
		a.Under = c.until(now, l, l.quota)
	}
	if c.n > 0 {
		a.Reset = Until(c.newest+l.window, now)
	}
	return a
}

// A counter's own bits of a record: places of all groups but the newest follow
// the head, then all counts, each in 1<<width bytes.
const (
	firstMask = 1<<16 - 1
	countsAt  = 16
	widthAt   = 21
)

// width returns in how many bytes all counts fit, as a power of two, if the
// newest had more to count.
func (c *Counter) width(more uint64) int {
	var all uint64
	for _, n := range c.count[:c.n] {
		all |= uint64(n)
	}
	if c.n > 0 {
		all |= uint64(c.count[c.n-1]) + more
	}
	switch {
	case all < 1<<8:
		return 0
	case all < 1<<16:
		return 1
	}
	return 2
}

// room returns how large a record has to be for one more request.
func (c *Counter) room(now Ticks, l *Limit) int {
	c.expire(now, l)
	if c.opens(now, l) {
		return headSize + 2*c.n + (c.n+1)<<c.width(0)
	}
	return headSize + 2*(c.n-1) + c.n<<c.width(1)
}

func (c *Counter) load(r record) {
	own := c.grid.load(r)
	c.first, c.n = uint16(own&firstMask), int(own>>countsAt&31)
	width := own >> widthAt & 3
	b := r[headSize:]
	for i := range c.n - 1 {
		c.last[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	c.sum = 0
	if c.n == 0 {
		return
	}
	c.last[c.n-1] = c.place(c.newest)
	b = b[2*(c.n-1):]
	for i := range c.n {
		switch width {
		case 0:
			c.count[i] = uint32(b[i])
		case 1:
			c.count[i] = uint32(binary.LittleEndian.Uint16(b[2*i:]))
		default:
			c.count[i] = binary.LittleEndian.Uint32(b[4*i:])
		}
		c.sum += int64(c.count[i])
	}
}

func (c *Counter) save(r record) {
	if c.n == 0 {
		c.share = 0
	}
	width := c.width(0)
	c.grid.save(r, uint32(c.first)|uint32(c.n)<<countsAt|uint32(width)<<widthAt)
	b := r[headSize:]
	for i := range c.n - 1 {
		binary.LittleEndian.PutUint16(b[2*i:], c.last[i])
	}
	b = b[2*max(0, c.n-1):]
	for i, n := range c.count[:c.n] {
		switch width {
		case 0:
			b[i] = uint8(n)
		case 1:
			binary.LittleEndian.PutUint16(b[2*i:], uint16(n))
		default:
			binary.LittleEndian.PutUint32(b[4*i:], n)
		}
	}
}
