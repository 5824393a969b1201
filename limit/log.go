package limit

// Log is a sliding log: the moment of each admission of the last window. It is
// exact: of any half-open window (t−window, t] it admits at most N, and one
// that was admitted exactly a window ago no longer counts. The zero value is
// empty. A log takes 8 bytes an admission, at most N.
type Log struct {
	ring  []Ticks // oldest at head
	head  int
	n     int
	free  Ticks   // when the newest leaves the window
	share float32 // of the limit, when last charged
}

// at returns the moment of the i-th oldest admission.
func (g *Log) at(i int) Ticks { return g.ring[(g.head+i)%len(g.ring)] }

// expire forgets what has left the window.
func (g *Log) expire(now Ticks, l *Limit) {
	for g.n > 0 && Until(g.at(0)+l.window, now) == 0 {
		g.head = (g.head + 1) % len(g.ring)
		g.n--
	}
}

func (g *Log) wait(now Ticks, l *Limit) Ticks {
	g.expire(now, l)
	// After a limit was lowered more than one has to leave.
	if over := g.n - int(l.quota); over >= 0 {
		return Until(g.at(over)+l.window, now)
	}
	return 0
}

func (g *Log) charge(now Ticks, l *Limit) {
	g.expire(now, l)
	if g.n == len(g.ring) {
		g.grow(int(l.quota))
	}
	if g.n > 0 {
		// Callers read the clock before they get here: keep the order.
		now += Until(g.at(g.n-1), now)
	}
	g.ring[(g.head+g.n)%len(g.ring)] = now
	g.n++
	g.free = now + l.window
	g.share = float32(g.n) / float32(l.quota)
}

// grow doubles the ring, up to most where that suffices: few clients come near
// their limit.
func (g *Log) grow(most int) {
	size := max(min(max(4, 2*g.n), most), g.n+1)
	ring := make([]Ticks, size)
	for i := range g.n {
		ring[i] = g.at(i)
	}
	g.ring, g.head = ring, 0
}

func (g *Log) answer(now Ticks, l *Limit) Answer {
	a := Answer{Wait: g.wait(now, l), Remaining: max(0, l.quota-int64(g.n))}
	if g.n > 0 {
		a.Reset = Until(g.at(g.n-1)+l.window, now)
	}
	return a
}

func (g *Log) used(now Ticks) float32 {
	if g.n == 0 || Until(g.free, now) == 0 {
		return 0
	}
	return g.share
}

func (g *Log) weight() int { return 8 * len(g.ring) }
