package maps

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A bucket table is carried into another one of another size in two passes.
// carry fills the new one while no packet reads it; then the programs that read
// it take the place of the others; then merge brings over what the old one was
// charged between the two, while packets charge the new one.
//
// So a block by a rule's then holds throughout, and a bucket never forgets more
// than what it admitted in between: at most its burst.

// slotRank says which of two live slots is kept where a smaller table has no
// room for both: blocks before those that have refused before others, of each
// kind those that are worth most.
func slotRank(tag, tat, now uint64) (kind int, worth uint64) {
	switch {
	case bpfSlotKind(tag&tagKind>>tagKindShift) == bpfSlotKindSLOT_BLOCK:
		kind = 2
	case tag&tagDenied != 0:
		kind = 1
	}
	return kind, tat - now
}

func slotLess(a, b bpfSlot, now uint64) bool {
	kindA, worthA := slotRank(a.Tag, a.Tat, now)
	kindB, worthB := slotRank(b.Tag, b.Tat, now)
	return kindA < kindB || kindA == kindB && worthA < worthB
}

// slots calls each for every live slot, as it is read.
func (t *Table) slots(now uint64, each func(bpfSlot)) {
	for i := range t.lines {
		for w := range t.lines[i].Way {
			s := &t.lines[i].Way[w]
			tag := atomic.LoadUint64(&s.Tag)
			if tag == 0 || tag&tagReserved != 0 {
				continue
			}
			tat := atomic.LoadUint64(&s.Tat)
			// between the two reads the slot may have gone to another key
			if int64(tat-now) > 0 && atomic.LoadUint64(&s.Tag)&^tagDenied == tag&^tagDenied {
				each(bpfSlot{Tag: tag, Tat: tat})
			}
		}
	}
}

// lineOf is table_index of bpf/table.h.
func (t *Table) lineOf(tag uint64) *bpfLine { return &t.lines[(tag>>32)&uint64(len(t.lines)-1)] }

// carry copies the live slots into a table that no program reads yet. It
// returns how many found no room there.
func (t *Table) carry(into *Table, now uint64) (lost int) {
	t.slots(now, func(s bpfSlot) {
		line := into.lineOf(s.Tag)
		least := &line.Way[0]
		for w := range line.Way {
			way := &line.Way[w]
			if way.Tag == 0 {
				*way = s
				return
			}
			if slotLess(*way, *least, now) {
				least = way
			}
		}
		lost++
		if slotLess(*least, s, now) {
			*least = s
		}
	})
	return lost
}

// merge brings the live slots into a table that programs work on: a bucket is
// as empty as it is in either. It returns how many found no room.
func (t *Table) merge(into *Table, now uint64) (lost int) {
	t.slots(now, func(s bpfSlot) {
		if !into.raise(s, now) {
			lost++
		}
	})
	return lost
}

// raise makes the slot of s.Tag at least as empty as s says.
func (t *Table) raise(s bpfSlot, now uint64) bool {
	// who is claiming the slot may have been taken off its CPU in the middle
	const spins, tries = 64, 1000
	tag := s.Tag &^ tagFlags
	for try := range tries {
		slot := t.find(tag)
		if slot == nil {
			switch placed, busy := t.claim(s, now); {
			case placed:
				return true
			case !busy:
				return false
			}
			if runtime.Gosched(); try >= spins {
				time.Sleep(time.Millisecond)
			}
			continue
		}
		for tat := atomic.LoadUint64(&slot.Tat); int64(s.Tat-tat) > 0; tat = atomic.LoadUint64(&slot.Tat) {
			if atomic.CompareAndSwapUint64(&slot.Tat, tat, s.Tat) {
				break
			}
		}
		// a slot that has gone to another key meanwhile is looked for again
		if atomic.LoadUint64(&slot.Tag)&^tagDenied == tag {
			return true
		}
	}
	return false
}

// claim is table_claim of bpf/table.h for a key that has no slot, with the
// bucket at s.Tat. It evicts only for a block. busy: look again.
func (t *Table) claim(s bpfSlot, now uint64) (placed, busy bool) {
	tag := s.Tag &^ tagFlags
	line := t.lineOf(tag)
	own, old, free := chooseWay(line, s, now)
	if own < 0 {
		return false, false
	}
	slot := &line.Way[own]
	if !atomic.CompareAndSwapUint64(&slot.Tag, old, tag|tagReserved) {
		return false, true
	}
	if free && old != 0 && int64(atomic.LoadUint64(&slot.Tat)-now) > 0 {
		atomic.StoreUint64(&slot.Tag, old) // charged meanwhile
		return false, true
	}
	if rival(line, own, tag) {
		atomic.StoreUint64(&slot.Tag, 0)
		return false, true
	}
	atomic.StoreUint64(&slot.Tat, s.Tat)
	atomic.SwapUint64(&slot.Tag, s.Tag&^tagReserved)
	return true, false
}

// chooseWay is choose_slot of bpf/table.h.
func chooseWay(line *bpfLine, s bpfSlot, now uint64) (own int, old uint64, free bool) {
	own = -1
	least := bpfSlot{}
	kind, _ := slotRank(s.Tag, s.Tat, now)
	for w := range line.Way {
		tag, tat := atomic.LoadUint64(&line.Way[w].Tag), atomic.LoadUint64(&line.Way[w].Tat)
		if tag == 0 || tag&tagReserved == 0 && int64(tat-now) <= 0 {
			return w, tag, true
		}
		here := bpfSlot{Tag: tag, Tat: tat}
		if held, _ := slotRank(tag, tat, now); tag&tagReserved == 0 && kind == 2 && held < 2 && (own < 0 || slotLess(here, least, now)) {
			own, old, least = w, tag, here
		}
	}
	return own, old, false
}

// rival tells whether another way has the key, or is being claimed for it.
// Unlike the program it does not wait for a higher claim: it gives way to all.
func rival(line *bpfLine, own int, tag uint64) bool {
	for w := range line.Way {
		if t := atomic.LoadUint64(&line.Way[w].Tag) &^ tagDenied; w != own && (t == tag || t == tag|tagReserved) {
			return true
		}
	}
	return false
}
