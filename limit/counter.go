package limit

// groups is how many groups a Counter keeps. A group spans at most
// window/(groups-1); as groups that hold anything begin at least that far
// apart, this many always suffice.
const groups = 16

// Counter is a sliding counter: admissions in at most 16 groups, each counted
// whole until its newest member has left the window. It never admits more than
// N in any half-open window (t−window, t]. Its error is on the strict side: an
// admission may count for up to window/15 longer than in a Log, so a client
// that asks without pause gets at least 15/16 of N a window. (The usual
// counter, that weights one previous window, admits almost 2·N when requests
// come in bursts.) The zero value is empty; the size is fixed.
type Counter struct {
	last  [groups]Ticks // newest member of each group
	count [groups]uint32
	first Ticks // oldest member of the newest group
	head  uint8 // oldest group
	n     uint8
	share float32
	free  Ticks
}

func (c *Counter) at(i int) int { return (int(c.head) + i) % groups }

func (c *Counter) expire(now Ticks, l *Limit) {
	for c.n > 0 && Until(c.last[c.head]+l.window, now) == 0 {
		c.head = (c.head + 1) % groups
		c.n--
	}
}

func (c *Counter) total() (sum int64) {
	for i := range int(c.n) {
		sum += int64(c.count[c.at(i)])
	}
	return sum
}

func (c *Counter) wait(now Ticks, l *Limit) Ticks {
	c.expire(now, l)
	left := c.total()
	for i := range int(c.n) {
		if left < l.quota {
			if i == 0 {
				return 0
			}
			return Until(c.last[c.at(i-1)]+l.window, now)
		}
		left -= int64(c.count[c.at(i)])
	}
	if c.n == 0 {
		return 0
	}
	return Until(c.last[c.at(int(c.n)-1)]+l.window, now)
}

func (c *Counter) charge(now Ticks, l *Limit) {
	c.expire(now, l)
	span := (l.window + groups - 2) / (groups - 1)
	newest := c.at(int(c.n) + groups - 1)
	switch {
	case c.n > 0 && (now-c.first < span || int64(now-c.first) < 0 || c.n == groups):
		c.last[newest] += Until(now, c.last[newest])
	default:
		newest = c.at(int(c.n))
		c.n++
		c.first, c.last[newest], c.count[newest] = now, now, 0
	}
	c.count[newest]++
	c.free = c.last[newest] + l.window
	c.share = float32(c.total()) / float32(l.quota)
}

func (c *Counter) answer(now Ticks, l *Limit) Answer {
	a := Answer{Wait: c.wait(now, l), Remaining: max(0, l.quota-c.total())}
	if c.n > 0 {
		a.Reset = Until(c.last[c.at(int(c.n)-1)]+l.window, now)
	}
	return a
}

func (c *Counter) used(now Ticks) float32 {
	if c.n == 0 || Until(c.free, now) == 0 {
		return 0
	}
	return c.share
}

func (c *Counter) weight() int { return 0 }
