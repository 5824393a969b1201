package limit

import "time"

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
	if lent && int32(t.At-n.at) < 0 {
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

// Question returns what to ask the fleet with, of c which has Asks: a Report of
// nothing.
func (c *Charge) Question(now Ticks) Report {
	r := Report{Key: c.Key, Limit: c.Limit}
	r.cut(now)
	return r
}

// cut says which periods r is of.
func (r *Report) cut(now Ticks) {
	if c := r.Limit.calendar; c != nil {
		r.Period, r.Next = c.ends(now)
	}
}

// describe returns a report of nothing.
func (n *Line) describe(now Ticks, k Key, l *Limit) Report {
	r := Report{Key: k, Limit: l}
	r.cut(now)
	n.measure(now)
	r.Demand = float64(n.demand)
	if n.is(known) && Until(n.answered+lease, now) > 0 {
		r.Share = max(0, float64(n.share)-l.fleet.base())
	}
	return r
}

// Report is what this host has admitted of one bucket key since it last said so.
type Report struct {
	Key     Key
	Limit   *Limit
	Spent   int64
	Period  time.Time // end of the period it belongs to; zero unless Limit has periods
	Next    time.Time // end of the period after that
	Presses bool      // it wants a larger share
	Share   float64   // lent to it now
	Demand  float64   // requests a second, refused ones too
}

// queue is a list of keys that have something to report, oldest first.
type queue []due

type due struct {
	key   Key
	limit *Limit
}

// note lists n, the state of c, for the next report.
func (sh *shard) note(now Ticks, c *Charge, n *Line) {
	if n.spent == 0 {
		return
	}
	if !n.is(listed) {
		n.set(listed, true)
		sh.due = append(sh.due, due{c.Key, c.Limit})
	}
	if !n.is(pressed) && n.presses(now, c.Limit) {
		n.set(pressed, true)
		sh.rush = append(sh.rush, due{c.Key, c.Limit})
	}
}

// patience is how long what was admitted may stay unreported while there is
// room in the calls.
const patience = 1e9 * ticksPerNano

// Reports appends what is to be reported at now to to, and takes it for
// reported: all keys that press, and of others up to calm that wait for a second
// already. What is reported must reach the fleet once: Report it until it has,
// then Answer.
func (s *Store) Reports(now Ticks, to []Report, calm int) []Report {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		to = sh.rushing(now, to)
		sh.mu.Unlock()
	}
	for i := range s.shards {
		sh := &s.shards[(s.turn+i)%len(s.shards)]
		sh.mu.Lock()
		before := len(to)
		to = sh.waiting(now, to, calm)
		calm -= len(to) - before
		sh.mu.Unlock()
		if calm <= 0 {
			s.turn = (s.turn + i) % len(s.shards)
			break
		}
	}
	return to
}

func (sh *shard) rushing(now Ticks, to []Report) []Report {
	for _, d := range sh.rush {
		if n := sh.lines.find(d.key); n != nil {
			n.set(pressed, false)
			to = n.report(now, d, true, to)
		}
	}
	sh.rush = sh.rush[:0]
	return to
}

func (sh *shard) waiting(now Ticks, to []Report, calm int) []Report {
	i := 0
	for ; i < len(sh.due) && calm > 0; i++ {
		n := sh.lines.find(sh.due[i].key)
		if n == nil {
			continue
		}
		if n.spent > 0 && !n.is(apart) && Until(n.since+patience, now) > 0 {
			break
		}
		n.set(listed, false)
		if before := len(to); n.spent > 0 {
			to = n.report(now, sh.due[i], false, to)
			calm -= len(to) - before
		}
	}
	sh.due = sh.due[:copy(sh.due, sh.due[i:])]
	return to
}

// report appends n's report and takes what is in it for reported.
func (n *Line) report(now Ticks, d due, presses bool, to []Report) []Report {
	n.settle(now, d.limit)
	if n.spent == 0 && !presses || n.is(apart) {
		return to
	}
	n.credit = n.allowed(now, d.limit) - n.spent
	r := n.describe(now, d.key, d.limit)
	r.Spent, r.Presses = int64(n.spent), presses
	if !n.is(known) {
		n.left, n.at, n.answered, n.share = d.limit.most, 0, now-lease, float32(d.limit.fleet.base())
		n.set(known, true)
	}
	n.flight += n.spent
	n.spent = 0
	return append(to, r)
}

// measure brings the demand up to now.
func (n *Line) measure(now Ticks) {
	const memory = 0.5 // seconds
	from := n.since
	if n.is(known) {
		from = n.answered
	}
	passed := float64(max(1, Until(now, from))) / (1e9 * ticksPerNano)
	n.demand += float32((float64(n.asked)/passed - float64(n.demand)) * passed / (passed + memory))
	n.asked = 0
}

// Answer takes up what the fleet says to r, which left at sent.
func (s *Store) Answer(now, sent Ticks, r *Report, t *Told) {
	sh := s.shard(r.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := sh.lines.find(r.Key)
	if n == nil {
		return
	}
	n.flight -= min(n.flight, narrow(r.Spent))
	if n.settle(now, r.Limit); n.is(apart) {
		return
	}
	n.hear(now, sent, r.Limit, t)
	sh.note(now, &Charge{Key: r.Key, Limit: r.Limit}, n)
}
