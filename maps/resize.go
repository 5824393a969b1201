package maps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Slots is the number of places in the bucket table.
func (g *Gate) Slots() uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.meta.Lines * ways
}

// Resize makes a bucket table of so many slots, carries the live buckets over
// and puts programs that work on it in the place of those in force. It returns
// how many live buckets found no room in a smaller table: those that are worth
// least, blocks by a rule's then last of all.
//
// The old table is charged until the programs are replaced, some milliseconds
// after it was copied, and what it was charged is brought over right after: a
// source gets at most its burst once more. Others that change the gate wait, for
// about a second. Slots are as in Options; after an error the old table is in
// force.
func (g *Gate) Resize(slots uint32) (lost int, err error) {
	spec, err := loadBpf()
	if err != nil {
		return 0, fmt.Errorf("read the embedded program: %w", err)
	}
	if err := resize(spec, Options{Slots: slots}); err != nil {
		return 0, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.meta.Lines == slots/ways {
		return 0, nil
	}
	m, err := ebpf.NewMap(spec.Maps["buckets"])
	if err != nil {
		return 0, mapError("buckets", "", err)
	}
	meta := g.meta
	meta.Lines = slots / ways
	next, err := openTable(m, meta)
	if err != nil {
		return 0, errors.Join(err, m.Close())
	}
	programs, err := g.programsOn(spec, g.mapsByName(), meta, "buckets", m)
	if err != nil {
		return 0, errors.Join(err, next.close(), m.Close())
	}
	lost = g.table.carry(next, g.now())
	if err := g.repin("buckets", m); err != nil {
		programs.close()
		return 0, errors.Join(err, next.close(), m.Close())
	}
	if err := g.replace(programs); err != nil {
		programs.close()
		return 0, errors.Join(err, g.repin("buckets", g.objects.Buckets), next.close(), m.Close())
	}
	waitForReaders()
	g.table.merge(next, g.now())
	return lost, g.useTable(next, m, meta)
}

// useTable makes a table that is in force the gate's.
func (g *Gate) useTable(next *Table, m *ebpf.Map, meta bpfMeta) error {
	g.tableHeld.Lock()
	defer g.tableHeld.Unlock()
	was, old := g.table, g.objects.Buckets
	g.table, g.objects.Buckets, g.meta = next, m, meta
	err := g.objects.Metas.Put(uint32(0), &meta)
	if err != nil {
		err = fmt.Errorf("write the maps' meta data: %w", err)
	}
	return errors.Join(err, was.close(), old.Close())
}
