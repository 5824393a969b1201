package heavy

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Among more keys than there is room for, the heavy ones are kept, with what
// they did at least.
func TestHeavyKeysStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 20
		table, did, total := New[int](size), map[int]uint64{}, uint64(0)
		for i := range rapid.IntRange(1, 400).Draw(t, "steps") {
			k := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 1000)).Draw(t, "key")
			n := rapid.Uint64Range(1, 50).Draw(t, "n")
			table.Add(time.Duration(i)*time.Millisecond, k, Counts{Passed: n - n/2, Refused: n / 2})
			did[k] += n
			total += n
		}
		all, _ := table.Look(time.Second, Window)
		if len(all) > size {
			t.Fatalf("%d keys", len(all))
		}
		got := map[int]uint64{}
		for _, e := range all {
			got[e.Key] = e.Total()
			if e.Total() > did[e.Key] {
				t.Fatalf("key %d is said to have done %d, it did %d", e.Key, e.Total(), did[e.Key])
			}
		}
		for k, n := range did {
			if n > total/size && got[k] == 0 {
				t.Fatalf("key %d did %d of %d and is not known", k, n, total)
			}
			if len(did) <= size && got[k] != n {
				t.Fatalf("with room for all, key %d did %d, not %d", k, n, got[k])
			}
		}
	})
}

// What is older than the window falls out, also when nothing came for long.
func TestWindow(t *testing.T) {
	table := New[string](10)
	for at := time.Duration(0); at < 2*time.Minute; at += time.Second {
		table.Add(at, "steady", Counts{Passed: 1})
	}
	table.Add(2*time.Minute, "late", Counts{Refused: 3})
	for _, c := range []struct {
		at, window   time.Duration
		steady, late uint64
		over         time.Duration
	}{
		{2 * time.Minute, Window, 60, 3, time.Minute},
		{2 * time.Minute, 10 * time.Second, 10, 3, 10 * time.Second},
		{2*time.Minute + 7*time.Second, 10 * time.Second, 5, 3, 12 * time.Second},
		{2*time.Minute + 30*time.Second, Window, 30, 3, time.Minute},
		{5 * time.Minute, Window, 0, 0, time.Minute},
	} {
		all, over := table.Look(c.at, c.window)
		got := map[string]uint64{}
		for _, e := range all {
			got[e.Key] = e.Total()
		}
		if got["steady"] != c.steady || got["late"] != c.late || over != c.over {
			t.Errorf("at %v, of %v: %v over %v, want %d and %d over %v", c.at, c.window, got, over, c.steady, c.late, c.over)
		}
	}
}

// The order is that of who is refused most.
func TestSort(t *testing.T) {
	all := []Entry[int]{{1, Counts{Passed: 100}}, {2, Counts{Refused: 5}}, {3, Counts{Watched: 4, Passed: 3}}, {4, Counts{Passed: 7, Refused: 5}}}
	Sort(all)
	for i, want := range []int{4, 2, 3, 1} {
		if all[i].Key != want {
			t.Fatalf("order %v", all)
		}
	}
}

func BenchmarkAddNewKeys(b *testing.B) {
	table := New[int](2048)
	for i := 0; b.Loop(); i++ {
		table.Add(0, i, Counts{Refused: 1})
	}
}
