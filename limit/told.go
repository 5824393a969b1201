package limit

// Told is what the fleet says of one bucket key.
type Told struct {
	Admitted bool    // one request was asked for, fits, and is charged
	Left     int64   // how many more fit
	Share    float64 // of the limit, lent to this host for a second
	Wait     Ticks   // until one more fits; 0: it fits now
	At       uint32  // when it decided, by its own clock in microseconds, the lower half
	Word     string  // by which the charge can be given back; empty: there was none
	Answer   Answer  // how the key stands, where the limit is Exact
}

// Asking reports whether the fleet must be asked to decide charges.
func Asking(charges []Charge) bool {
	for i := range charges {
		if charges[i].Asks {
			return true
		}
	}
	return false
}

// consult decides what c can be decided without the fleet, whose state is st,
// and reports whether it must be asked.
func (c *Charge) consult(now Ticks, st state) bool {
	c.Asks = false
	if l := c.Limit; !c.Shared && l.outage != Share && c.Told == nil && (c.alone || l.fleet.Cut()) {
		c.Down, c.alone, c.Refused = true, false, l.outage == Closed
		c.Answer = Answer{Remaining: l.quota}
		return false
	}
	switch c.Down = false; {
	case c.Shared || c.Told == nil && c.Refused:
	case c.Told != nil:
		c.Refused = !c.Told.Admitted
	case c.alone:
		c.alone = false
		n, old := st.(*Line)
		if !old {
			n = new(Line)
		}
		c.Refused = n.alone(now, c.Limit) <= n.spent
	case c.Limit.scope == Exact:
		c.Asks = true
	case st == nil:
		c.Asks = new(Line).asks(now, c.Limit)
	default:
		c.Asks = st.(*Line).asks(now, c.Limit)
	}
	return c.Asks
}

// Alone decides charges that Take wanted the fleet to decide, which did not
// answer in time: as each limit's Outage says, else by this host's share of what
// is left as far as it knows. What it admits of Lines is reported like the rest;
// what is Exact is counted here, as an n-th of the limit for n hosts.
func (s *Store) Alone(now Ticks, charges []Charge) bool {
	for i := range charges {
		c := &charges[i]
		if c.alone = c.Asks; c.alone && c.Limit.scope == Exact && c.Limit.outage == Share {
			part := c.Limit.Divided(c.Limit.fleet.Hosts())
			c.Limit, c.alone = &part, false
		}
	}
	return s.Take(now, charges)
}

// hear keeps what the fleet told of c, and lists it for the next report: who has
// to ask is short of a share.
func (sh *shard) hear(now Ticks, c *Charge) {
	n := sh.lines.put(c.Key, now)
	if n == nil {
		c.Answer = c.Told.Answer
		return
	}
	n.settle(now, c.Limit)
	n.asked++
	if c.Limit.scope == Exact {
		n.set(denied, false)
		if c.Told.Wait > 0 {
			n.refuse(now + c.Told.Wait)
		}
		c.Answer = c.Told.Answer
		return
	}
	n.learn(now, c.Limit, c.Told)
	c.Answer = n.answer(now, c.Limit)
	if !n.is(pressed) {
		n.set(pressed, true)
		sh.rush = append(sh.rush, due{c.Key, c.Limit})
	}
}

// learn takes up what the fleet says of n's limit at now. What was decided
// before the answer heard last is passed over, for answers overtake each other.
// A question lends no share, and does not make one last longer.
func (n *Line) learn(now Ticks, l *Limit, t *Told) bool {
	lent := n.is(known) && Until(n.answered+lease, now) > 0
	if lent && n.outdated(now, t) {
		return false
	}
	if !lent {
		n.set(known, true)
		n.answered, n.share = now, float32(l.fleet.base())
	}
	n.at, n.left = t.At, t.Left
	if l.cost != 0 {
		n.left -= int64(Until(now, n.answered) / l.cost) // see estimate
	}
	n.credit = l.line(float64(n.share), t.Left-int64(n.spent)-int64(n.flight)) - n.flight
	n.set(denied, false)
	if t.Wait > 0 {
		n.refuse(now + max(t.Wait, n.turn(l)))
	}
	return true
}

// outdated reports whether t was decided before what n heard last, or, in the
// same microsecond, leaves more or refuses for less than that.
func (n *Line) outdated(now Ticks, t *Told) bool {
	d := int32(t.At - n.at)
	return d < 0 || d == 0 && (t.Left > n.left || n.is(denied) && t.Wait < Until(n.until, now))
}

// hear takes up the answer to a report that left at sent, and the share that
// came with it.
func (n *Line) hear(now, sent Ticks, l *Limit, t *Told) {
	if !n.learn(now, l, t) {
		return
	}
	n.answered, n.left = sent, t.Left
	n.share = float32(l.fleet.base() + t.Share)
	n.credit = l.line(float64(n.share), t.Left-int64(n.spent)-int64(n.flight)) - n.flight
	if t.Wait > 0 {
		n.refuse(now + max(t.Wait, n.turn(l)))
	}
}

// refuse refuses until a moment.
func (n *Line) refuse(until Ticks) {
	n.set(denied, true)
	n.until = until
}

// turn returns how long a refused host keeps from asking, beyond what it was
// told to wait, so that those who share what comes back each get their turn and
// refusals cost few calls: as long as the others take for theirs, a tick at most.
func (n *Line) turn(l *Limit) Ticks {
	return uint64(min(float64(l.fleet.tick), float64(l.cost)*(1/float64(n.share)-1)))
}
