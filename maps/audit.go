package maps

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"unsafe"

	"github.com/cilium/ebpf"
)

// Fault is an entry that somebody else has changed in the pinned maps.
type Fault struct {
	Prefix netip.Prefix
	What   string // missing, changed or foreign
}

// Audit is what was found different from what was written.
type Audit struct {
	Prefixes []Fault // of blocks, allows and rules; they are as they should be again
	Control  bool    // so was the control entry, or the roots of the prefixes; the same
	Rules    bool    // the tables of rules: SetRules puts them right
}

// ErrBusy is returned by Audit when prefixes were changed by this process while
// it read them, so that it cannot tell who did.
var ErrBusy = errors.New("the tables changed while they were read")

// Audit compares the pinned maps with what was written to them, and puts right
// what others have changed there, but for the tables of rules. It reads all
// entries; changes by this process wait for a few milliseconds at a time, or,
// with hold, until it is done.
func (g *Gate) Audit(hold bool) (a Audit, err error) {
	a.Control = g.auditControl()
	if a.Rules, err = g.auditRules(); err != nil {
		return a, err
	}
	for f := range g.lists.prefixes.tables {
		faults, err := g.auditPrefixes(f, hold)
		a.Prefixes = append(a.Prefixes, faults...)
		if err != nil {
			return a, err
		}
	}
	return a, nil
}

// auditControl puts right the control entry and the roots, but for what others
// than this process may write there: whether the gate is open, and the leash.
func (g *Gate) auditControl() (different bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if g.written != nil && g.control.generation() != g.written.generation {
		different = true
		g.control.setGeneration(g.written.generation)
	}
	was := *g.control.fields
	g.lists.prefixes.count()
	different = g.lists.prefixes.roots.audit() || different
	is := g.control.fields
	const ours = controlWhole4 | controlWhole6
	return different || was.Prefixes4 != is.Prefixes4 || was.Prefixes6 != is.Prefixes6 ||
		was.Short6 != is.Short6 || was.Long6 != is.Long6 || was.Flags&ours != is.Flags&ours
}

// auditLot is how many lines of a table are looked at while others wait.
const auditLot = 512

// auditPrefixes compares the table of a family with what it is to hold.
func (g *Gate) auditPrefixes(f int, hold bool) ([]Fault, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.lists.prefixes
	t, writes, right := s.tables[f], s.writes, 0
	var wrong []uint32
	var faults []Fault
	for first := uint32(0); first <= t.mask; first += auditLot {
		if first > 0 && !hold {
			g.mu.Unlock() // others may have their turn
			g.mu.Lock()
		}
		if g.closed || s.tables[f] != t || s.writes != writes {
			return nil, ErrBusy
		}
		t.eachPlace(first, min(auditLot, t.mask+1-first), func(place uint32, p netip.Prefix, v bpfPrefix) {
			at, found := t.find(p)
			switch {
			case !found || at != place || !s.held.Get(p):
				wrong, faults = append(wrong, place), append(faults, Fault{p, "foreign"})
			case v != g.lists.value(p):
				faults = append(faults, Fault{p, "changed"})
				right++
			default:
				right++
			}
		})
	}
	if right < s.size(f) {
		faults = append(faults, s.missing(f, wrong)...)
	}
	return faults, g.repairPrefixes(t, wrong, faults)
}

// repairPrefixes puts right what is wrong with a table. What is to be there is
// written before what is not is taken away.
func (g *Gate) repairPrefixes(t *prefixTable, wrong []uint32, faults []Fault) error {
	for _, fault := range faults {
		if fault.What == "foreign" {
			continue
		}
		if fault.What == "missing" {
			t.held-- // it comes anew
		}
		if !t.put(fault.Prefix, g.lists.value(fault.Prefix)) {
			return fmt.Errorf("put prefix %s back: the table has no place for it", fault.Prefix)
		}
	}
	for _, place := range wrong {
		t.clear(place)
	}
	return nil
}

// written is what a generation of the rules' tables was made of.
type written struct {
	generation uint32
	seed       maphash.Seed
	arrays     []writtenArray
}

// writtenArray is one of them: how many entries from its start, and their sum.
type writtenArray struct {
	size int
	sum  uint64
	read func(generation uint32, size int) (uint64, error)
}

// writtenOf notes what is in t, which was written to the tables of generation.
func (g *Gate) writtenOf(generation uint32, t *tables) *written {
	o := &g.objects
	w := &written{generation: generation, seed: maphash.MakeSeed()}
	noteArray(w, o.Classes, groups(t.classes))
	noteArray(w, o.Crossings, groups(t.crossings))
	noteArray(w, o.LimitSets, t.sets)
	noteArray(w, o.Limits, t.limits)
	noteArray(w, o.Extras, t.extras)
	noteArray(w, o.Plans, []bpfPlan{t.plan})
	return w
}

func noteArray[V any](w *written, m *ebpf.Map, values []V) {
	w.arrays = append(w.arrays, writtenArray{
		size: len(values), sum: sumOf(w.seed, values),
		read: func(generation uint32, size int) (uint64, error) {
			values, err := readArray[V](m, generation, size)
			return sumOf(w.seed, values), err
		},
	})
}

func sumOf[V any](seed maphash.Seed, values []V) uint64 {
	if len(values) == 0 {
		return 0
	}
	size := len(values) * int(unsafe.Sizeof(values[0]))
	return maphash.Bytes(seed, unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), size))
}

// readArray reads what writeArray wrote.
func readArray[V any](m *ebpf.Map, generation uint32, size int) ([]V, error) {
	values := make([]V, size)
	for i := range values {
		if err := m.Lookup(generation*m.MaxEntries()/2+uint32(i), &values[i]); err != nil {
			return nil, fmt.Errorf("read %s: %w", m, err)
		}
	}
	return values, nil
}

// auditRules reports whether the rules' tables in force are others than those
// written.
func (g *Gate) auditRules() (different bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.written == nil || g.closed {
		return false, nil
	}
	for _, a := range g.written.arrays {
		sum, err := a.read(g.written.generation, a.size)
		if err != nil {
			return false, err
		}
		different = different || sum != a.sum
	}
	return different, nil
}
