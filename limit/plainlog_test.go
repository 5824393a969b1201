package limit

// plainLog is what Log is held to: a sliding log of whole moments.
type plainLog struct {
	ring   []Ticks // oldest at head
	head   int
	n      int
	free   Ticks   // when the newest leaves the window
	share  float32 // of the limit, when last charged
	denied bool    // it has refused since it was last empty
}

// at returns the moment of the i-th oldest admission.
func (g *plainLog) at(i int) Ticks { return g.ring[(g.head+i)%len(g.ring)] }

// expire forgets what has left the window.
func (g *plainLog) expire(now Ticks, l *Limit) {
	for g.n > 0 && Until(g.at(0)+l.window, now) == 0 {
		g.drop()
	}
	g.denied = g.denied && g.n > 0
}

// drop forgets the oldest.
func (g *plainLog) drop() {
	g.head = (g.head + 1) % len(g.ring)
	g.n--
}

func (g *plainLog) wait(now Ticks, l *Limit) Ticks {
	g.expire(now, l)
	return g.until(now, l, l.most)
}

// until returns when less than n will be left.
func (g *plainLog) until(now Ticks, l *Limit, n int64) Ticks {
	// After a limit was lowered more than one has to leave.
	if over := g.n - int(n); over >= 0 {
		return Until(g.at(over)+l.window, now)
	}
	return 0
}

// charge notes now. Where the log is full, which only a refused request meets,
// the oldest makes room: whether a request fits is decided by the last N.
func (g *plainLog) charge(now Ticks, l *Limit) {
	g.expire(now, l)
	for int64(g.n) >= l.most {
		g.drop()
	}
	if g.n == len(g.ring) {
		g.grow(int(l.most))
	}
	if g.n > 0 {
		// Callers read the clock before they get here: keep the order.
		now += Until(g.at(g.n-1), now)
	}
	g.ring[(g.head+g.n)%len(g.ring)] = now
	g.n++
	g.note(l)
}

// note keeps what the table asks for.
func (g *plainLog) note(l *Limit) {
	if g.n > 0 {
		g.free = g.at(g.n-1) + l.window
	}
	g.share = float32(g.n) / float32(l.most)
}

func (g *plainLog) deny() { g.denied = true }

// giveBack forgets the newest: what it gives lasts as long as it can. What a
// lowered limit is exceeded by is forgotten on top, lest the gift vanish in it.
func (g *plainLog) giveBack(now Ticks, l *Limit, n int64) int64 {
	g.expire(now, l)
	g.n = int(min(int64(g.n), l.most))
	n = min(n, int64(g.n))
	g.n -= int(n)
	g.denied = false
	g.note(l)
	return n
}

// grow doubles the ring, up to most where that suffices: few clients come near
// their limit.
func (g *plainLog) grow(most int) {
	ring := make([]Ticks, g.larger(most))
	for i := range g.n {
		ring[i] = g.at(i)
	}
	g.ring, g.head = ring, 0
}

func (g *plainLog) larger(most int) int { return max(min(max(4, 2*g.n), most), g.n+1) }

// grows returns how many bytes more one more request takes.
func (g *plainLog) grows(l *Limit) int {
	if g.n < len(g.ring) || int64(g.n) >= l.most {
		return 0
	}
	return 8 * (g.larger(int(l.most)) - len(g.ring))
}

func (g *plainLog) answer(now Ticks, l *Limit) Answer {
	a := Answer{
		Wait: g.wait(now, l), Under: g.until(now, l, l.quota),
		Remaining: max(0, l.quota-int64(g.n)), Over: int64(g.n) > l.quota,
	}
	if g.n > 0 {
		a.Reset = Until(g.at(g.n-1)+l.window, now)
	}
	return a
}

func (g *plainLog) used(now Ticks) float32 {
	if g.n == 0 || Until(g.free, now) == 0 {
		return 0
	}
	return g.share
}

func (g *plainLog) firm(now Ticks) bool { return g.used(now) > 0 && (g.denied || g.share >= 1) }
