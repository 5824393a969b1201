package limit

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"io"
)

// Saved tells what became of the keys of a store that was saved or restored.
type Saved struct {
	Keys uint64 `json:"keys"` // kept
	Left uint64 `json:"left"` // left out: no room, or their rule is there no more
}

// ErrSaved means that what was saved is not whole, or of another version or
// secret.
var ErrSaved = errors.New("what was saved of the buckets is cut, or of another version or secret")

// savedMagic begins what Save writes, and says which version of it.
const savedMagic = "HGB1"

// Kinds of entry. An account comes before the keys that are in it.
const (
	savedAccount = 'a'
	savedShared  = 's' // the bucket that an account's keys without room share
	savedBucket  = 'b'
	savedLog     = 'l'
	savedCounter = 'c'
	savedTally   = 't'
	savedHeld    = 'h'
	savedEnd     = 'e'
)

// savable is a state that can be written down. Moments are written as seen from
// now, so that another clock can go on with them.
type savable interface {
	appendTo(b []byte, now Ticks) []byte
	readFrom(d *decoder, now Ticks)
}

// Save writes what keys have spent at now to w, about most bytes of it: first of
// those that are refused, or were since they were last full, then of others.
// What is full is left out, and so is what a fleet counts: it knows.
func (s *Store) Save(w io.Writer, now Ticks, most int) (Saved, error) {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	out := saver{w: bufio.NewWriterSize(w, 1<<16), sum: sum, now: now, left: most}
	out.write(append([]byte(savedMagic), s.check()...))
	s.saveAccounts(&out)
	for _, firm := range []bool{true, false} {
		for i := range s.shards {
			sh := &s.shards[i]
			sh.mu.Lock()
			sh.save(&out, firm)
			sh.mu.Unlock()
		}
	}
	out.write([]byte{savedEnd})
	end := sum.Sum(nil)
	if _, err := out.w.Write(end); out.err == nil {
		out.err = err
	}
	if err := out.w.Flush(); out.err == nil {
		out.err = err
	}
	return out.done, out.err
}

// check is the same for stores that make the same keys.
func (s *Store) check() []byte {
	k := s.hasher.Sum(AppendPart(nil, 'k', []byte("saved buckets")))
	return k.Append(nil)
}

func (s *Store) saveAccounts(out *saver) {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	for name, a := range s.names {
		if a.slot == 0 {
			continue
		}
		b := binary.LittleEndian.AppendUint16([]byte{savedAccount}, a.slot)
		out.write(name.Append(b))
		if kind, state := savedKind(a.shared); state != nil {
			b = binary.LittleEndian.AppendUint16([]byte{savedShared}, a.slot)
			out.write(state.appendTo(append(b, kind), out.now))
		}
	}
}

// savedKind returns what s is written as.
func savedKind(s state) (kind byte, as savable) {
	switch s := s.(type) {
	case *Bucket:
		return savedBucket, s
	case *Counter:
		return savedCounter, s
	case *Tally:
		return savedTally, s
	}
	return 0, nil
}

// save writes the firm keys of sh, or the others.
func (sh *shard) save(out *saver, firm bool) {
	saveTable(&sh.buckets, out, savedBucket, firm)
	savePacked(&sh.logs, out, savedLog, firm)
	savePacked(&sh.counters, out, savedCounter, firm)
	saveTable(&sh.tallies, out, savedTally, firm)
	saveTable(&sh.held, out, savedHeld, firm)
}

func saveTable[S any, P interface {
	*S
	kept
	savable
}](t *table[S, P], out *saver, kind byte, firm bool) {
	for i := range t.places {
		p := &t.places[i]
		state := P(&p.state)
		if p.key == (Key{}) || state.used(out.now) == 0 || state.firm(out.now) != firm {
			continue
		}
		out.key(kind, p.key, state)
	}
}

func savePacked[S any, P interface {
	*S
	packable
	savable
}](t *packed[S, P], out *saver, kind byte, firm bool) {
	var state S // the loaded one stays
	for _, ref := range t.index {
		if ref == 0 {
			continue
		}
		r := t.record(ref)
		if used, is := r.standing(out.now); used > 0 && is == firm {
			P(&state).load(r)
			out.key(kind, r.key(), P(&state))
		}
	}
}

type saver struct {
	w    *bufio.Writer
	sum  hash.Hash32
	now  Ticks
	left int // bytes that keys may still take
	room []byte
	done Saved
	err  error // the first
}

// key writes one key's state, if there is room.
func (o *saver) key(kind byte, k Key, state savable) {
	b := k.Append(append(o.room[:0], kind))
	if o.room = state.appendTo(b, o.now); len(o.room) > o.left {
		o.done.Left++
		return
	}
	o.left -= len(o.room)
	o.done.Keys++
	o.write(o.room)
}

func (o *saver) write(b []byte) {
	if o.err == nil {
		o.sum.Write(b)
		_, o.err = o.w.Write(b)
	}
}

