package limit

import (
	"math/bits"
	"unsafe"
)

const (
	smallest = 8  // places in a table's first array
	sample   = 16 // places that an eviction looks at
)

// table is one shard's states of one kind: an array with linear probing, kept
// at most three quarters full, that grows by half up to its share of memory.
// Who comes when it is full takes the place of a state that is worth nothing,
// else of the one that is used least: never of nobody, so that a full table
// does not let everyone pass.
type table[S any, P interface {
	*S
	kept
}] struct {
	places  []place[S]
	n       int
	hand    int // where the last eviction stopped
	most    int // places
	outside int // bytes that states hold outside the array
	spare   int // bytes that they may
	evicted uint64
}

type place[S any] struct {
	key   Key
	state S
}

func (t *table[S, P]) bytes() int {
	return len(t.places)*int(unsafe.Sizeof(place[S]{})) + t.outside
}

// bound sets the memory that the table may take. States that hold bytes
// outside the array get three quarters for those.
func (t *table[S, P]) bound(bytes int, outside bool) {
	if outside {
		t.spare = bytes * 3 / 4
		bytes -= t.spare
	}
	t.most = max(smallest, bytes/int(unsafe.Sizeof(place[S]{})))
}

// home returns where k's probing starts.
func (t *table[S, P]) home(k Key) int {
	hi, _ := bits.Mul64(k.lo, uint64(len(t.places)))
	return int(hi)
}

func (t *table[S, P]) next(i int) int {
	if i++; i < len(t.places) {
		return i
	}
	return 0
}

// find returns k's state, or nil.
func (t *table[S, P]) find(k Key) *S {
	if t.n == 0 {
		return nil
	}
	for i := t.home(k); ; i = t.next(i) {
		switch p := &t.places[i]; p.key {
		case k:
			return &p.state
		case Key{}:
			return nil
		}
	}
}

// put returns k's state, made if there was none. It may move and evict others.
func (t *table[S, P]) put(k Key, now Ticks) *S {
	if s := t.find(k); s != nil {
		return s
	}
	if (t.n+1)*4 > len(t.places)*3 {
		t.makeRoom(now)
	}
	return t.insert(k)
}

func (t *table[S, P]) insert(k Key) *S {
	i := t.home(k)
	for t.places[i].key != (Key{}) {
		i = t.next(i)
	}
	t.n++
	t.places[i].key = k
	return &t.places[i].state
}

func (t *table[S, P]) makeRoom(now Ticks) {
	if len(t.places) >= t.most {
		t.evict(now)
		return
	}
	size := len(t.places)
	if t.live(now)*2 >= size {
		size = min(max(smallest, size+size/2), t.most)
	}
	t.rebuild(size, now)
}

// rebuild moves what is worth keeping into a new array.
func (t *table[S, P]) rebuild(size int, now Ticks) {
	old := t.places
	t.places, t.n, t.hand, t.outside = make([]place[S], size), 0, 0, 0
	for i := range old {
		s := P(&old[i].state)
		if old[i].key != (Key{}) && s.used(now) > 0 {
			*t.insert(old[i].key) = old[i].state
			t.outside += s.weight()
		}
	}
}

// evict frees a place: the first of a sample that is worth nothing, or its
// least used. The hand moves on, so that all take their turn.
func (t *table[S, P]) evict(now Ticks) {
	least, share := -1, float32(0)
	for seen := 0; seen < sample; {
		t.hand = t.next(t.hand)
		p := &t.places[t.hand]
		if p.key == (Key{}) {
			continue
		}
		seen++
		used := P(&p.state).used(now)
		if used == 0 {
			t.remove(t.hand)
			return
		}
		if least < 0 || used < share {
			least, share = t.hand, used
		}
	}
	t.remove(least)
	t.evicted++
}

// remove empties place i and moves up what was put behind it for want of room.
func (t *table[S, P]) remove(i int) {
	t.outside -= P(&t.places[i].state).weight()
	t.n--
	for j := t.next(i); t.places[j].key != (Key{}); j = t.next(j) {
		// A state whose home lies behind the hole, cyclically in (i, j], would
		// not be found in it.
		home := t.home(t.places[j].key)
		if behind := i < home && home <= j; i < j && behind || j < i && (i < home || home <= j) {
			continue
		}
		t.places[i] = t.places[j]
		i = j
	}
	t.places[i] = place[S]{}
}

// grew accounts for a state that now holds more bytes outside, and evicts
// others until the table is within its bound again.
func (t *table[S, P]) grew(by int, now Ticks) {
	t.outside += by
	for by > 0 && t.outside > t.spare && t.n > 1 {
		t.evict(now)
	}
}

// sweep drops what is worth nothing, and memory with it.
func (t *table[S, P]) sweep(now Ticks) {
	switch live := t.live(now); {
	case live == t.n:
	case live == 0:
		t.places, t.n, t.hand, t.outside = nil, 0, 0, 0
	default:
		t.rebuild(min(max(smallest, live*2), len(t.places)), now)
	}
}

func (t *table[S, P]) live(now Ticks) (n int) {
	for i := range t.places {
		if t.places[i].key != (Key{}) && P(&t.places[i].state).used(now) > 0 {
			n++
		}
	}
	return n
}
