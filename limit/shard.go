package limit

// find returns the state of c's key, nil if there is none.
func (sh *shard) find(c *Charge) state { return sh.state(c.Key, c.Limit.kind()) }

func (sh *shard) state(k Key, a Algorithm) state {
	switch a {
	case line:
		if s := sh.lines.find(k); s != nil {
			return s
		}
	case SlidingLog:
		if s := sh.logs.find(k); s != nil {
			return s
		}
	case SlidingCounter:
		if s := sh.counters.find(k); s != nil {
			return s
		}
	case FixedWindow, Quota:
		if s := sh.tallies.find(k); s != nil {
			return s
		}
	default:
		if s := sh.buckets.find(k); s != nil {
			return s
		}
	}
	return nil
}

// holds reports whether c can be charged to a state of its own: to st, or to a
// new one where that is nil.
func (sh *shard) holds(now Ticks, c *Charge, st state) (ok bool) {
	if st != nil {
		if c.Limit.kind() != SlidingLog {
			return true
		}
		by := st.(*Log).grows(c.Limit)
		return by == 0 || sh.logs.extends(c.Key, by, now)
	}
	switch c.Limit.kind() {
	case line:
		_, ok = sh.lines.room(c.Key, now)
	case SlidingLog:
		_, ok = sh.logs.room(c.Key, now)
		ok = ok && sh.logs.extends(c.Key, new(Log).grows(c.Limit), now)
	case SlidingCounter:
		_, ok = sh.counters.room(c.Key, now)
	case FixedWindow, Quota:
		_, ok = sh.tallies.room(c.Key, now)
	default:
		_, ok = sh.buckets.room(c.Key, now)
	}
	return ok
}

// charge charges c, unless there is no room for its state.
func (sh *shard) charge(now Ticks, c *Charge) bool {
	switch c.Limit.kind() {
	case line:
		s := sh.lines.put(c.Key, now)
		if s == nil {
			return false
		}
		c.charge(now, s)
		sh.note(now, c, s)
	case SlidingLog:
		s := sh.logs.put(c.Key, now)
		if s == nil {
			return false
		}
		before := s.weight()
		c.charge(now, s)
		if by := s.weight() - before; by > 0 {
			sh.logs.grew(c.Key, by, now)
		}
	case SlidingCounter:
		s := sh.counters.put(c.Key, now)
		if s == nil {
			return false
		}
		c.charge(now, s)
	case FixedWindow, Quota:
		s := sh.tallies.put(c.Key, now)
		if s == nil {
			return false
		}
		c.charge(now, s)
	default:
		s := sh.buckets.put(c.Key, now)
		if s == nil {
			return false
		}
		c.charge(now, s)
	}
	return true
}

func (c *Charge) charge(now Ticks, s state) {
	s.charge(now, c.Limit)
	if c.Refused {
		s.deny()
	}
	c.Answer = s.answer(now, c.Limit)
}

// look fills in c's answer without charging it, and marks who refused.
func (sh *shard) look(now Ticks, c *Charge) {
	s := sh.find(c)
	if s == nil {
		c.Answer = Answer{Remaining: c.Limit.quota}
		return
	}
	if c.Refused {
		s.deny()
	}
	c.Answer = s.answer(now, c.Limit)
}
