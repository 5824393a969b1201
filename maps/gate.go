// Package maps is Go's face of the network gate: it loads the XDP program,
// makes, pins and adopts its maps, and gives them types and units.
package maps

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

// Options say where the gate keeps its maps and how large they are.
type Options struct {
	// Pins is a folder in a bpffs, made if missing. Empty: nothing is pinned,
	// and the maps end with the process.
	Pins string
	// Slots is the number of places in the bucket table: a power of two from
	// 4096 to 1<<27, 16 bytes of kernel memory each. A pinned table keeps the
	// size that it was made with.
	Slots uint32
	// Prefixes4 and Prefixes6 bound how many prefixes of each family rules and
	// lists name together; 0 means 1<<20 and 1<<18. Memory is taken as they
	// come. Pinned tables keep the bound that they were made with.
	Prefixes4, Prefixes6 uint32
	// Clock chooses how the program reads the time.
	Clock Clock
}

// Clock is how the program reads the time.
type Clock int

const (
	// ClockMeasured uses the cached clock if it is the faster one here.
	ClockMeasured Clock = iota
	// ClockExact reads CLOCK_MONOTONIC for every packet.
	ClockExact
	// ClockCached reads it every 32 packets and when jiffies move. Limits
	// whose burst is too small for that still read it exactly.
	ClockCached
	// ClockFixed takes the time from Gate.SetNow: for tests.
	ClockFixed
)

// Gate is the network gate: its maps and its loaded programs. Its methods may
// be called from several goroutines.
type Gate struct {
	mu           sync.Mutex // held by all that writes
	objects      bpfObjects
	plain        *ebpf.Program
	meta         bpfMeta
	table        *Table
	control      *controlPage
	lists        *lists
	destinations *destinations
	counters     map[string]uint32 // rule name → index in rule_counters
	ruleIDs      map[uint32]string // limit id → rule name
	adopted      bool

	dir     string // of the pinned maps; "": none
	from    string // of the maps of another layout, until Settle; "": none
	carried *carrying
}

// Open adopts the maps pinned under o.Pins, or makes and pins them, and loads
// the program on them. Nothing is attached.
//
// Errors say what is missing: privilege (CAP_BPF, CAP_NET_ADMIN,
// CAP_PERFMON), a bpffs, or a layout of pins that this version does not read.
func Open(o Options) (*Gate, error) {
	if err := checkPrivilege(); err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil && !errors.Is(err, errPermission) {
		return nil, fmt.Errorf("raise RLIMIT_MEMLOCK: %w", err)
	}
	spec, err := loadBpf()
	if err != nil {
		return nil, fmt.Errorf("read the embedded program: %w", err)
	}
	if err := resize(spec, o); err != nil {
		return nil, err
	}
	g := &Gate{counters: map[string]uint32{}, ruleIDs: map[uint32]string{}}
	if g.dir, g.from, err = preparePins(o.Pins); err != nil {
		return nil, err
	}
	if g.from != "" && filepath.Base(g.dir) == makingName {
		if g.carried, err = startCarrying(spec, g.from, g.dir); err != nil {
			return nil, err
		}
	}
	if err := adoptSizes(spec, g.dir); err != nil {
		return nil, err
	}
	if err := g.load(spec, o.Clock); err != nil {
		return nil, err
	}
	return g, nil
}

// load makes the maps, which are needed to know what the programs hold as
// constants, then the programs on them.
func (g *Gate) load(spec *ebpf.CollectionSpec, clock Clock) error {
	made, err := openMaps(spec, g.dir)
	if err != nil {
		return err
	}
	g.adopted = made.adopted || g.from != ""
	if g.carried != nil {
		if err := g.carried.fill(made.maps); err != nil {
			made.close()
			return err
		}
	}
	if g.meta, err = openMeta(made.maps["metas"], spec.Maps["buckets"].MaxEntries); err != nil {
		made.close()
		return err
	}
	if err := setConstants(spec, g.meta, clock); err != nil {
		made.close()
		return err
	}
	options := ebpf.CollectionOptions{MapReplacements: made.maps}
	defer made.close() // the loaded objects hold clones
	if g.plain, err = loadPlain(spec, options); err != nil {
		return loadError(err)
	}
	if err := loadFrags(spec, options, &g.objects); err != nil {
		g.plain.Close()
		return loadError(err)
	}
	if err := g.openParts(); err != nil {
		return err
	}
	return g.endCarrying(spec)
}

func (g *Gate) openParts() (err error) {
	if g.table, err = openTable(g.objects.Buckets, g.meta); err != nil {
		return err
	}
	if g.control, err = openControl(g.objects.Controls); err != nil {
		return err
	}
	if g.lists, err = openLists(g); err != nil {
		return err
	}
	if g.destinations, err = openDestinations(g); err != nil {
		return err
	}
	return g.adoptCounters()
}

// Close lets go of the maps and the programs; pins and attached links stay.
func (g *Gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.table.close(), g.control.close(), g.plain.Close(), g.objects.Close())
}

// Adopted tells whether the maps were there before: their buckets and blocks
// go on.
func (g *Gate) Adopted() bool { return g.adopted }

// Program is what is attached to an interface. With frags it takes frames of
// more than one buffer, which not every driver can give; without, headers and
// lengths are those of the first buffer.
func (g *Gate) Program(frags bool) *ebpf.Program {
	if frags {
		return g.objects.Headgate
	}
	return g.plain
}

// Buckets is the bucket table, for reading levels.
func (g *Gate) Buckets() *Table { return g.table }

// SetNow sets the clock, in ticks, of a gate opened with ClockFixed.
func (g *Gate) SetNow(ticks uint64) { g.control.setNow(ticks) }
