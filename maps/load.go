package maps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/internal/caps"
)

const (
	metaMagic = 0x48474154 // "HGAT"
	ways      = 4

	minSlots = 4096
	maxSlots = 1 << 27
)

var errPermission = unix.EPERM

func resize(spec *ebpf.CollectionSpec, o Options) error {
	slots := o.Slots
	if slots < minSlots || slots > maxSlots || slots&(slots-1) != 0 {
		return fmt.Errorf("bucket table of %d slots: take a power of two from %d to %d", slots, minSlots, maxSlots)
	}
	spec.Maps["buckets"].MaxEntries = slots / ways
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count the CPUs: %w", err)
	}
	for _, name := range sampleMaps {
		spec.Maps[name].MaxEntries = uint32(cpus)
	}
	return nil
}

// preparePins makes the folder that maps are pinned in, and tells which one of
// another layout they are carried over from; "" for none.
func preparePins(pins string) (dir, from string, err error) {
	if pins == "" {
		return "", "", nil
	}
	if err := checkBPFFS(pins); err != nil {
		return "", "", err
	}
	if dir, from, err = locate(pins); err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("make the folder of pins %s: %w", dir, err)
	}
	return dir, from, nil
}

// checkBPFFS makes the folder of all pins, in a bpffs.
func checkBPFFS(pins string) error {
	_, before := os.Stat(pins)
	if err := os.MkdirAll(pins, 0o700); err != nil {
		return fmt.Errorf("make the folder of pins %s: %w (is a bpffs mounted there? mount -t bpf bpf /sys/fs/bpf)", pins, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(pins, &fs); err != nil {
		return fmt.Errorf("look at %s: %w", pins, err)
	}
	if fs.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if before != nil {
		os.Remove(pins)
	}
	return fmt.Errorf("%s is not in a bpffs: mount one (mount -t bpf bpf /sys/fs/bpf) or set state.pins to a folder in one", pins)
}

// adoptSizes lets tables that are pinned already keep their size.
func adoptSizes(spec *ebpf.CollectionSpec, dir string) error {
	if dir == "" {
		return nil
	}
	for _, name := range []string{"buckets", "prefixes4", "prefixes6"} {
		path := filepath.Join(dir, name)
		pinned, err := ebpf.LoadPinnedMap(path, nil)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("open the pinned map %s: %w (%s)", path, unix.EPERM, caps.WhyRefused())
		}
		if err != nil {
			return fmt.Errorf("open the pinned map %s: %w (remove the file if it is not Headgate's)", path, err)
		}
		spec.Maps[name].MaxEntries = pinned.MaxEntries()
		pinned.Close()
	}
	return nil
}

// mapSet is every map of the gate by name.
type mapSet struct {
	maps    map[string]*ebpf.Map
	adopted bool
}

func (s *mapSet) close() {
	for _, m := range s.maps {
		m.Close()
	}
}

// openMaps adopts the maps pinned in dir and makes and pins those missing.
func openMaps(spec *ebpf.CollectionSpec, dir string) (*mapSet, error) {
	set := &mapSet{maps: map[string]*ebpf.Map{}}
	for name, ms := range spec.Maps {
		if strings.HasPrefix(name, ".") {
			continue
		}
		ms := ms.Copy()
		if dir != "" {
			ms.Pinning = ebpf.PinByName
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				set.adopted = true
			}
		}
		m, err := ebpf.NewMapWithOptions(ms, ebpf.MapOptions{PinPath: dir})
		if err != nil {
			set.close()
			return nil, mapError(name, dir, err)
		}
		set.maps[name] = m
	}
	return set, nil
}

// checkPrivilege names the capabilities that are missing. The kernel's EPERM
// names none, and for CAP_PERFMON the verifier writes of pointer arithmetic.
func checkPrivilege() error {
	missing, err := caps.Missing(caps.NetworkGate)
	if err != nil || missing == 0 {
		return err
	}
	return fmt.Errorf("%w: %v missing (run as root, or with %v)", syscall.EPERM, missing, caps.NetworkGate)
}

func mapError(name, dir string, err error) error {
	switch {
	case errors.Is(err, ebpf.ErrMapIncompatible):
		return fmt.Errorf("the pinned map %s has another shape: %w (remove it: `headgate detach --all`)", filepath.Join(dir, name), err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("make map %s: %w (%s)", name, syscall.EPERM, caps.WhyRefused())
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("make map %s: %w (lower network.slots)", name, err)
	}
	if dir != "" && exists(filepath.Join(dir, name)) {
		return fmt.Errorf("open the pinned map %s: %w (remove the file if it is not Headgate's)", filepath.Join(dir, name), err)
	}
	return fmt.Errorf("make map %s: %w", name, err)
}

func loadError(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("load the XDP program: %w (%s)", syscall.EPERM, caps.WhyRefused())
	}
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		return fmt.Errorf("load the XDP program: the kernel refuses it; Linux 6.1 is the oldest supported: %w", err)
	}
	return fmt.Errorf("load the XDP program: %w", err)
}

