package limit

import "time"

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
