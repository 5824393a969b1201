package limit

import (
	"fmt"
	"testing"
	"time"
)

// account returns an account of l and a way to make its keys.
func account(s *Store, name string, l Limit, most int64) (*Account, func(n int) Key) {
	a := s.Account(s.Key([]byte(name)), l, most)
	return a, func(n int) Key { return a.Key(s.Key(fmt.Appendf(nil, "%s %d", name, n))) }
}

func ask(s *Store, a *Account, k Key, l *Limit, now Ticks) (bool, Charge) {
	c := []Charge{{Key: k, Limit: l, Account: a}}
	ok := s.Take(now, c)
	return ok, c[0]
}

// RC-038: made-up keys cannot take the place of who is refused, whatever the
// algorithm, and once there is no room none passes uncounted: strangers share
// ten times the limit.
func TestFloodOfKeys(t *testing.T) {
	const victims, strangers = 50, 60_000
	for name, l := range kinds(t, 2) {
		t.Run(name, func(t *testing.T) {
			s := NewStore(1 << 20)
			a, key := account(s, "rule", l, 0)
			for n := range victims {
				for range 3 {
					ask(s, a, key(-1-n), &l, 1)
				}
			}
			passed, shared := 0, 0
			for n := range strangers {
				for range 3 { // each is refused once: its place is firm
					ok, c := ask(s, a, key(n), &l, 1)
					if c.Shared {
						shared++
						if ok {
							passed++
						}
					}
				}
			}
			if shared == 0 || passed == 0 || passed > 20 {
				t.Errorf("%d of %d passed without a place of their own, want 1 to 20", passed, shared)
			}
			if st := s.Stats(); st.Bytes > 1<<20 || st.Evicted != 0 || st.Overflowed != uint64(shared) {
				t.Errorf("%+v: over the bound, a firm key gave way, or not counted (%d)", st, shared)
			}
			for n := range victims {
				if ok, c := ask(s, a, key(-1-n), &l, 1); ok || c.Shared {
					t.Fatalf("victim %d was forgotten", n)
				}
			}
			s.Sweep(FromDuration(100 * time.Hour))
			if st := s.Stats(); st.Keys != 0 || st.Bytes != 0 || a.Keys() != 0 || a.Bytes() != 0 {
				t.Errorf("after a hundred hours %+v, account %d keys", st, a.Keys())
			}
		})
	}
}

// Strangers who ask once each do give way to each other, and never lock out who
// comes new.
func TestFloodOfLightKeys(t *testing.T) {
	s, l := NewStore(1<<20), mustRate(t, 10, time.Hour, 10)
	a, key := account(s, "rule", l, 0)
	for n := range 10 {
		for range 12 {
			ask(s, a, key(-1-n), &l, 1)
		}
	}
	for n := range 100_000 {
		if ok, c := ask(s, a, key(n), &l, 1); !ok || c.Shared {
			t.Fatalf("stranger %d: %v, shared %v", n, ok, c.Shared)
		}
	}
	for n := range 10 {
		if ok, _ := ask(s, a, key(-1-n), &l, 1); ok {
			t.Fatalf("who was refused was forgotten for strangers")
		}
	}
	if st := s.Stats(); st.Evicted == 0 || st.Overflowed != 0 {
		t.Errorf("%+v", st)
	}
}

// A rule's own bound holds for it alone, and its keys give way to each other
// only.
func TestAccountBound(t *testing.T) {
	for name, l := range kinds(t, 10) {
		t.Run(name, func(t *testing.T) {
			const most = 64 << 10
			s := NewStore(8 << 20)
			other, otherKey := account(s, "other", l, 0)
			for n := range 1000 {
				ask(s, other, otherKey(n), &l, 1)
			}
			a, key := account(s, "rule", l, most)
			for n := range 20_000 {
				ask(s, a, key(n), &l, 1)
			}
			if a.Bytes() > most || a.Keys() < 200 {
				t.Errorf("%d bytes for %d keys, at most %d", a.Bytes(), a.Keys(), most)
			}
			if other.Keys() != 1000 {
				t.Errorf("%d keys of the other rule are left", other.Keys())
			}
			s.Sweep(FromDuration(100 * time.Hour))
			if a.Keys() != 0 || a.Bytes() != 0 || other.Keys() != 0 {
				t.Errorf("after a hundred hours %d and %d keys", a.Keys(), other.Keys())
			}
		})
	}
}

// An account is found again with what was spent, and dropped when its rule and
// its keys are gone.
func TestAccountsOutliveRules(t *testing.T) {
	s, l := NewStore(1<<20), mustRate(t, 1, time.Hour, 1)
	a, key := account(s, "rule", l, 0)
	ask(s, a, key(1), &l, 1)
	s.Keep(nil)
	b, key := account(s, "rule", l, 0)
	if ok, _ := ask(s, b, key(1), &l, 1); ok || a != b {
		t.Fatal("the account forgot what was spent")
	}
	s.Reset(key(1), &l)
	s.Keep(nil)
	if c, _ := account(s, "rule", l, 0); c == b {
		t.Error("an account without rule and keys was kept")
	}
	for n := range 300 { // slots are used again
		account(s, fmt.Sprint("rule ", n), l, 0)
		s.Keep(nil)
	}
	if s.slots > 3 {
		t.Errorf("%d slots were used for one rule at a time", s.slots)
	}
}

// A bound that is lowered holds after the next sweep, for those in use first
// the least used go.
func TestLowerMemory(t *testing.T) {
	s := NewStore(8 << 20)
	all := kinds(t, 4)
	for name, l := range all {
		a, key := account(s, name, l, 0)
		for n := range 2000 {
			for range 1 + n%6 {
				ask(s, a, key(n), &l, 1)
			}
		}
	}
	s.SetMemory(256 << 10)
	s.Sweep(1)
	if st := s.Stats(); st.Bytes > 256<<10 || st.Keys == 0 || st.Evicted == 0 {
		t.Errorf("%+v, at most %d bytes", st, 256<<10)
	}
	var total uint64
	for name, l := range all {
		a, key := account(s, name, l, 0)
		total += a.Keys()
		ask(s, a, key(1<<30), &l, 1)
	}
	if st := s.Stats(); total == 0 || st.Bytes > 300<<10 {
		t.Errorf("%d keys booked, then %+v", total, st)
	}
}

// A key of the table itself is never taken for another by its account's slot.
func TestKeysOfAccountsDiffer(t *testing.T) {
	s, l := NewStore(1<<20), mustRate(t, 1, time.Hour, 1)
	a, _ := account(s, "a", l, 0)
	b, _ := account(s, "b", l, 0)
	whom := s.Key([]byte("same"))
	if a.Key(whom) == b.Key(whom) || a.Key(whom) == whom || a.Key(whom).slot() == 0 {
		t.Error("keys of two accounts meet")
	}
}

// Without an account there is nothing to share: who finds no room is refused.
func TestNoRoomNoAccount(t *testing.T) {
	s, l := NewStore(64<<10), mustRate(t, 1, time.Hour, 1)
	refused := 0
	for n := range uint64(5000) {
		if ok, a := (&inStore{s: s, k: s.numbered(n), l: l}).take(1); !ok {
			if refused++; a.Wait == 0 {
				t.Fatal("refused without a wait")
			}
		}
	}
	if refused < 3000 {
		t.Errorf("%d refused for want of room", refused)
	}
}
