package limit

import (
	"testing"

	"pgregory.net/rapid"
)

// mark is a state for the table's own tests.
type mark struct {
	value uint64
	share float32

	firmly bool
}

func (m *mark) used(Ticks) float32 { return m.share }
func (m *mark) firm(Ticks) bool    { return m.firmly }

type markTable = table[mark, *mark]

// TestTableModel compares a table that is large enough with a Go map.
func TestTableModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab, model := markTable{most: 1 << 20}, map[Key]mark{}
		key := rapid.Custom(func(t *rapid.T) Key {
			// Few homes, so that probing runs into others and around the end.
			n := rapid.Uint64Range(1, 60).Draw(t, "key")
			return Key{n, rapid.SampledFrom([]uint64{1, 1 << 63, 1<<64 - 1}).Draw(t, "home")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), mark{value: rapid.Uint64().Draw(t, "value"), share: 1}
				*tab.put(k, 0) = v
				model[k] = v
			},
			"remove": func(t *rapid.T) {
				k := key.Draw(t, "key")
				if tab.find(k) != nil {
					tab.remove(indexOf(&tab, k))
					delete(model, k)
				}
			},
			"sweep": func(*rapid.T) { tab.sweep(0) },
			"": func(t *rapid.T) {
				if tab.n != len(model) {
					t.Fatalf("%d states, want %d", tab.n, len(model))
				}
				for k, v := range model {
					if s := tab.find(k); s == nil || *s != v {
						t.Fatalf("key %v: %v, want %v", k, s, v)
					}
				}
				if tab.n*4 > len(tab.places)*3 {
					t.Fatalf("%d of %d places taken", tab.n, len(tab.places))
				}
			},
		})
	})
}

func indexOf(t *markTable, k Key) int {
	for i := range t.places {
		if t.places[i].key == k {
			return i
		}
	}
	return -1
}

func TestTableSweepDropsIdle(t *testing.T) {
	tab := markTable{most: 1 << 20}
	for i := range uint64(1000) {
		*tab.put(Key{1, i << 50}, 0) = mark{share: float32(i % 10 / 9)}
	}
	tab.sweep(0)
	if tab.n != 100 || len(tab.places) > 200 {
		t.Fatalf("%d states in %d places, want 100 in at most 200", tab.n, len(tab.places))
	}
	for i := range uint64(1000) {
		if kept := tab.find(Key{1, i << 50}) != nil; kept != (i%10 == 9) {
			t.Fatalf("state %d kept: %v", i, kept)
		}
	}
}

func TestTableEvictsLeastUsed(t *testing.T) {
	tab := markTable{most: 1000}
	put := func(i uint64, share float32) { *tab.put(Key{i, i * 0x9e3779b97f4a7c15}, 0) = mark{share: share} }
	for i := range uint64(200) {
		put(i+1, 1) // spent all they had
	}
	for i := range uint64(50_000) {
		put(1000+i, 0.1) // come and ask once
	}
	if tab.n > 751 || len(tab.places) != 1000 {
		t.Fatalf("%d states in %d places", tab.n, len(tab.places))
	}
	lost := 0
	for i := range uint64(200) {
		if tab.find(Key{i + 1, (i + 1) * 0x9e3779b97f4a7c15}) == nil {
			lost++
		}
	}
	// A sample of 16 holds none but heavy users with odds of (200/750)^16.
	if lost > 0 {
		t.Fatalf("%d of 200 heavy users forgotten for 50000 light ones", lost)
	}
	if want := uint64(50_200 - tab.n); tab.evicted != want {
		t.Fatalf("%d evictions counted, want %d", tab.evicted, want)
	}
}
