package limit

import "math"

// groups is how many groups a Counter keeps. A group spans at most
// window/(groups-1); as groups that hold anything begin at least that far
// apart, this many always suffice.
const groups = 16

// Counter is a sliding counter: admissions in at most 16 groups, each counted
// whole until its newest member has left the window. It never admits more than
// N in any half-open window (t−window, t]. Its error is on the strict side: an
// admission may count for up to window/15 longer than in a Log, so a client
// that asks without pause gets at least 15/16 of N a window.
//
// The textbook's counter keeps two windows of the clock and estimates: 3 now and
// 5 in the window before are, 15 s into a minute, 3 + 5 × 75 % = 6.75. That is
// right for requests that come evenly, and admits almost 2·N in a window when
// they come in bursts; N in any window is what a limit promises here, so this one
// counts instead. TestTextbookCounter compares the two. The zero value is empty;
// the size is fixed.
type Counter struct {
	last  [groups]Ticks // newest member of each group
	count [groups]uint32
	first Ticks // oldest member of the newest group
	head  uint8 // oldest group
	n     uint8

	denied bool // it has refused since it was last empty
	share  float32
	free   Ticks
}

func (c *Counter) at(i int) int { return (int(c.head) + i) % groups }

func (c *Counter) expire(now Ticks, l *Limit) {
	for c.n > 0 && Until(c.last[c.head]+l.window, now) == 0 {
		c.head = (c.head + 1) % groups
		c.n--
	}
	c.denied = c.denied && c.n > 0
}

func (c *Counter) total() (sum int64) {
	for i := range int(c.n) {
		sum += int64(c.count[c.at(i)])
	}
	return sum
}

func (c *Counter) wait(now Ticks, l *Limit) Ticks {
	c.expire(now, l)
	return c.until(now, l, l.most)
}

// until returns when less than n will be counted.
func (c *Counter) until(now Ticks, l *Limit, n int64) Ticks {
	left, group := c.total(), 0
	for ; left >= n && group < int(c.n); group++ {
		left -= int64(c.count[c.at(group)])
	}
	if group == 0 {
		return 0
	}
	return Until(c.last[c.at(group-1)]+l.window, now)
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
	if c.count[newest] < math.MaxUint32 { // refused requests may count without end
		c.count[newest]++
	}
	c.free = c.last[newest] + l.window
	c.note(l)
}

func (c *Counter) note(l *Limit) { c.share = float32(c.total()) / float32(l.most) }

func (c *Counter) deny() { c.denied = true }

// giveBack takes from the newest group first: what it gives lasts as long as
// it can. What is counted beyond the limit, refused requests or more than a
// lowered limit, is taken on top, lest the gift vanish in it.
func (c *Counter) giveBack(now Ticks, l *Limit, n int64) int64 {
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

func (c *Counter) answer(now Ticks, l *Limit) Answer {
	a := Answer{Wait: c.wait(now, l), Under: c.until(now, l, l.quota)}
	total := c.total()
	a.Remaining, a.Over = max(0, l.quota-total), total > l.quota
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

func (c *Counter) firm(now Ticks) bool { return c.used(now) > 0 && (c.denied || c.share >= 1) }

func (c *Counter) weight() int { return 0 }
