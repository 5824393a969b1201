package limit

import (
	"math/bits"
	"sync"
	"time"
)

const (
	// DefaultMemory bounds a store that is given no bound, in bytes.
	DefaultMemory = 256 << 20

	maxShards   = 256
	shardMemory = 256 << 10 // a store of less memory has fewer shards
)

// Store keeps the state of bucket keys in bounded memory. It is safe for
// concurrent use. Memory is taken as keys come and given back by Sweep. When
// its bound, or that of the key's account, is reached, a new key takes the place
// of one that is full again, else of one that has used least of its limit; that
// is an eviction, and it gives the evicted key up to what it had used once more.
// A key that is refused, or was since it was last full, is never evicted. A log
// or a counter that needs a larger record makes others give way as a new key does.
// Where there is no place to take, the key is charged to the bucket that its
// account keeps for all such keys: none passes uncounted.
//
// Three eighths of the memory are for token buckets, a quarter for logs, an
// eighth each for counters, for fixed windows and quotas, and for held keys. In a
// fleet, lines have half of what token buckets have else.
type Store struct {
	// Wall is the wall clock of fixed windows and quotas. It may be replaced
	// before the first call of Aligned and Calendar.
	Wall func() time.Time

	hasher   Hasher
	fleet    bool // it is one of many
	memory   int  // bytes that it may take
	shards   []shard
	shift    uint8 // of a key's high word to its shard
	accounts accounts

	sharing    sync.Mutex // taken last: the shared buckets of all accounts
	names      map[Key]*Account
	slots      int // so many were ever used
	freed      []uint16
	overflowed uint64
	calendars  map[calendarName]*Calendar
	turn       int // which shard may report first; of Reports alone
}

type shard struct {
	mu       sync.Mutex
	buckets  table[Bucket, *Bucket]
	logs     packed[Log, *Log]
	counters packed[Counter, *Counter]
	tallies  table[Tally, *Tally]
	held     table[held, *held]
	lines    table[Line, *Line]
	due      queue    // lines with something to report
	rush     queue    // the same, at once
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
	s := &Store{hasher: NewHasher(), memory: memory, shards: make([]shard, 1<<log), shift: uint8(64 - log), names: map[Key]*Account{}, calendars: map[calendarName]*Calendar{}, Wall: time.Now}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.buckets.accounts, sh.logs.accounts, sh.counters.accounts = &s.accounts, &s.accounts, &s.accounts
		sh.tallies.accounts, sh.held.accounts, sh.lines.accounts = &s.accounts, &s.accounts, &s.accounts
		sh.bound(memory>>log, false)
	}
	return s
}

// SetMemory changes the bound to about memory bytes, 0 to DefaultMemory. A
// lower one takes effect with the next Sweep. It and Share are not to be called at
// the same time.
func (s *Store) SetMemory(memory int) {
	if memory <= 0 {
		memory = DefaultMemory
	}
	s.memory = memory
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.bound(memory/len(s.shards), s.fleet)
		sh.mu.Unlock()
	}
}

func (sh *shard) bound(memory int, fleet bool) {
	of := func(part int) int { return partBytes(part, memory, fleet) }
	sh.buckets.bound(of(partBuckets))
	sh.lines.bound(of(partLines))
	sh.logs.bound(of(partLogs))
	sh.counters.bound(of(partCounters))
	sh.tallies.bound(of(partTallies))
	sh.held.bound(of(partHeld))
}

// Key returns the key of parts in this store, in no account. See Hasher.Sum.
func (s *Store) Key(parts []byte) Key {
	k := s.hasher.Sum(parts)
	k.lo &^= mostAccounts - 1
	if k == (Key{}) {
		k.hi = 1
	}
	return k
}

// Share makes h the store's hasher, that of its fleet: all hosts that share it make
// the same keys. It must be called before the first key is made.
func (s *Store) Share(h Hasher) {
	s.hasher, s.fleet = h, true
	s.SetMemory(s.memory)
}

// Hash makes h the store's hasher: stores of one secret make the same keys, so that
// one can go on with what another saved. It must be called before the first key is
// made.
func (s *Store) Hash(h Hasher) { s.hasher = h }

// Charge is one bucket that a request asks one unit of.
type Charge struct {
	Key     Key
	Limit   *Limit
	Account *Account // that Key was made in; nil: none, and without room it refuses
	Watch   bool     // counts as if it enforced, refuses nothing
	Refused bool     // set by Take: it refuses, or would if it did not watch
	Shared  bool     // set by Take: there was no room, the account's shared bucket decided
	Asks    bool     // set by Take: only the fleet can tell
	Told    *Told    // what it said; nil: it was not asked
	Down    bool     // set by Take: the fleet is out of reach, and the limit's Outage decided
	alone   bool     // it does not answer
	Answer  Answer   // set by Take: how the key stands afterwards
}

// Take decides a request that asks all of charges, whose keys must differ. It
// returns whether all that enforce have room, and charges all or nothing: if
// one refuses, none is charged but those that count what is refused. One that
// watches is charged when it has room itself and nothing refuses. It allocates
// nothing but room for keys.
//
// Where none refuses and some can only be decided by the fleet, Take charges
// nothing and returns false: Asking tells. Ask the fleet for all that have Asks,
// put what it says into Told, and Take again.
func (s *Store) Take(now Ticks, charges []Charge) bool { return s.decide(now, charges, true) }

