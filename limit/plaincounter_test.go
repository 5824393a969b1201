package limit

import "math"

// plainCounter is what Counter is held to: its groups one by one, with whole moments.
type plainCounter struct {
	last  [groups]Ticks // newest member of each group
	count [groups]uint32
	first Ticks // oldest member of the newest group
	head  uint8 // oldest group
	n     uint8

	denied bool // it has refused since it was last empty
	share  float32
	free   Ticks
}

func (c *plainCounter) at(i int) int { return (int(c.head) + i) % groups }

func (c *plainCounter) expire(now Ticks, l *Limit) {
	for c.n > 0 && Until(c.last[c.head]+l.window, now) == 0 {
		c.head = (c.head + 1) % groups
		c.n--
	}
	c.denied = c.denied && c.n > 0
}

func (c *plainCounter) total() (sum int64) {
	for i := range int(c.n) {
		sum += int64(c.count[c.at(i)])
	}
	return sum
}

func (c *plainCounter) wait(now Ticks, l *Limit) Ticks {
	c.expire(now, l)
	return c.until(now, l, l.most)
}

// until returns when less than n will be counted.
func (c *plainCounter) until(now Ticks, l *Limit, n int64) Ticks {
	left, group := c.total(), 0
	for ; left >= n && group < int(c.n); group++ {
		left -= int64(c.count[c.at(group)])
	}
	if group == 0 {
		return 0
	}
	return Until(c.last[c.at(group-1)]+l.window, now)
}

func (c *plainCounter) charge(now Ticks, l *Limit) {
	c.expire(now, l)
	span := (l.window + groups - 2) / (groups - 1)
	newest := c.at(int(c.n) + groups - 1)
	switch {
	case c.n > 0 && (now-c.first < span || int64(now-c.first) < 0 || c.n == groups):
		c.last[newest] += Until(now, c.last[newest])
	default:
		if c.n > 0 { // groups stay in order where the clock has stepped back
			now += Until(c.last[newest], now)
		}
		newest = c.at(int(c.n))
		c.n++
		c.first, c.last[newest], c.count[newest] = now, now, 0
	}
	if c.count[newest] < math.MaxUint32 { // refused requests may count without end
		c.count[newest]++
	}
	c.free = c.last[newest] + l.window
	c.note(l)
}

func (c *plainCounter) note(l *Limit) { c.share = float32(c.total()) / float32(l.most) }

func (c *plainCounter) deny() { c.denied = true }

// giveBack takes from the newest group first: what it gives lasts as long as
// it can. What is counted beyond the limit, refused requests or more than a
// lowered limit, is taken on top, lest the gift vanish in it.
func (c *plainCounter) giveBack(now Ticks, l *Limit, n int64) int64 {
	c.expire(now, l)
	excess := max(0, c.total()-l.most)
	take := n + excess
	for i := int(c.n) - 1; i >= 0 && take > 0; i-- {
		part := min(take, int64(c.count[c.at(i)]))
		c.count[c.at(i)] -= uint32(part)
		take -= part
	}
	c.denied = false
	c.note(l)
	return min(n, n+excess-take)
}

func (c *plainCounter) answer(now Ticks, l *Limit) Answer {
	a := Answer{Wait: c.wait(now, l), Under: c.until(now, l, l.quota)}
	total := c.total()
	a.Remaining, a.Over = max(0, l.quota-total), total > l.quota
	if c.n > 0 {
		a.Reset = Until(c.last[c.at(int(c.n)-1)]+l.window, now)
	}
	return a
}

func (c *plainCounter) used(now Ticks) float32 {
	if c.n == 0 || Until(c.free, now) == 0 {
		return 0
	}
	return c.share
}

func (c *plainCounter) firm(now Ticks) bool { return c.used(now) > 0 && (c.denied || c.share >= 1) }
