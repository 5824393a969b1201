package maps

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func bareTable(lines int) *Table { return &Table{lines: make([]bpfLine, lines)} }

// drawSlot is a slot of some line and kind, dead or live at now.
func drawSlot(t *rapid.T, now uint64) bpfSlot {
	kind := rapid.Uint64Range(0, 3).Draw(t, "kind")
	denied := rapid.SampledFrom([]uint64{0, tagDenied}).Draw(t, "denied")
	// bits 32 and up choose the line
	line := rapid.Uint64Range(1, 1<<12).Draw(t, "line")
	key := rapid.Uint64Range(0, 1<<20).Draw(t, "key")
	ahead := rapid.Int64Range(-1000, 1000).Draw(t, "ahead")
	return bpfSlot{Tag: line<<32 | key<<4 | kind<<tagKindShift | denied, Tat: now + uint64(ahead)}
}

// Whatever the sizes, carrying keeps every live slot that has room, never one
// that is worth less while one that is worth more is lost, and says how many
// were lost; and merging the same again changes nothing.
func TestCarryKeepsWhatIsLive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.SampledFrom([]uint64{5000, 1 << 40, ^uint64(0) - 10}).Draw(t, "now")
		old := bareTable(1 << rapid.IntRange(0, 6).Draw(t, "old lines"))
		next := bareTable(1 << rapid.IntRange(0, 6).Draw(t, "new lines"))
		live := map[uint64]bpfSlot{}
		for range rapid.IntRange(0, 200).Draw(t, "slots") {
			s := drawSlot(t, now)
			if old.find(s.Tag&^tagFlags) != nil {
				continue
			}
			for w := range old.lineOf(s.Tag).Way {
				if way := &old.lineOf(s.Tag).Way[w]; way.Tag == 0 {
					*way = s
					if int64(s.Tat-now) > 0 {
						live[s.Tag&^tagFlags] = s
					}
					break
				}
			}
		}
		lost := old.carry(next, now)
		kept := 0
		for tag, s := range live {
			at := next.find(tag)
			if at != nil {
				kept++
				if *at != s {
					t.Fatalf("%x carried as %+v, was %+v", tag, *at, s)
				}
				continue
			}
			for _, way := range next.lineOf(tag).Way {
				if way.Tag == 0 || slotLess(way, s, now) {
					t.Fatalf("%+v was lost, %+v kept", s, way)
				}
			}
		}
		if kept+lost != len(live) {
			t.Fatalf("%d kept and %d lost of %d", kept, lost, len(live))
		}
		before := append([]bpfLine{}, next.lines...)
		if again := old.merge(next, now); again > lost {
			t.Fatalf("merged again: %d found no room, %d did before", again, lost)
		}
		for i := range before {
			if next.lines[i] != before[i] {
				t.Fatalf("merged again: line %d is %+v, was %+v", i, next.lines[i], before[i])
			}
		}
	})
}

// Two that merge into one table at once never give a key two slots, and what
// each brought is there: the emptier level of the two.
func TestMergeBesideOthers(t *testing.T) {
	const now, keys = 1000, 3000
	tables := [2]*Table{bareTable(1 << 10), bareTable(1 << 12)}
	want := map[uint64]uint64{}
	for i := range uint64(keys) {
		tag := (i*0x9e3779b97f4a7c15)&^(tagFlags|tagKind) | 1<<60
		for n, table := range tables {
			s := bpfSlot{Tag: tag, Tat: now + 1 + (i*uint64(n+7))%500}
			for w := range table.lineOf(tag).Way {
				if way := &table.lineOf(tag).Way[w]; way.Tag == 0 {
					*way = s
					want[tag] = max(want[tag], s.Tat)
					break
				}
			}
		}
	}
	into := bareTable(1 << 14)
	var wait sync.WaitGroup
	for range 2 {
		for _, table := range tables {
			wait.Go(func() { table.merge(into, now) })
		}
	}
	wait.Wait()
	seen := map[uint64]uint64{}
	for _, line := range into.lines {
		for _, way := range line.Way {
			if way.Tag == 0 {
				continue
			}
			if _, twice := seen[way.Tag]; twice {
				t.Fatalf("%x has two slots", way.Tag)
			}
			seen[way.Tag] = way.Tat
		}
	}
	missing := 0
	for tag, tat := range want {
		if got, ok := seen[tag]; !ok {
			missing++ // its line may be full
		} else if got != tat {
			t.Errorf("%x is at %d, want %d", tag, got, tat)
		}
	}
	if missing > keys/100 {
		t.Errorf("%d of %d found no room", missing, keys)
	}
}
