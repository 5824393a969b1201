package limit

import "testing"

// How full a store is says when keys begin to give way, of each kind for itself
// and of a rule with a bound of its own.
func TestFill(t *testing.T) {
	for name, l := range kinds(t, 10) {
		t.Run(name, func(t *testing.T) {
			s := NewStore(1 << 20)
			a, key := account(s, "rule", l, 0)
			held := func(a *Account) Held {
				f := s.Fills()
				return s.Held(a, &l, &f)
			}
			if h := held(a); h.Fill != 0 || h.Keys != 0 || h.Bound == 0 || h.Bound >= 1<<20 {
				t.Fatalf("empty: %+v", h)
			}
			n, last := 0, 0.0
			for ; s.Stats().Evicted == 0; n++ {
				if n%500 == 0 {
					if h := held(a); h.Fill < last || h.Keys != uint64(n) || n > 0 && h.Bytes == 0 {
						t.Fatalf("%d keys: %+v after %v", n, h, last)
					}
					last = held(a).Fill
				}
				ask(s, a, key(n), &l, 1)
			}
			if h, st := held(a), s.Stats(); h.Fill < 0.8 || h.Fill > 1.01 || st.Fill != h.Fill || st.Bound != 1<<20 {
				t.Errorf("when the first gave way: %+v, %+v", h, st)
			}
			s = NewStore(1 << 20)
			small, smallKey := account(s, "small", l, 32<<10)
			for n := range 2000 {
				ask(s, small, smallKey(n), &l, 1)
			}
			if h := held(small); h.Bound != 32<<10 || h.Fill < 0.95 || h.Fill > 1 || s.Stats().Fill > 0.5 {
				t.Errorf("with a bound of its own %+v, the store %+v", h, s.Stats())
			}
		})
	}
}
