package limit

import "sync/atomic"

// Account is one rule's part of a store: what its keys take together, and the
// bucket that those share which find no room. It outlives a change of the
// rule's figures. Make one with Store.Account.
type Account struct {
	name  Key
	slot  uint16       // in all keys of the rule; 0 belongs to no account
	most  atomic.Int64 // bytes; 0: as many as the store has
	keys  atomic.Int64
	bytes atomic.Int64

	// Guarded by store.sharing.
	limit  Limit // tenfold the rule's
	shared state
}

// mostAccounts is what 16 bits of a key can tell apart.
const mostAccounts = 1 << 16

// Key returns the key of the bucket that whom has in this account. Both whom and
// the account's name must be of Store.Key: as their bits are beyond anyone's
// choice, and so is how the names of two accounts differ, adding them bit by bit
// makes two buckets meet no more often than a hash of both would.
func (a *Account) Key(whom Key) Key {
	k := Key{a.name.hi ^ whom.hi, (a.name.lo^whom.lo)&^(mostAccounts-1) | uint64(a.slot)}
	if k == (Key{}) {
		k.hi = 1
	}
	return k
}

func (k Key) slot() uint16 { return uint16(k.lo) }

// Keys returns how many keys are kept, full ones included until they are swept.
func (a *Account) Keys() uint64 { return uint64(max(0, a.keys.Load())) }

// Bytes returns what they take, of the memory that they may.
func (a *Account) Bytes() uint64 { return uint64(max(0, a.bytes.Load())) }

// book adds keys and bytes, which may be negative.
func (a *Account) book(keys, bytes int) {
	if a == nil {
		return
	}
	a.keys.Add(int64(keys))
	a.bytes.Add(int64(bytes))
}

// fits reports whether bytes more are within the account's bound.
func (a *Account) fits(bytes int) bool {
	if a == nil {
		return true
	}
	most := a.most.Load()
	return most == 0 || a.bytes.Load()+int64(bytes) <= most
}

// Account returns the account of the rule called name, whose keys may take most
// bytes, 0 for no bound of their own. Keys that find no room share one bucket of
// ten times l. Asked again, it returns the same account with the new figures,
// and what is spent stays. One that is not used any more is dropped by Keep.
func (s *Store) Account(name Key, l Limit, most int64) *Account {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	a := s.names[name]
	if a == nil {
		a = &Account{name: name, slot: s.takeSlot()}
		s.names[name] = a
		if a.slot != 0 {
			s.accounts.set(a.slot, a)
		}
	}
	a.most.Store(most)
	l = l.tenfold()
	if a.shared == nil || a.limit.algorithm != l.algorithm {
		a.shared = newState(l.algorithm)
	}
	a.limit = l
	return a
}

// accounts finds an account by its slot, without a lock. Its second level is
// made as slots are used.
type accounts [256]atomic.Pointer[[256]atomic.Pointer[Account]]

func (t *accounts) of(k Key) *Account {
	slot := k.slot()
	if slot == 0 {
		return nil
	}
	return t[slot>>8].Load()[slot&255].Load()
}

func (t *accounts) set(slot uint16, a *Account) {
	page := t[slot>>8].Load()
	if page == nil {
		page = new([256]atomic.Pointer[Account])
		t[slot>>8].Store(page)
	}
	page[slot&255].Store(a)
}

// takeSlot returns a slot that no account has, 0 if there is none: then a rule
// is served without a bound and a count of its own.
func (s *Store) takeSlot() uint16 {
	if n := len(s.freed); n > 0 {
		slot := s.freed[n-1]
		s.freed = s.freed[:n-1]
		return slot
	}
	if s.slots < mostAccounts-1 {
		s.slots++
		return uint16(s.slots)
	}
	return 0
}

// Keep drops all accounts but those in use and those that still have keys,
// which a rule of the same name would find again. It is for the hour's sweep and
// for after a change of the rules.
func (s *Store) Keep(inUse []*Account) {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	used := make(map[*Account]bool, len(inUse))
	for _, a := range inUse {
		used[a] = true
	}
	for name, a := range s.names {
		if !used[a] && a.keys.Load() == 0 {
			delete(s.names, name)
			if a.slot != 0 {
				s.accounts.set(a.slot, nil)
				s.freed = append(s.freed, a.slot)
			}
		}
	}
}

func newState(a Algorithm) state {
	switch a {
	case SlidingLog:
		return new(Log)
	case SlidingCounter:
		return new(Counter)
	case FixedWindow, Quota:
		return new(Tally)
	}
	return new(Bucket)
}

// noAccountWait is what a charge without an account is told when there is no room: it
// is refused, and may try again soon.
const noAccountWait = 64e9 // 1 s

// wait returns until when the shared bucket refuses.
func (a *Account) wait(now Ticks) Ticks {
	if a == nil {
		return noAccountWait
	}
	return a.shared.wait(now, &a.limit)
}

// settle charges c to the shared bucket, if it is to be charged, and fills in
// its answer, in the figures of c's own limit.
func (a *Account) settle(now Ticks, c *Charge, taken bool) {
	if a == nil {
		c.Answer = Answer{Wait: noAccountWait, Under: noAccountWait, Reset: noAccountWait}
		return
	}
	if taken {
		a.shared.charge(now, &a.limit)
	}
	c.Answer = a.shared.answer(now, &a.limit)
	c.Answer.Remaining = min(c.Answer.Remaining, c.Limit.quota)
}
