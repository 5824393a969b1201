package limit

// What an operator does to one bucket key by hand.

// Look tells how k stands under l at now, without charging anything. What l's
// rule would be charged for is decided as Take does, but for the shared bucket
// of keys without room: known is false for a key that nothing is kept of.
func (s *Store) Look(now Ticks, k Key, l *Limit) (a Answer, known bool) {
	sh := s.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if st := sh.state(k, l.kind()); st != nil {
		defer sh.keep(l.kind())
		return st.answer(now, l), true
	}
	return Answer{Remaining: l.quota}, false
}

// Reset forgets what k has spent under l's algorithm: it starts full. It returns
// false when nothing was kept of it.
func (s *Store) Reset(k Key, l *Limit) bool {
	sh := s.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch l.kind() {
	case line:
		return sh.lines.drop(k)
	case SlidingLog:
		return sh.logs.drop(k)
	case SlidingCounter:
		return sh.counters.drop(k)
	case FixedWindow, Quota:
		return sh.tallies.drop(k)
	}
	return sh.buckets.drop(k)
}

// Grant gives k up to n, at least 1, of what it has spent under l back, the
// newest first, and returns how many those were: nobody gets above full. n
// requests more pass at once if so many were spent.
func (s *Store) Grant(now Ticks, k Key, l *Limit, n int64) int64 {
	sh := s.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if st := sh.state(k, l.kind()); st != nil && n > 0 {
		defer sh.keep(l.kind())
		return st.giveBack(now, l, n)
	}
	return 0
}

// drop forgets k and returns whether it was kept.
func (t *table[S, P]) drop(k Key) bool {
	i := t.index(k)
	if i >= 0 {
		t.remove(i)
	}
	return i >= 0
}
