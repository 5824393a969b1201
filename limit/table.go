package limit

import (
	"math/bits"
	"unsafe"
)

const (
	smallest   = 8  // places in a table's first array
	sample     = 16 // keys that an eviction looks at
	wideSample = 64 // the same, where it may take only keys of one account
)

// table is one shard's states of one kind: an array with linear probing, kept
// at most three quarters full, that grows by half up to its share of memory.
// Who comes when it is full takes the place of a state that is worth nothing,
// else of the one that is used least, but never that of a firm one: who is
// refused is not freed by strangers, however many come. Where there is none to
// take, the newcomer gets no place.
type table[S any, P interface {
	*S
	kept
}] struct {
	places   []place[S]
	n        int
	hand     int // where the next eviction looks first
	most     int // places
	evicted  uint64
	accounts *accounts // nil: nothing is booked
}

type place[S any] struct {
	key   Key
	state S
}

func (t *table[S, P]) placeSize() int { return int(unsafe.Sizeof(place[S]{})) }

func (t *table[S, P]) bytes() int { return len(t.places) * t.placeSize() }

// bound sets the memory that the table may take.
func (t *table[S, P]) bound(bytes int) {
	t.most = max(smallest, bytes/t.placeSize())
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
	if i := t.index(k); i >= 0 {
		return &t.places[i].state
	}
	return nil
}

// index returns where k is, or -1.
func (t *table[S, P]) index(k Key) int {
	if t.n == 0 {
		return -1
	}
	for i := t.home(k); ; i = t.next(i) {
		switch t.places[i].key {
		case k:
			return i
		case Key{}:
			return -1
		}
	}
}

// put returns k's state, made if there was none, or nil if there is no room. It
// may move and evict others.
func (t *table[S, P]) put(k Key, now Ticks) *S {
	if s := t.find(k); s != nil {
		return s
	}
	evict, ok := t.room(k, now)
	switch {
	case !ok:
		return nil
	case evict >= 0:
		t.evict(evict, now)
	case t.full():
		t.grow(now)
	}
	t.book(k, 1, t.placeSize())
	return t.insert(k)
}

// room reports whether put finds room for a new k, and which place it frees for
// it, -1 if none.
func (t *table[S, P]) room(k Key, now Ticks) (evict int, ok bool) {
	switch {
	case !t.account(k).fits(t.placeSize()):
		evict = t.victim(now, k.slot())
	case t.full() && len(t.places) >= t.most:
		evict = t.victim(now, 0)
	default:
		return -1, true
	}
	return evict, evict >= 0
}

// full reports whether one more would take more than three quarters.
func (t *table[S, P]) full() bool { return (t.n+1)*4 > len(t.places)*3 }

func (t *table[S, P]) account(k Key) *Account {
	if t.accounts == nil {
		return nil
	}
	return t.accounts.of(k)
}

func (t *table[S, P]) book(k Key, keys, bytes int) { t.account(k).book(keys, bytes) }

func (t *table[S, P]) insert(k Key) *S {
	i := t.home(k)
	for t.places[i].key != (Key{}) {
		i = t.next(i)
	}
	t.n++
	t.places[i].key = k
	return &t.places[i].state
}

// grow makes the array larger, or only drops what is worth nothing where that
// gives room enough.
func (t *table[S, P]) grow(now Ticks) {
	size := len(t.places)
	if t.live(now)*2 >= size {
		size = min(max(smallest, size+size/2), t.most)
	}
	t.rebuild(size, now)
}

// rebuild moves what is worth keeping into a new array.
func (t *table[S, P]) rebuild(size int, now Ticks) {
	old := t.places
	t.places, t.n, t.hand = make([]place[S], size), 0, 0
	for i := range old {
		if old[i].key == (Key{}) {
			continue
		}
		s := P(&old[i].state)
		if s.used(now) > 0 {
			*t.insert(old[i].key) = old[i].state
		} else {
			t.book(old[i].key, -1, -t.placeSize())
		}
	}
}

// victim returns which place may be freed: the first of a sample that is worth
// nothing, else its least used, but no firm one; -1 if there is none. Where only is no 0, it is one of that account. If there is none
// the hand moves on, so that the next looks at others; else it stays, for another
// call to find the same.
func (t *table[S, P]) victim(now Ticks, only uint16) int {
	size := sample
	if only != 0 {
		size = wideSample
	}
	least, share, i := -1, float32(0), t.hand
	for seen := 0; seen < min(size, t.n); i = t.next(i) {
		p := &t.places[i]
		if p.key == (Key{}) {
			continue
		}
		seen++
		if only != 0 && p.key.slot() != only {
			continue
		}
		used := P(&p.state).used(now)
		if used == 0 {
			return i
		}
		if (least < 0 || used < share) && !P(&p.state).firm(now) {
			least, share = i, used
		}
	}
	if least < 0 {
		t.hand = i
	}
	return least
}

// evict frees a place, and moves the hand on, so that all take their turn: a good
// part of the array further, as where it went place by place it would leave all
// newcomers crowded ahead of it.
func (t *table[S, P]) evict(i int, now Ticks) {
	if P(&t.places[i].state).used(now) > 0 {
		t.evicted++
	}
	const golden = 0.6180339887498949 // its multiples are spread as evenly as can be
	t.hand = (i + 1 + int(golden*float64(len(t.places)))) % len(t.places)
	t.remove(i)
}

// remove empties place i and moves up what was put behind it for want of room.
func (t *table[S, P]) remove(i int) {
	t.book(t.places[i].key, -1, -t.placeSize())
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

// sweep drops what is worth nothing, and memory with it.
func (t *table[S, P]) sweep(now Ticks) {
	t.shrink(now)
	switch live := t.live(now); {
	case live == t.n && live > 0 && len(t.places) <= t.most:
	case live == 0:
		t.rebuild(smallest, now) // books what is dropped
		t.places = nil
	default:
		t.rebuild(min(max(smallest, live*2), len(t.places), t.most), now)
	}
}

// shrink brings a table whose bound was lowered within it, the least used first.
func (t *table[S, P]) shrink(now Ticks) {
	for t.n*4 > t.most*3 {
		i := t.victim(now, 0)
		if i < 0 { // all are firm: memory is bounded all the same
			for i = t.hand; t.places[i].key == (Key{}); {
				i = t.next(i)
			}
		}
		t.evict(i, now)
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
