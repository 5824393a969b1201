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
	switch kind := c.Limit.kind(); {
	case kind == SlidingLog:
		return sh.logs.holds(now, c.Key, c.Limit)
	case kind == SlidingCounter:
		return sh.counters.holds(now, c.Key, c.Limit)
	case st != nil:
		return true
	}
	switch c.Limit.kind() {
	case line:
		_, ok = sh.lines.room(c.Key, now)
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
		return sh.logs.charge(now, c)
	case SlidingCounter:
		return sh.counters.charge(now, c)
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
	sh.keep(c.Limit.kind())
}

// keep keeps what was changed of the state that was found last.
func (sh *shard) keep(a Algorithm) {
	switch a {
	case SlidingLog:
		sh.logs.save()
	case SlidingCounter:
		sh.counters.save()
	}
}
