package limit

import "math/bits"

// packed is one shard's Logs or Counters: a table as table is, with the same
// rules, but of records of several sizes in a slab. Its array holds references, 4
// bytes a place, each with some bits of its key, so that others are seldom looked
// at. Who grows moves to a larger record; where there is no memory for that,
// others give way, of the same account if that is at its bound. One state at a time
// is loaded, to be worked on; save writes it back.
type packed[S any, P interface {
	*S
	packable
}] struct {
	slab
	index    []uint32
	n        int
	hand     uint32 // where the next eviction looks first, in the slab
	wide     int    // and then, in the array
	bytesMax int    // that it may take
	evicted  uint64
	accounts *accounts

	chosen choice // last, while nothing changes

	view   S
	loaded Key    // whose state view is; zero: nobody's
	from   record // that it was loaded from
}

// choice is what victim has found: a decision asks first whether there is room
// and then for it.
type choice struct {
	now    Ticks
	spared Key
	only   uint16
	ref    uint32 // 0: nothing
	used   float32
	free   int // bytes that it and others of its sample take
}

// packable is a state that is kept in a record.
type packable interface {
	state
	room(now Ticks, l *Limit) int // bytes that the record needs to be charged
	load(r record)
	save(r record) // also into another than it was loaded from
}

const (
	tagShift  = slotBits + chunkBits
	indexCost = 8 // bytes a key in the array, at most
)

// bound sets the memory that the table may take.
func (t *packed[S, P]) bound(bytes int) {
	if t.bytesMax = bytes; t.n == 0 {
		t.slab = newSlab(chunkFor(bytes))
	}
}

// most returns what records and array may take together: the last chunk of each
// size may be almost empty.
func (t *packed[S, P]) most() int {
	return max(t.bytesMax-smallSizes*(t.chunk+chunkCost), t.bytesMax/4)
}

func (t *packed[S, P]) bytes() int { return t.held + 4*len(t.index) }

func (t *packed[S, P]) home(k Key) int {
	hi, _ := bits.Mul64(k.lo, uint64(len(t.index)))
	return int(hi)
}

func (t *packed[S, P]) after(i int) int {
	if i++; i < len(t.index) {
		return i
	}
	return 0
}

func tag(k Key) uint32 { return uint32(k.hi) << tagShift }

// place returns where the reference to k is, or -1.
func (t *packed[S, P]) place(k Key) int {
	if t.n == 0 {
		return -1
	}
	want := tag(k)
	for i := t.home(k); ; i = t.after(i) {
		ref := t.index[i]
		if ref == 0 {
			return -1
		}
		if (ref^want)>>tagShift == 0 && t.record(ref).key() == k {
			return i
		}
	}
}

// find loads k's state, nil if there is none.
func (t *packed[S, P]) find(k Key) *S {
	if t.loaded == k {
		return &t.view
	}
	i := t.place(k)
	if i < 0 {
		return nil
	}
	t.load(k, t.index[i])
	return &t.view
}

func (t *packed[S, P]) load(k Key, ref uint32) {
	t.loaded, t.from = k, t.record(ref)
	P(&t.view).load(t.from)
}

// save keeps what was changed of the loaded state.
func (t *packed[S, P]) save() {
	P(&t.view).save(t.from)
	t.chosen = choice{}
}

// holds reports whether there is room to charge k one request more.
func (t *packed[S, P]) holds(now Ticks, k Key, l *Limit) bool {
	if s := t.find(k); s != nil {
		size := P(s).room(now, l)
		return size <= len(t.from) || t.fits(now, k, t.grows(size), false)
	}
	return t.fits(now, k, t.cost(0), true)
}

// grows returns how much more the loaded state's record costs when it has to be of
// size bytes.
func (t *packed[S, P]) grows(size int) int {
	return t.cost(sizeClass(size)) - t.cost(sizeClass(len(t.from)))
}

// full reports whether one more would take more than five eighths: beyond, it
// takes long to find that a key is new.
func (t *packed[S, P]) full() bool { return (t.n+1)*8 > len(t.index)*5 }

func (t *packed[S, P]) larger() int { return max(smallest, len(t.index)+len(t.index)/4) }

// over returns by how much the table would be over its bound with so many bytes
// more. A fresh key may take a place that another leaves, where the array has no
// room to grow.
func (t *packed[S, P]) over(by int, fresh bool) int {
	over := t.costs + 4*len(t.index) + by - t.most()
	if fresh && t.full() && over+4*(t.larger()-len(t.index)) > 0 {
		return max(over, 1)
	}
	return over
}