// setConstants sets what the program holds as constants. The sizes of its
// tables are those of spec's maps.
func setConstants(spec *ebpf.CollectionSpec, meta bpfMeta, clock Clock) error {
	constants := map[string]any{
		"epoch":        meta.Epoch,
		"line_mask":    meta.Lines - 1,
		"prefix4_mask": spec.Maps["prefixes4"].MaxEntries - 1,
		"prefix6_mask": spec.Maps["prefixes6"].MaxEntries - 1,
		"seed0":        meta.Seed[0],
		"seed1":        meta.Seed[1],
		"seed2":        meta.Seed[2],
		"seed3":        meta.Seed[3],
		"cached_clock": clock == ClockCached,
		"fixed_clock":  clock == ClockFixed,
	}
	for name, value := range constants {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s in the program: %w", name, err)
		}
	}
	return nil
}

// measured is the clock to use in the place of ClockMeasured.
func (c Clock) measured() Clock {
	switch {
	case c != ClockMeasured:
		return c
	case cachedClockPays():
		return ClockCached
	}
	return ClockExact
}

// Programs are the two forms of the program.
type Programs struct {
	Frags *ebpf.Program // takes frames of several buffers
	Plain *ebpf.Program // for drivers that give one buffer a frame
}

func (p Programs) close() {
	p.Frags.Close()
	p.Plain.Close()
}

// loadPrograms loads the programs on maps by name.
func loadPrograms(spec *ebpf.CollectionSpec, replacements map[string]*ebpf.Map, meta bpfMeta, clock Clock) (p Programs, err error) {
	for name, m := range replacements {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	if err := setConstants(spec, meta, clock); err != nil {
		return p, err
	}
	if p.Plain, err = loadProgram(spec, replacements); err != nil {
		return p, err
	}
	if err = spec.Variables["frags"].Set(true); err == nil {
		spec.Programs["headgate"].Flags |= unix.BPF_F_XDP_HAS_FRAGS
		p.Frags, err = loadProgram(spec, replacements)
	}
	if err != nil {
		p.Plain.Close()
	}
	return p, err
}

func loadProgram(spec *ebpf.CollectionSpec, replacements map[string]*ebpf.Map) (*ebpf.Program, error) {
	var o struct {
		Headgate *ebpf.Program `ebpf:"headgate"`
	}
	if err := spec.LoadAndAssign(&o, &ebpf.CollectionOptions{MapReplacements: replacements}); err != nil {
		return nil, loadError(err)
	}
	return o.Headgate, nil
}

// LoadBeside loads the programs of another object onto the gate's maps, with
// the gate's constants: for benchmarks, which wrap the program. to is a struct
// as for ebpf.CollectionSpec.LoadAndAssign.
func (g *Gate) LoadBeside(spec *ebpf.CollectionSpec, to any, clock Clock) error {
	replacements := map[string]*ebpf.Map{}
	for name, m := range g.mapsByName() {
		if spec.Maps[name] != nil {
			spec.Maps[name].MaxEntries = m.MaxEntries()
			replacements[name] = m
		}
	}
	if err := setConstants(spec, g.meta, clock.measured()); err != nil {
		return err
	}
	if err := spec.LoadAndAssign(to, &ebpf.CollectionOptions{MapReplacements: replacements}); err != nil {
		return loadError(err)
	}
	return nil
}

func (g *Gate) mapsByName() map[string]*ebpf.Map {
	all := map[string]*ebpf.Map{}
	for name, m := range g.objects.byName() {
		all[name] = *m
	}
	return all
}

func (o *bpfObjects) byName() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		"buckets": &o.Buckets, "overflows": &o.Overflows, "controls": &o.Controls, "metas": &o.Metas,
		"plans": &o.Plans, "classes": &o.Classes, "crossings": &o.Crossings, "interfaces": &o.Interfaces,
		"limit_sets": &o.LimitSets, "limits": &o.Limits, "extras": &o.Extras, "limit_ids": &o.LimitIds,
		"prefixes4": &o.Prefixes4, "prefixes6": &o.Prefixes6, "roots4": &o.Roots4, "roots6": &o.Roots6,
		"own_addresses": &o.OwnAddresses, "vouches": &o.Vouches, "events": &o.Events,
		"cpus": &o.Cpus, "rule_counters": &o.RuleCounters,
		"samples": &o.Samples, "captures": &o.Captures,
	}
}
