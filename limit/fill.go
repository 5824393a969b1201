package limit

// The memory of a store has parts, one for each kind of state.
const (
	partBuckets = iota
	partLogs
	partCounters
	partTallies
	partHeld
	partLines
	parts
)

// partOf returns where states of l are kept.
func partOf(l *Limit) int {
	switch l.kind() {
	case line:
		return partLines
	case SlidingLog:
		return partLogs
	case SlidingCounter:
		return partCounters
	case FixedWindow, Quota:
		return partTallies
	}
	return partBuckets
}

// partBytes returns how much of memory a part gets.
func partBytes(part, memory int, fleet bool) int {
	switch {
	case part == partLines && !fleet:
		return 0
	case part == partLines || part == partBuckets && fleet:
		return memory * 3 / 16
	case part == partBuckets:
		return memory * 3 / 8
	case part == partLogs:
		return memory / 4
	}
	return memory / 8
}

// Fills tells how full each part of a store is.
type Fills [parts]float64

// Most returns that of the fullest part, from 0 to about 1, where a new key makes
// another give way.
func (f *Fills) Most() (most float64) {
	for _, part := range f {
		most = max(most, part)
	}
	return most
}

// Fills returns how full s is.
func (s *Store) Fills() (f Fills) {
	var taken, most Fills
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for part, fill := range sh.fills() {
			taken[part] += fill[0]
			most[part] += fill[1]
		}
		sh.mu.Unlock()
	}
	for part := range f {
		if most[part] > 0 {
			f[part] = taken[part] / most[part]
		}
	}
	return f
}

// fills returns what each part has taken, and how much it may take until
// something has to give way.
func (sh *shard) fills() [parts][2]float64 {
	return [parts][2]float64{
		partBuckets:  sh.buckets.fill(),
		partLogs:     sh.logs.fill(),
		partCounters: sh.counters.fill(),
		partTallies:  sh.tallies.fill(),
		partHeld:     sh.held.fill(),
		partLines:    sh.lines.fill(),
	}
}

func (t *table[S, P]) fill() [2]float64 { return [2]float64{float64(t.n), float64(t.most) * 3 / 4} }

func (t *packed[S, P]) fill() [2]float64 {
	return [2]float64{float64(t.costs + 4*len(t.index)), float64(t.most())}
}

// Held is what an account keeps in a store.
type Held struct {
	Keys  uint64  `json:"keys"`  // full ones included until they are swept
	Bytes uint64  `json:"bytes"` // that they take
	Bound uint64  `json:"bound"` // that they may
	Fill  float64 `json:"fill"`  // how near is a new key to making another give way: at 1 it does
}

// Held returns what a, the account of l, keeps in s, which is as full as f says.
func (s *Store) Held(a *Account, l *Limit, f *Fills) Held {
	part := partOf(l)
	h := Held{Keys: a.Keys(), Bytes: a.Bytes(), Bound: uint64(partBytes(part, s.memory, s.fleet)), Fill: f[part]}
	if most := uint64(a.most.Load()); most > 0 {
		h.Bound = min(h.Bound, most)
		h.Fill = max(h.Fill, float64(h.Bytes)/float64(most))
	}
	return h
}