// booked returns how much of its account's bound a key takes with so many bytes.
func (t *packed[S, P]) booked(bytes int, fresh bool) int {
	if fresh {
		bytes += indexCost
	}
	return bytes
}

// fits reports whether k may take so many bytes more, now or after evictions.
func (t *packed[S, P]) fits(now Ticks, k Key, by int, fresh bool) bool {
	if booked := t.booked(by, fresh); !t.account(k).fits(booked) {
		_, ok := t.victim(now, k, k.slot(), by)
		return ok
	}
	over := t.over(by, fresh)
	if over <= 0 {
		return true
	}
	_, ok := t.victim(now, k, 0, over)
	return ok
}

// evicts makes the room that fits has promised. A fresh key may get the record
// that another leaves.
func (t *packed[S, P]) evicts(now Ticks, k Key, by int, fresh bool) (left uint32) {
	for {
		only := uint16(0)
		switch {
		case !t.account(k).fits(t.booked(by, fresh)):
			only = k.slot()
		case t.over(by, fresh) <= 0:
			return 0
		}
		ref, ok := t.victim(now, k, only, 0)
		if !ok {
			return 0
		}
		if fresh && t.class(ref) == 0 && t.over(0, false) <= 0 {
			t.leave(ref, now)
			return ref
		}
		t.leave(ref, now)
		t.release(ref)
	}
}

// victim returns whose place may be freed, by table's rules, if the sample holds
// enough to free so many bytes.
func (t *packed[S, P]) victim(now Ticks, spared Key, only uint16, bytes int) (ref uint32, ok bool) {
	if c := &t.chosen; c.ref != 0 && c.now == now && c.spared == spared && c.only == only && c.free >= bytes {
		return c.ref, true
	}
	c := choice{now: now, spared: spared, only: only}
	if t.n > 0 {
		t.choose(&c, bytes)
	}
	if t.chosen = c; c.ref == 0 {
		return 0, false
	}
	return c.ref, true
}

// choose looks at records that lie together, which is fast in a flood of new
// keys, and where they are all firm, as they may have come together, at such that
// do not. It moves on what found nothing, and leaves the rest for another call.
func (t *packed[S, P]) choose(c *choice, bytes int) {
	size := sample
	if c.only != 0 {
		size = wideSample
	}
	size = min(size, t.n)
	at := t.hand
	for range size {
		at = t.slab.next(at)
		if t.consider(c, at) && c.free >= bytes {
			return
		}
		at++
	}
	if c.ref != 0 && c.free >= bytes {
		return
	}
	t.hand = at
	i := t.wide % len(t.index)
	for seen := 0; seen < size; i = t.after(i) {
		if ref := t.index[i]; ref != 0 {
			seen++
			if t.consider(c, ref&(1<<tagShift-1)) && c.free >= bytes {
				return
			}
		}
	}
	if c.ref == 0 || c.free < bytes {
		c.ref, t.wide = 0, i
	}
}

// consider notes a record that may be freed, and reports whether it is worth
// nothing.
func (t *packed[S, P]) consider(c *choice, ref uint32) bool {
	r := t.record(ref)
	used, firm := r.standing(c.now)
	if firm || !c.takes(r.key()) {
		return false
	}
	c.free += t.cost(t.class(ref))
	if c.ref == 0 || used < c.used {
		c.ref, c.used = ref, used
	}
	return used == 0
}

func (c *choice) takes(k Key) bool { return k != c.spared && (c.only == 0 || k.slot() == c.only) }

// leave takes a record from its key, and moves the hand past it, so that all
// take their turn.
func (t *packed[S, P]) leave(ref uint32, now Ticks) {
	r := t.record(ref)
	if r.used(now) > 0 {
		t.evicted++
	}
	t.hand = ref + 1
	t.unlink(t.place(r.key()))
}

// charge charges c, unless there is no room for its state.
func (t *packed[S, P]) charge(now Ticks, c *Charge) bool {
	s := t.find(c.Key)
	if s == nil {
		if !t.fits(now, c.Key, t.cost(0), true) {
			return false
		}
		s = t.add(now, c.Key)
	}
	if size := P(s).room(now, c.Limit); size > len(t.from) {
		by := t.grows(size)
		if !t.fits(now, c.Key, by, false) {
			return false
		}
		t.evicts(now, c.Key, by, false)
		t.move(c.Key, size)
	}
	c.charge(now, P(&t.view))
	t.save()
	return true
}

