package maps

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// The most prefixes of a family that rules and lists may name together, unless
// Options say otherwise.
const (
	mostPrefixes4 = 1 << 20
	mostPrefixes6 = 1 << 18
)

// prefixStore is the tables of what holds by prefix, one a family, and the roots
// that lead into them.
type prefixStore struct {
	gate   *Gate
	tables [2]*prefixTable
	roots  *roots
	held   bart.Lite
	bounds [2]int
	writes uint64 // so far
}

// openPrefixes maps the tables into memory and calls each for all they hold.
func openPrefixes(g *Gate, bounds [2]int, each func(netip.Prefix, bpfPrefix)) (*prefixStore, error) {
	s := &prefixStore{gate: g, bounds: bounds}
	var err error
	for f, m := range g.prefixMaps() {
		if s.tables[f], err = openPrefixTable(m, g.meta.Seed, true); err != nil {
			return nil, err
		}
	}
	if s.roots, err = openRoots(g, &s.held); err != nil {
		return nil, err
	}
	for _, t := range s.tables {
		t.each(func(p netip.Prefix, v bpfPrefix) {
			t.held++
			s.held.Insert(p)
			each(p, v)
		})
	}
	s.roots.recount()
	s.count()
	return s, nil
}

func (s *prefixStore) close() error {
	err := s.roots.close()
	for _, t := range s.tables {
		err = errors.Join(err, t.close())
	}
	return err
}

// count lets the program spare the look into an empty table.
func (s *prefixStore) count() { s.gate.control.setPrefixes(s.held.Size4(), s.held.Size6()) }

// room tells of the table of a family.
func (s *prefixStore) room(f int) Room {
	return Room{Held: s.tables[f].held, Bound: s.bounds[f]}
}

// put writes the record of p; the program sees the old one or the new one.
func (s *prefixStore) put(p netip.Prefix, value bpfPrefix) error {
	s.writes++
	if s.held.Get(p) {
		s.tables[family(p)].put(p, value)
		return nil
	}
	f := family(p)
	if r := s.room(f); r.Held >= r.Bound {
		return fmt.Errorf("write prefix %s: the table has room for %d", p, r.Bound)
	}
	for s.tables[f].crowded(1) || !s.tables[f].put(p, value) {
		if err := s.gate.growLocked(f, s.tables[f].places()); err != nil {
			return fmt.Errorf("write prefix %s: %w", p, err)
		}
	}
	s.held.Insert(p)
	s.roots.add(p)
	s.count()
	s.gate.growAhead(f, s.tables[f])
	return nil
}

// remove takes p out. The roots go first: they must not lead to a place that is
// empty where another prefix covers.
func (s *prefixStore) remove(p netip.Prefix) {
	if !s.held.Get(p) {
		return
	}
	s.writes++
	s.held.Delete(p)
	s.roots.remove(p)
	s.tables[family(p)].remove(p)
	s.count()
}

// size is how many prefixes of a family are held.
func (s *prefixStore) size(f int) int {
	if f == 0 {
		return s.held.Size4()
	}
	return s.held.Size6()
}

// missing returns the prefixes of a family that are held and not in its table,
// but in the places that are wrong.
func (s *prefixStore) missing(f int, wrong []uint32) (faults []Fault) {
	for p := range s.held.All() {
		if family(p) != f {
			continue
		}
		if place, ok := s.tables[f].find(p); !ok || slices.Contains(wrong, place) {
			faults = append(faults, Fault{p, "missing"})
		}
	}
	return faults
}