// Refuses reports whether Take would refuse, and does what Take then does; where
// Take would not, it charges nothing. It is for some of a request's charges, when
// it costs something to find the others.
func (s *Store) Refuses(now Ticks, charges []Charge) bool { return !s.decide(now, charges, false) }

func (s *Store) decide(now Ticks, charges []Charge, take bool) bool {
	if len(charges) == 1 {
		sh := s.shard(charges[0].Key)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return s.take(now, charges, take)
	}
	var room [16]uint16
	order := s.order(room[:0], charges)
	for _, i := range order {
		s.shards[i].mu.Lock()
	}
	ok := s.take(now, charges, take)
	for _, i := range order {
		s.shards[i].mu.Unlock()
	}
	return ok
}

func (s *Store) index(k Key) uint16 { return uint16(k.hi >> s.shift) }

func (s *Store) shard(k Key) *shard { return &s.shards[s.index(k)] }

// order appends the shards of charges, each once and ascending: the order in
// which everyone locks them.
func (s *Store) order(to []uint16, charges []Charge) []uint16 {
next:
	for i := range charges {
		n := s.index(charges[i].Key)
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

// take decides under the locks of all shards concerned. What it admits it
// charges only if it may.
func (s *Store) take(now Ticks, charges []Charge, may bool) bool {
	if ok, done := s.takeBuckets(now, charges, may); done {
		return ok
	}
	return s.takeAny(now, charges, may)
}

func (s *Store) takeAny(now Ticks, charges []Charge, may bool) bool {
	ok, shared, asks := true, false, false
	for i := range charges {
		c := &charges[i]
		sh := s.shard(c.Key)
		st := sh.find(c)
		if c.Shared = !sh.holds(now, c, st); c.Shared {
			shared = s.share(shared)
			c.Refused = c.Account.wait(now) > 0
		} else {
			c.Refused = st != nil && st.wait(now, c.Limit) > 0
		}
		if c.Limit.scope != Host {
			asks = c.consult(now, st) || asks
		}
		ok = ok && (c.Watch || !c.Refused)
	}
	if asks && ok {
		if shared {
			s.sharing.Unlock()
		}
		return !may
	}
	for i := range charges {
		c := &charges[i]
		taken := ok && may && !c.Refused || c.Limit.always && (may || !ok)
		c.Asks = false
		switch {
		case c.Shared || c.Down:
		case c.Told != nil:
			s.shard(c.Key).hear(now, c)
		case !taken:
			s.shard(c.Key).look(now, c)
		case !s.shard(c.Key).charge(now, c):
			// Another charge of this request was quicker to take the last place.
			shared, c.Shared = s.share(shared), true
		}
		if c.Shared {
			s.overflowed++
			c.Account.settle(now, c, taken)
		}
	}
	if shared {
		s.sharing.Unlock()
	}
	return ok
}

// share takes the lock of all shared buckets, unless it is held already.
func (s *Store) share(held bool) bool {
	if !held {
		s.sharing.Lock()
	}
	return true
}

// Stats tells how a store fares.
type Stats struct {
	Keys       uint64  `json:"keys"`       // kept, full ones included until they are swept
	Bytes      uint64  `json:"bytes"`      // taken
	Bound      uint64  `json:"bound"`      // that may be taken
	Fill       float64 `json:"fill"`       // of the fullest part: at 1 a new key makes another give way
	Evicted    uint64  `json:"evicted"`    // keys in use that gave way to others; only grows
	Overflowed uint64  `json:"overflowed"` // charges that found no room and went to a shared bucket; only grows
}

// Stats returns the sums over all shards, each consistent in itself.
func (s *Store) Stats() (sum Stats) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sum.Keys += uint64(sh.buckets.n + sh.logs.n + sh.counters.n + sh.tallies.n + sh.held.n + sh.lines.n)
		sum.Bytes += uint64(sh.buckets.bytes() + sh.logs.bytes() + sh.counters.bytes() + sh.tallies.bytes() + sh.held.bytes() + sh.lines.bytes())
		sum.Evicted += sh.buckets.evicted + sh.logs.evicted + sh.counters.evicted + sh.tallies.evicted + sh.held.evicted + sh.lines.evicted
		sh.mu.Unlock()
	}
	s.sharing.Lock()
	sum.Overflowed = s.overflowed
	s.sharing.Unlock()
	fills := s.Fills()
	sum.Bound, sum.Fill = uint64(s.memory), fills.Most()
	return sum
}

// Sweep drops all that is worth nothing at now. It must run at least once in
// 4.5 years, lest an old moment be taken for a future one; once a minute is
// meant, so that memory falls soon after a flood.
func (s *Store) Sweep(now Ticks) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.buckets.sweep(now)
		sh.logs.sweep(now)
		sh.counters.sweep(now)
		sh.tallies.sweep(now)
		sh.held.sweep(now)
		sh.lines.sweep(now)
		sh.mu.Unlock()
	}
}

// Hold keeps member among those of key until end and returns true, unless
// MaxHeld others are held at now, or there is no room.
func (s *Store) Hold(key, member Key, now, end Ticks) bool {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := sh.held.put(key, now)
	return h != nil && h.hold(member, now, end)
}