// add loads a new state of k.
func (t *packed[S, P]) add(now Ticks, k Key) *S {
	ref := t.evicts(now, k, t.cost(0), true)
	if t.full() {
		t.reindex(t.larger())
	}
	if ref == 0 {
		ref = t.alloc(0)
	} else {
		clear(t.record(ref))
	}
	ref |= tag(k)
	t.record(ref).name(k)
	t.insert(k, ref)
	t.n++
	t.account(k).book(1, t.cost(0)+indexCost)
	t.load(k, ref)
	return &t.view
}

func (t *packed[S, P]) insert(k Key, ref uint32) {
	i := t.home(k)
	for t.index[i] != 0 {
		i = t.after(i)
	}
	t.index[i] = ref
}

// move gives k a record of size bytes.
func (t *packed[S, P]) move(k Key, size int) {
	i := t.place(k)
	t.load(k, t.index[i])
	old, class := t.index[i], sizeClass(size)
	t.account(k).book(0, t.cost(class)-t.cost(t.class(old)))
	ref := t.alloc(class) | tag(k)
	r := t.record(ref)
	r.name(k)
	P(&t.view).save(r)
	t.index[i] = ref
	t.release(old)
	t.load(k, ref)
}

// release frees a record that nothing refers to.
func (t *packed[S, P]) release(ref uint32) {
	t.loaded, t.chosen = Key{}, choice{} // records move
	ref &= 1<<tagShift - 1
	moved := t.free(ref)
	if moved == 0 {
		return
	}
	k := t.record(ref).key()
	i := t.home(k)
	for t.index[i] != moved|tag(k) {
		i = t.after(i)
	}
	t.index[i] = ref | tag(k)
}

// unlink forgets whom the record that is referred to at i belongs to.
func (t *packed[S, P]) unlink(i int) {
	t.loaded, t.chosen = Key{}, choice{}
	ref := t.index[i]
	t.account(t.record(ref).key()).book(-1, -t.cost(t.class(ref))-indexCost)
	t.n--
	for j := t.after(i); t.index[j] != 0; j = t.after(j) {
		// As in table.remove.
		home := t.home(t.record(t.index[j]).key())
		if behind := i < home && home <= j; i < j && behind || j < i && (i < home || home <= j) {
			continue
		}
		t.index[i] = t.index[j]
		i = j
	}
	t.index[i] = 0
}

// drop forgets k and returns whether it was kept.
func (t *packed[S, P]) drop(k Key) bool {
	i := t.place(k)
	if i < 0 {
		return false
	}
	ref := t.index[i]
	t.unlink(i)
	t.release(ref)
	return true
}

func (t *packed[S, P]) account(k Key) *Account {
	if t.accounts == nil {
		return nil
	}
	return t.accounts.of(k)
}

// reindex makes a new array of so many places.
func (t *packed[S, P]) reindex(places int) {
	old := t.index
	t.index = make([]uint32, places)
	for _, ref := range old {
		if ref != 0 {
			t.insert(t.record(ref).key(), ref)
		}
	}
}

// sweep drops what is worth nothing, and memory with it.
func (t *packed[S, P]) sweep(now Ticks) {
	t.shrink(now)
	live := 0
	for _, ref := range t.index {
		if ref != 0 && t.record(ref).used(now) > 0 {
			live++
		}
	}
	if size := chunkFor(t.bytesMax); live < t.n || t.chunk != size || live == 0 {
		t.rebuild(now, live, size)
	}
	t.trim()
}

// rebuild moves what is worth keeping into new memory.
func (t *packed[S, P]) rebuild(now Ticks, live, chunkBytes int) {
	old, index := t.slab, t.index
	t.slab, t.index, t.n, t.hand = newSlab(chunkBytes), nil, 0, 0
	t.loaded, t.chosen = Key{}, choice{}
	if live > 0 {
		t.index = make([]uint32, min(max(smallest, live*2), max(len(index), smallest)))
	}
	for _, ref := range index {
		if ref == 0 {
			continue
		}
		r, class := old.record(ref), old.class(ref)
		k := r.key()
		if r.used(now) == 0 {
			t.account(k).book(-1, -old.cost(class)-indexCost)
			continue
		}
		to := t.alloc(class)
		copy(t.record(to), r)
		t.insert(k, to|tag(k))
		t.n++
		t.account(k).book(0, t.cost(class)-old.cost(class))
	}
}

// shrink brings a table whose bound was lowered within it, the least used first.
func (t *packed[S, P]) shrink(now Ticks) {
	for t.n > 0 && t.costs+min(4*len(t.index), indexCost*t.n) > t.most() {
		ref, ok := t.victim(now, Key{}, 0, 0)
		if !ok { // all are firm: memory is bounded all the same
			ref = t.slab.next(t.hand)
		}
		t.leave(ref, now)
		t.release(ref)
	}
}
