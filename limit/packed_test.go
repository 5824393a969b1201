package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever grows, gives way, is reset and swept, a store of logs and counters
// stays within its bound, books what it holds, and finds all of it.
func TestPackedBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		memory := 1 << rapid.IntRange(17, 20).Draw(t, "memory")
		s, now := NewStore(memory), Ticks(1)
		var rules [4]packedRule
		for i := range rules {
			a := []Algorithm{SlidingLog, SlidingCounter}[i%2]
			l := mustWindow(t, a, rapid.Int64Range(1, 600).Draw(t, "n"), time.Minute)
			most := rapid.SampledFrom([]int64{0, 0, 20_000}).Draw(t, "most")
			account, key := account(s, string(rune('a'+i)), l, most)
			rules[i] = packedRule{account, key, l, most}
		}
		for range 40 {
			r := &rules[rapid.IntRange(0, 3).Draw(t, "rule")]
			switch rapid.IntRange(0, 9).Draw(t, "action") {
			case 0:
				now += rapid.Uint64Range(0, 2*r.l.window).Draw(t, "pause")
			case 1:
				s.Sweep(now)
			case 2:
				s.Reset(r.key(rapid.IntRange(0, 50).Draw(t, "key")), &r.l)
			default:
				first, keys := rapid.IntRange(0, 5000).Draw(t, "first"), rapid.IntRange(1, 1500).Draw(t, "keys")
				for times := rapid.IntRange(1, 30).Draw(t, "times"); times > 0; times-- {
					for n := range keys / times {
						ask(s, r.account, r.key(first+n), &r.l, now)
					}
					now += r.l.window / 40
				}
			}
			if st := s.Stats(); st.Bytes > uint64(memory) {
				t.Fatalf("%d bytes of %d", st.Bytes, memory)
			}
			bookedRight(t, s, rules[:])
		}
	})
}

type packedRule struct {
	account *Account
	key     func(n int) Key
	l       Limit
	most    int64
}

// bookedRight fails unless accounts and tables agree with the records.
func bookedRight(t *rapid.T, s *Store, rules []packedRule) {
	keys, bytes := map[uint16]uint64{}, map[uint16]uint64{}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.logs.tell(t, keys, bytes)
		sh.counters.tell(t, keys, bytes)
	}
	for _, r := range rules {
		slot := r.account.slot
		if r.account.Keys() != keys[slot] || r.account.Bytes() != bytes[slot] {
			t.Fatalf("account %d: %d keys in %d bytes, want %d in %d", slot, r.account.Keys(), r.account.Bytes(), keys[slot], bytes[slot])
		}
		if r.most > 0 && bytes[slot] > uint64(r.most) {
			t.Fatalf("account %d: %d bytes, bound %d", slot, bytes[slot], r.most)
		}
	}
}

// tell adds what the table holds of each account, and fails if that is not found.
func (t *packed[S, P]) tell(test *rapid.T, keys, bytes map[uint16]uint64) {
	n, costs := 0, 0
	for i, ref := range t.index {
		if ref == 0 {
			continue
		}
		k, cost := t.record(ref).key(), t.cost(t.class(ref))
		if t.place(k) != i {
			test.Fatalf("%v is not found", k)
		}
		keys[k.slot()]++
		bytes[k.slot()] += uint64(cost + indexCost)
		n, costs = n+1, costs+cost
	}
	records, held := 0, 0
	for i, c := range t.chunks {
		records, held = records+int(c.n), held+len(c.data)+chunkCost
		if c.n > 0 && t.last[c.class] != uint32(i) && int(c.n) < t.slots(c.class) {
			test.Fatalf("chunk %d has %d records and is not the last of its size", i, c.n)
		}
	}
	for _, spare := range t.spares {
		held += len(spare) + chunkCost
	}
	held -= len(t.unused) * chunkCost
	if n != t.n || records != n || costs != t.costs || held != t.held && t.chunks != nil {
		test.Fatalf("%d keys, %d records, costs %d, held %d; want %d, costs %d, held %d", t.n, records, t.costs, t.held, n, costs, held)
	}
}
