package limit

import "encoding/binary"

// Log is a sliding log: the moment of each admission of the last window. Of any
// half-open window (t−window, t] it admits at most N. One that was admitted
// exactly a window ago no longer counts, or, unless it is the newest, up to a
// step of the grid later: 1 to 2 ms of a minute. The zero value is empty. A log
// takes 36 bytes and 2 an admission, at most N.
type Log struct {
	grid
	ring []byte // a place of 2 bytes an admission, oldest at head
	head int
	n    int
}

const (
	logSize = headSize + 2 // of a record, without its ring
	logMask = 1<<15 - 1    // how many are in it
)

// slot returns where the i-th oldest admission is in the ring.
func (g *Log) slot(i int) []byte {
	at := 2 * (g.head + i)
	if at >= len(g.ring) {
		at -= len(g.ring)
	}
	return g.ring[at : at+2]
}

// at returns the moment of the i-th oldest admission.
func (g *Log) at(i int) Ticks { return g.moment(binary.LittleEndian.Uint16(g.slot(i))) }

func (g *Log) put(i int, moment Ticks) { binary.LittleEndian.PutUint16(g.slot(i), g.place(moment)) }

// expire forgets what has left the window.
func (g *Log) expire(now Ticks, l *Limit) {
	if g.expired(now, l.window) {
		return
	}
	for g.n > 0 && Until(g.at(0)+l.window, now) == 0 {
		g.drop()
	}
	g.denied = g.denied && g.n > 0
}

// drop forgets the oldest.
func (g *Log) drop() {
	if g.head++; 2*g.head == len(g.ring) {
		g.head = 0
	}
	g.n--
}

func (g *Log) wait(now Ticks, l *Limit) Ticks {
	g.expire(now, l)
	return g.until(now, l, l.most)
}

// until returns when less than n will be left.
func (g *Log) until(now Ticks, l *Limit, n int64) Ticks {
	// After a limit was lowered more than one has to leave.
	if over := g.n - int(n); over >= 0 {
		return Until(g.at(over)+l.window, now)
	}
	return 0
}

// charge notes now. Where the log is full, which only a refused request meets,
// the oldest makes room: whether a request fits is decided by the last N.
func (g *Log) charge(now Ticks, l *Limit) {
	g.expire(now, l)
	for int64(g.n) >= l.most {
		g.drop()
	}
	if 2*g.n == len(g.ring) {
		g.grow(2 * max(min(max(4, 2*g.n), int(l.most)), g.n+1))
	}
	if g.n > 0 {
		// Callers read the clock before they get here: keep the order.
		now += Until(g.newest, now)
	}
	g.fit(now, l)
	g.newest = now
	g.put(g.n, now)
	g.n++
	g.note(l)
}

// fit chooses the grid of l's window, or a coarser one where the log reaches
// further back from newest.
func (g *Log) fit(newest Ticks, l *Limit) {
	span := l.window
	if g.n > 0 {
		span = max(span, newest-g.at(0))
	}
	to := *g
	if to.shift = shiftFor(span); to.shift == g.shift {
		return
	}
	for i := range g.n {
		to.put(i, g.at(i))
	}
	g.shift = to.shift
}

// note keeps what the table asks for.
func (g *Log) note(l *Limit) {
	g.lasts(l.window)
	g.share = float32(g.n) / float32(l.most)
}

// giveBack forgets the newest: what it gives lasts as long as it can. What a
// lowered limit is exceeded by is forgotten on top, lest the gift vanish in it.
func (g *Log) giveBack(now Ticks, l *Limit, n int64) int64 {
	g.expire(now, l)
	g.n = int(min(int64(g.n), l.most))
	n = min(n, int64(g.n))
	g.n -= int(n)
	if g.n > 0 {
		newest := g.at(g.n - 1)
		g.fit(g.newest, l)
		g.newest = newest
	}
	g.denied = false
	g.note(l)
	return n
}

// grow moves the log into a larger ring of so many bytes.
func (g *Log) grow(size int) { g.move(make([]byte, size)) }

func (g *Log) move(ring []byte) {
	for i := range g.n {
		copy(ring[2*i:], g.slot(i))
	}
	g.ring, g.head = ring, 0
}

func (g *Log) answer(now Ticks, l *Limit) Answer {
	a := Answer{Wait: g.wait(now, l), Remaining: max(0, l.quota-int64(g.n)), Over: int64(g.n) > l.quota}
	if a.Under = a.Wait; l.quota != l.most {
		a.Under = g.until(now, l, l.quota)
	}
	if g.n > 0 {
		a.Reset = Until(g.newest+l.window, now)
	}
	return a
}

// room returns how large a record has to be for one more request.
func (g *Log) room(now Ticks, l *Limit) int {
	g.expire(now, l)
	return logSize + 2*min(g.n+1, int(l.most))
}

func (g *Log) load(r record) {
	g.n = int(g.grid.load(r) & logMask)
	g.head = int(binary.LittleEndian.Uint16(r[headSize:]))
	g.ring = r[logSize : len(r)&^1]
}

func (g *Log) save(r record) {
	if ring := r[logSize:]; len(g.ring) == 0 || &g.ring[0] != &ring[0] {
		g.move(ring[:len(ring)&^1])
	}
	if g.n == 0 {
		g.share = 0
	}
	g.grid.save(r, uint32(g.n))
	binary.LittleEndian.PutUint16(r[headSize:], uint16(g.head))
}
