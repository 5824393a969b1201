package maps

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/cilium/ebpf"
)

// move is a field of a value in two layouts.
type move struct{ from, to, size uint32 }

// moves are the fields that both layouts of a map have. Those that are gone are
// lost.
func (c *carrying) moves(name string) (all []move) {
	was, is := c.was.Maps[name], c.is.Maps[name]
	var gone []string
	for _, f := range was.Value {
		if to, ok := is.find(f.Name); ok && to.Size == f.Size {
			all = append(all, move{f.At, to.At, f.Size})
		} else {
			gone = append(gone, f.Name)
		}
	}
	if len(gone) > 0 {
		c.lose("%s: this version has no %s", name, strings.Join(gone, ", "))
	}
	return all
}

func convertValue(value []byte, moves []move, size uint32) []byte {
	out := make([]byte, size)
	for _, m := range moves {
		copy(out[m.to:m.to+m.size], value[m.from:])
	}
	return out
}

// carryFields copies every entry, field by field. Like all that convert it
// returns false where it can carry nothing.
func carryFields(c *carrying, name string, old, made *ebpf.Map) (bool, error) {
	moves := c.moves(name)
	array := made.Type() == ebpf.Array || made.Type() == ebpf.PerCPUArray
	key, err := old.NextKeyBytes(nil)
	for ; err == nil && key != nil; key, err = old.NextKeyBytes(key) {
		if array && binary.NativeEndian.Uint32(key) >= made.MaxEntries() {
			c.lose("%s: what lies beyond the %d entries that this version has", name, made.MaxEntries())
			return true, nil
		}
		value, err := old.LookupBytes(key)
		if err != nil {
			return false, err
		}
		if value == nil || array && strings.Trim(string(value), "\x00") == "" {
			continue // gone meanwhile, or never used
		}
		if err := putConverted(made, key, value, moves); err != nil {
			return false, err
		}
	}
	return err == nil, err
}

// putConverted writes one value, of each CPU where it has one for each.
func putConverted(made *ebpf.Map, key, value []byte, moves []move) error {
	if made.Type() != ebpf.PerCPUArray {
		return made.Put(key, convertValue(value, moves, made.ValueSize()))
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	each := make([][]byte, cpus)
	stride := len(value) / cpus
	for cpu := range each {
		each[cpu] = convertValue(value[cpu*stride:], moves, made.ValueSize())
	}
	return made.Put(key, each)
}

// carryMeta carries the clock, the seed and the next limit id, if the clock and
// the seed mean the same; else the new maps have their own.
func carryMeta(c *carrying, name string, old, made *ebpf.Map) (bool, error) {
	if !c.sameTicks() {
		return false, nil
	}
	value, err := old.LookupBytes(uint32(0))
	if err != nil {
		return false, err
	}
	if err := putConverted(made, make([]byte, 4), value, c.moves(name)); err != nil {
		return false, err
	}
	var meta bpfMeta
	if err := made.Lookup(uint32(0), &meta); err != nil {
		return false, err
	}
	meta.Layout = LayoutVersion
	return true, made.Put(uint32(0), &meta)
}

// carryControl carries that the gate was opened by hand. All else of the entry
// is about tables that are written anew.
func carryControl(c *carrying, name string, old, made *ebpf.Map) (bool, error) {
	f, ok := c.was.Maps[name].find("flags")
	if !ok || f.Size != 4 {
		return false, nil
	}
	value, err := old.LookupBytes(uint32(0))
	if err != nil {
		return false, err
	}
	var control bpfControl
	if err := made.Lookup(uint32(0), &control); err != nil {
		return false, err
	}
	control.Flags |= binary.NativeEndian.Uint32(value[f.At:]) & controlOpen
	return true, made.Put(uint32(0), &control)
}

// carryPrefixes notes what was given to prefixes, for restorePrefixes: the
// tables also hold classes of rules, which this version writes anew.
func carryPrefixes(c *carrying, name string, old, _ *ebpf.Map) (bool, error) {
	if !c.was.Maps[name].same(c.is.Maps[name]) {
		return false, nil
	}
	return true, readHeld(old, func(p netip.Prefix, o own) { c.held[p] = o })
}

// restorePrefixes gives prefixes what they were given in the layout before.
func (g *Gate) restorePrefixes(held map[netip.Prefix]own) error {
	for p, o := range held {
		if err := g.lists.set(p, o); err != nil {
			return err
		}
	}
	return nil
}

// readHeld calls each for what the table of one family holds.
func readHeld(m *ebpf.Map, each func(netip.Prefix, own)) error {
	t, err := openPrefixTable(m, [4]uint64{}, false)
	if err != nil {
		return err
	}
	t.each(func(p netip.Prefix, v bpfPrefix) {
		if o := recordOwn(v); o != (own{}) {
			each(p, o)
		}
	})
	return t.close()
}
