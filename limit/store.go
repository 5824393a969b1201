package limit

import (
	"math/bits"
	"sync"
)

const (
	// DefaultMemory bounds a store that is given no bound, in bytes.
	DefaultMemory = 256 << 20

	maxShards   = 256
	shardMemory = 256 << 10 // a store of less memory has fewer shards
)

// Store keeps the state of bucket keys in bounded memory. It is safe for
// concurrent use. Memory is taken as keys come and given back by Sweep. When
// its bound is reached, a new key takes the place of one that is full again,
// else of one that has used least of its limit; that is an eviction, and it
// gives the evicted key up to what it had used once more.
//
// Half of the memory is for token buckets (36 to 64 bytes a key by how full the
// array is), a quarter for logs, an eighth each for counters and held keys.
type Store struct {
	hasher Hasher
	shards []shard
	shift  uint8 // of a key's high word to its shard
}

type shard struct {
	mu       sync.Mutex
	buckets  table[Bucket, *Bucket]
	logs     table[Log, *Log]
	counters table[Counter, *Counter]
	held     table[held, *held]
	_        [64]byte // the next shard's lock is on another cache line
}

// NewStore returns a store bounded to about memory bytes, but not less than
// some kilobytes; 0 means DefaultMemory.
func NewStore(memory int) *Store {
	if memory <= 0 {
		memory = DefaultMemory
	}
	n := min(max(memory/shardMemory, 1), maxShards)
	log := bits.Len(uint(n)) - 1
	s := &Store{hasher: NewHasher(), shards: make([]shard, 1<<log), shift: uint8(64 - log)}
	for i := range s.shards {
		share := memory >> log
		s.shards[i].buckets.bound(share/2, false)
		s.shards[i].logs.bound(share/4, true)
		s.shards[i].counters.bound(share/8, false)
		s.shards[i].held.bound(share/8, false)
	}
	return s
}

// Key returns the key of parts in this store. See Hasher.Sum.
func (s *Store) Key(parts []byte) Key { return s.hasher.Sum(parts) }

// Charge is one bucket that a request asks one unit of.
type Charge struct {
	Key     Key
	Limit   *Limit
	Watch   bool   // counts as if it enforced, refuses nothing
	Refused bool   // set by Take: it refuses, or would if it did not watch
	Answer  Answer // set by Take: how the key stands afterwards
}

// Take decides a request that asks all of charges, whose keys must differ. It
// returns whether all that enforce have room, and charges all or nothing: if
// one refuses, none is charged. One that watches is charged when it has room
// itself and nothing refuses. It allocates nothing but room for keys.
func (s *Store) Take(now Ticks, charges []Charge) bool {
	if len(charges) == 1 {
		sh := &s.shards[s.shard(charges[0].Key)]
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return s.take(now, charges)
	}
	var room [16]uint16
	order := s.order(room[:0], charges)
	for _, i := range order {
		s.shards[i].mu.Lock()
	}
	ok := s.take(now, charges)
	for _, i := range order {
		s.shards[i].mu.Unlock()
	}
	return ok
}

func (s *Store) shard(k Key) uint16 { return uint16(k.hi >> s.shift) }

// order appends the shards of charges, each once and ascending: the order in
// which everyone locks them.
func (s *Store) order(to []uint16, charges []Charge) []uint16 {
next:
	for i := range charges {
		n := s.shard(charges[i].Key)
		at := len(to)
		for ; at > 0 && to[at-1] >= n; at-- {
			if to[at-1] == n {
				continue next
			}
		}
		to = append(to, 0)
		copy(to[at+1:], to[at:])
		to[at] = n
	}
	return to
}

// take decides under the locks of all shards concerned.
func (s *Store) take(now Ticks, charges []Charge) bool {
	ok := true
	for i := range charges {
		c := &charges[i]
		st := s.shards[s.shard(c.Key)].find(c)
		c.Refused = st != nil && st.wait(now, c.Limit) > 0
		ok = ok && (c.Watch || !c.Refused)
	}
	for i := range charges {
		c := &charges[i]
		sh := &s.shards[s.shard(c.Key)]
		if ok && !c.Refused {
			sh.charge(now, c)
		} else {
			sh.look(now, c)
		}
	}
	return ok
}

// find returns the state of c's key, nil if there is none.
func (sh *shard) find(c *Charge) state {
	switch c.Limit.algorithm {
	case SlidingLog:
		if s := sh.logs.find(c.Key); s != nil {
			return s
		}
	case SlidingCounter:
		if s := sh.counters.find(c.Key); s != nil {
			return s
		}
	default:
		if s := sh.buckets.find(c.Key); s != nil {
			return s
		}
	}
	return nil
}

func (sh *shard) charge(now Ticks, c *Charge) {
	switch c.Limit.algorithm {
	case SlidingLog:
		s := sh.logs.put(c.Key, now)
		before := s.weight()
		s.charge(now, c.Limit)
		c.Answer = s.answer(now, c.Limit)
		sh.logs.grew(s.weight()-before, now)
	case SlidingCounter:
		s := sh.counters.put(c.Key, now)
		s.charge(now, c.Limit)
		c.Answer = s.answer(now, c.Limit)
	default:
		s := sh.buckets.put(c.Key, now)
		s.charge(now, c.Limit)
		c.Answer = s.answer(now, c.Limit)
	}
}

// look fills in c's answer without charging it.
func (sh *shard) look(now Ticks, c *Charge) {
	if s := sh.find(c); s != nil {
		c.Answer = s.answer(now, c.Limit)
		return
	}
	c.Answer = Answer{Remaining: c.Limit.quota}
}

// Hold keeps member among those of key until end and returns true, unless
// MaxHeld others are held at now.
func (s *Store) Hold(key, member Key, now, end Ticks) bool {
	sh := &s.shards[s.shard(key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.held.put(key, now).hold(member, now, end)
}

// Sweep drops all that is worth nothing at now. It must run at least once in
// 4.5 years, lest an old moment be taken for a future one; daily is meant.
func (s *Store) Sweep(now Ticks) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.buckets.sweep(now)
		sh.logs.sweep(now)
		sh.counters.sweep(now)
		sh.held.sweep(now)
		sh.mu.Unlock()
	}
}

// Stats tells how a store fares.
type Stats struct {
	Keys    uint64 // kept, full ones included until they are swept
	Bytes   uint64 // taken
	Evicted uint64 // keys in use that gave way to others; only grows
}

// Stats returns the sums over all shards, each consistent in itself.
func (s *Store) Stats() (sum Stats) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sum.Keys += uint64(sh.buckets.n + sh.logs.n + sh.counters.n + sh.held.n)
		sum.Bytes += uint64(sh.buckets.bytes() + sh.logs.bytes() + sh.counters.bytes() + sh.held.bytes())
		sum.Evicted += sh.buckets.evicted + sh.logs.evicted + sh.counters.evicted + sh.held.evicted
		sh.mu.Unlock()
	}
	return sum
}
