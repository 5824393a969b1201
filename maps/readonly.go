package maps

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/gaissmai/bart"
	"golang.org/x/sys/unix"
)

// Pinned is what the pinned maps of a network gate hold.
type Pinned struct {
	Blocks  map[netip.Prefix]time.Time // ends; the zero time: never
	Allows  []netip.Prefix
	Struck  []Struck            // blocked by a rule's then, of whom no daemon was told
	Rules   map[string]Counters // by rule name
	Reasons []ReasonCount
	Table   TableStats
	Opened  bool // to everything, by SetOpen
	Leashed bool // everything passes, for no daemon has been seen for the leash
}

// Inspect reads the maps pinned under pins, for the time when no daemon can be
// asked. It loads no program and writes nothing, so it may run beside a
// daemon.
//
// Where nothing is pinned the error is an fs.ErrNotExist; others say what is
// missing: privilege (CAP_BPF), or a layout of pins that this version reads.
func Inspect(pins string) (Pinned, error) {
	dir, err := inForce(pins)
	if err != nil {
		return Pinned{}, err
	}
	g, err := openReadOnly(dir)
	if err != nil {
		return Pinned{}, err
	}
	defer g.objects.Close()
	if g.table != nil {
		defer g.table.close()
	}
	return g.pinned()
}

// openReadOnly opens of a gate only what Inspect reads.
func openReadOnly(dir string) (_ *Gate, err error) {
	g := &Gate{counters: map[string]uint32{}, ruleIDs: map[uint32]string{}, control: &controlPage{fields: new(bpfControl)}}
	defer func() {
		if err != nil {
			g.objects.Close()
		}
	}()
	o := &g.objects
	for name, m := range map[string]**ebpf.Map{
		"controls": &o.Controls, "metas": &o.Metas, "buckets": &o.Buckets, "cpus": &o.Cpus,
		"rule_counters": &o.RuleCounters, "limit_ids": &o.LimitIds, "events": &o.Events,
		"prefixes4": &o.Prefixes4, "prefixes6": &o.Prefixes6,
	} {
		// the kernel maps into memory only what was opened for writing too
		readOnly := name != "buckets" && name != "events" && name != prefixNames[0] && name != prefixNames[1]
		if *m, err = openPinnedMap(filepath.Join(dir, name), readOnly); err != nil {
			return nil, err
		}
	}
	if err := o.Metas.Lookup(uint32(0), &g.meta); err != nil {
		return nil, fmt.Errorf("read the maps' meta data: %w", err)
	}
	if g.meta.Magic != metaMagic || g.meta.Layout != LayoutVersion {
		return nil, fmt.Errorf("the maps in %s were not made by this version of headgate", dir)
	}
	g.meta.Lines = o.Buckets.MaxEntries()
	if err := g.adoptCounters(); err != nil {
		return nil, err
	}
	if err := o.Controls.Lookup(uint32(0), g.control.fields); err != nil {
		return nil, fmt.Errorf("read the pinned control: %w", err)
	}
	g.table, err = readTable(o.Buckets, g.meta)
	return g, err
}

func openPinnedMap(path string, readOnly bool) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: readOnly})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("open the pinned map %s: %w (run as root)", path, err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open the pinned map %s: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the pinned map %s: %w (remove the file if it is not Headgate's)", path, err)
	}
	return m, nil
}

// readTable is openTable with memory that cannot be written.
func readTable(m *ebpf.Map, meta bpfMeta) (*Table, error) {
	memory, err := unix.Mmap(m.FD(), 0, int(m.MaxEntries())*int(m.ValueSize()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s into memory: %w", m, err)
	}
	return &Table{memory: memory, lines: unsafe.Slice((*bpfLine)(unsafe.Pointer(&memory[0])), meta.Lines), seed: meta.Seed}, nil
}

func (g *Gate) pinned() (p Pinned, err error) {
	if p.Allows, err = g.readLists(); err != nil {
		return p, err
	}
	if p.Blocks, err = g.Blocks(); err != nil {
		return p, err
	}
	if p.Struck, err = g.struck(); err != nil {
		return p, err
	}
	if p.Rules, err = g.RuleCounters(); err != nil {
		return p, err
	}
	if p.Reasons, err = g.Reasons(); err != nil {
		return p, err
	}
	p.Opened = g.Opened()
	leash := g.control.fields.LeashEnd
	p.Leashed = leash != 0 && int64(g.now()-leash) > 0
	p.Table, err = g.Table()
	return p, err
}

// readLists reads what holds for each prefix, and returns the allowed ones.
func (g *Gate) readLists() (allows []netip.Prefix, err error) {
	g.lists = &lists{gate: g, own: &bart.Table[own]{}}
	for _, m := range g.prefixMaps() {
		err := readHeld(m, func(p netip.Prefix, o own) {
			g.lists.own.Insert(p, o)
			if o.flags&prefixAllow != 0 {
				allows = append(allows, p)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("read the pinned prefixes: %w", err)
		}
	}
	return allows, nil
}