// Restore charges to the keys of s what data says, which Save wrote that long
// before now. Rules must have their accounts, and no request be decided yet; what
// belongs to no account is left out.
func (s *Store) Restore(data []byte, now, ago Ticks) (Saved, error) {
	const end = 4
	if len(data) < end || crc32.Checksum(data[:len(data)-end], crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(data[len(data)-end:]) {
		return Saved{}, ErrSaved
	}
	d := &decoder{rest: data[:len(data)-end]}
	if string(d.take(len(savedMagic))) != savedMagic || !bytes.Equal(d.take(16), s.check()) {
		return Saved{}, ErrSaved
	}
	in := restorer{store: s, decoder: d, now: now, then: now - ago, accounts: map[uint16]*Account{}}
	for in.entry() {
	}
	if d.bad {
		return in.done, ErrSaved
	}
	return in.done, nil
}

type restorer struct {
	*decoder
	store     *Store
	now, then Ticks
	accounts  map[uint16]*Account // by the slot that they had
	done      Saved
}

// entry reads one entry. It returns false after the last, and where there is a
// fault.
func (r *restorer) entry() (more bool) {
	switch kind := r.byte(); kind {
	case savedAccount:
		slot, name := r.slot(), r.key()
		r.store.sharing.Lock()
		defer r.store.sharing.Unlock()
		r.accounts[slot] = r.store.names[name]
	case savedShared:
		r.shared(r.accounts[r.slot()], r.byte())
	case savedEnd:
		r.bad = r.bad || len(r.rest) > 0
		return false
	default:
		r.state(kind, r.key())
	}
	return !r.bad
}

// state reads the state of k.
func (r *restorer) state(kind byte, k Key) {
	switch kind {
	case savedBucket:
		var b Bucket
		b.readFrom(r.decoder, r.then)
		r.put(k, b.used, func(sh *shard, k Key) bool { return sh.buckets.restore(r.now, k, b) })
	case savedLog:
		var g Log
		g.readFrom(r.decoder, r.then)
		r.put(k, g.spent, func(sh *shard, k Key) bool { return sh.logs.restore(r.now, k, &g, g.size()) })
	case savedCounter:
		var c Counter
		c.readFrom(r.decoder, r.then)
		r.put(k, c.spent, func(sh *shard, k Key) bool { return sh.counters.restore(r.now, k, &c, c.size()) })
	case savedTally:
		var t Tally
		t.readFrom(r.decoder, r.then)
		r.put(k, t.used, func(sh *shard, k Key) bool { return sh.tallies.restore(r.now, k, t) })
	case savedHeld:
		var h held
		h.readFrom(r.decoder, r.then)
		r.put(k, h.used, func(sh *shard, k Key) bool { return sh.held.restore(r.now, k, h) })
	default:
		r.bad = true
	}
}

// shared reads the bucket that a's keys without room share; a may be nil.
func (r *restorer) shared(a *Account, kind byte) {
	var state interface {
		state
		savable
	}
	switch kind {
	case savedBucket:
		state = new(Bucket)
	case savedCounter:
		state = new(Counter)
	case savedTally:
		state = new(Tally)
	default:
		r.bad = true
		return
	}
	state.readFrom(r.decoder, r.then)
	if a == nil || r.bad {
		return
	}
	r.store.sharing.Lock()
	defer r.store.sharing.Unlock()
	if had, _ := savedKind(a.shared); had == kind {
		a.shared = state
	}
}

// put puts the state that was read to k, as this store has it, unless the state is
// worth nothing any more.
func (r *restorer) put(k Key, used func(now Ticks) float32, to func(*shard, Key) bool) {
	if r.bad || used(r.now) == 0 {
		return
	}
	if slot := k.slot(); slot != 0 {
		a := r.accounts[slot]
		if a == nil {
			r.done.Left++
			return
		}
		k.lo = k.lo&^(mostAccounts-1) | uint64(a.slot)
	}
	sh := r.store.shard(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if to(sh, k) {
		r.done.Keys++
	} else {
		r.done.Left++
	}
}

// restore makes s the state of k, unless there is no room.
func (t *table[S, P]) restore(now Ticks, k Key, s S) bool {
	to := t.put(k, now)
	if to != nil {
		*to = s
	}
	return to != nil
}

// restore makes s, whose record has size bytes, the state of k, unless there is no
// room or k has one.
func (t *packed[S, P]) restore(now Ticks, k Key, s P, size int) bool {
	if t.place(k) >= 0 || !t.fits(now, k, t.cost(sizeClass(size)), true) {
		return false
	}
	t.evicts(now, k, t.cost(sizeClass(size)), true)
	t.add(now, k)
	if size > len(t.from) {
		t.move(k, size)
	}
	s.save(t.from)
	t.loaded, t.chosen = Key{}, choice{}
	return true
}
