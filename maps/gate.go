// Package maps is Go's face of the network gate: it loads the XDP program,
// makes, pins and adopts its maps, and gives them types and units.
package maps

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

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
	// size that it has; Resize changes it.
	Slots uint32
	// Prefixes4 and Prefixes6 bound how many prefixes of each family rules and
	// lists name together; 0 means 1<<20 and 1<<18. Memory is taken as they
	// come: about 40 bytes a prefix of IPv4, 80 of IPv6.
	Prefixes4, Prefixes6 uint32
	// Clock chooses how the program reads the time.
	Clock Clock
	// OnReplace, if set, is called when a table of prefixes has grown and the
	// programs that read the larger one are loaded: it puts them in the place
	// of the old ones wherever these are attached, or says why it cannot, and
	// has put back what it changed. It must not call the gate.
	OnReplace func(old, next Programs) error
	// Inlets, if set, tells where packets of an interface that a rule names
	// reach the program; none: it is not there. Else they come in by the
	// interface itself. It must not call the gate.
	Inlets func(name string) ([]Inlet, error)
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
	clock        Clock      // not ClockMeasured
	onReplace    func(old, next Programs) error
	inlets       func(name string) ([]Inlet, error)
	programsHeld sync.RWMutex // against their being replaced
	background   sync.WaitGroup
	replaced     int          // how often programs were replaced
	tableHeld    sync.RWMutex // against the bucket table's being replaced
	growing      [2]bool      // a larger table of the family is being made ready
	closed       bool
	objects      bpfObjects
	plain        *ebpf.Program
	meta         bpfMeta
	table        *Table
	control      *controlPage
	lists        *lists
	counters     map[string]uint32                 // rule name → index in rule_counters
	ruleIDs      map[uint32]string                 // limit id → rule name
	counterNames atomic.Pointer[map[uint32]string] // rule name by index in rule_counters
	written      *written                          // the rules in force; nil: not by this process
	adopted      bool

	dir     string // of the pinned maps; "": none
	from    string // of the maps of another layout, until Settle; "": none
	carried *carrying
	shapes  shapes // of its own maps
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
	if o.Inlets == nil {
		o.Inlets = ownInlet
	}
	g := &Gate{
		counters: map[string]uint32{}, ruleIDs: map[uint32]string{},
		clock: o.Clock.measured(), onReplace: o.OnReplace, inlets: o.Inlets,
	}
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
	if err := g.load(spec, o); err != nil {
		return nil, err
	}
	return g, nil
}

// load makes the maps, which are needed to know what the programs hold as
// constants, then the programs on them.
func (g *Gate) load(spec *ebpf.CollectionSpec, o Options) error {
	if err := removeLeftovers(g.dir); err != nil {
		return err
	}
	made, err := openMaps(spec, g.dir)
	if err != nil {
		return err
	}
	defer made.close() // the gate holds clones
	g.adopted = made.adopted || g.from != ""
	if g.carried != nil {
		if err := g.carried.fill(made.maps); err != nil {
			return err
		}
	}
	if g.meta, err = openMeta(made.maps["metas"], spec.Maps["buckets"].MaxEntries); err != nil {
		return err
	}
	if err := assignMaps(&g.objects, made.maps); err != nil {
		return err
	}
	p, err := loadPrograms(spec, made.maps, g.meta, g.clock)
	if err != nil {
		return errors.Join(err, g.objects.bpfMaps.Close())
	}
	g.objects.Headgate, g.plain = p.Frags, p.Plain
	if err := g.openParts(o); err != nil {
		return err
	}
	return g.endCarrying(spec)
}

// assignMaps gives o clones of all maps.
func assignMaps(o *bpfObjects, all map[string]*ebpf.Map) error {
	for name, m := range o.byName() {
		c, err := all[name].Clone()
		if err != nil {
			return fmt.Errorf("open map %s: %w", name, err)
		}
		*m = c
	}
	return nil
}

func (g *Gate) openParts(o Options) (err error) {
	if g.table, err = openTable(g.objects.Buckets, g.meta); err != nil {
		return err
	}
	if g.control, err = openControl(g.objects.Controls); err != nil {
		return err
	}
	if g.lists, err = openLists(g, o); err != nil {
		return err
	}
	g.control.setFlag(controlCapture, false) // who captured may have been killed
	return g.adoptCounters()
}

// Close lets go of the maps and the programs; pins and attached links stay.
func (g *Gate) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.background.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.table.close(), g.lists.prefixes.close(), g.control.close(), g.plain.Close(), g.objects.Close())
}

// Adopted tells whether the maps were there before: their buckets and blocks
// go on.
func (g *Gate) Adopted() bool { return g.adopted }

// HoldPrograms keeps the programs from being replaced until release is called:
// for whoever attaches them.
func (g *Gate) HoldPrograms() (release func()) {
	g.programsHeld.RLock()
	return g.programsHeld.RUnlock
}

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
