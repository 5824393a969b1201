package maps

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/config"
	"golang.org/x/sys/unix"
)

// SetRules makes rules (those of the network gate) and management ports the
// ones in force, in one step: a packet sees the old set or the new one, and
// after an error the old one. lists are the prefixes of the named lists that
// the rules speak of. Rules that keep name, per, algorithm and unit keep what
// their buckets hold. A rule for an interface that is not there meets no packet: when
// it comes, or comes back with another index, the rules are to be set again.
func (g *Gate) SetRules(rules []config.Rule, m config.Management, lists map[string][]netip.Prefix) error {
	return g.setRules(rules, m, lists, g.inlets)
}

func (g *Gate) setRules(rules []config.Rule, m config.Management, lists map[string][]netip.Prefix, inlets func(string) ([]Inlet, error)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	// packets that began before the last flip may still read the generation
	// that is idle now, and count for rules that are gone
	waitForReaders()
	ids, err := g.openIDs()
	if err != nil {
		return err
	}
	c := &compiler{
		ids:    ids.get,
		salt:   g.table.salt,
		cpus:   onlineCPUs(),
		lists:  lists,
		inlets: once(inlets),
	}
	t, err := c.compile(rules, m)
	if err != nil {
		return errors.Join(err, ids.giveUp())
	}
	idle := 1 - g.control.generation()&1
	if err := g.writeGeneration(idle, t); err != nil {
		return errors.Join(err, ids.giveUp())
	}
	g.control.setGeneration(idle)
	g.written = g.writtenOf(idle, t)
	g.counters, g.ruleIDs = map[string]uint32{}, map[uint32]string{}
	for i, name := range t.names {
		if name != "" {
			g.counters[name] = t.limits[i].Counter
			g.ruleIDs[t.limits[i].Id] = name
		}
	}
	g.noteCounters()
	return ids.dropUnused()
}

// writeGeneration fills the tables of a generation that no packet reads.
func (g *Gate) writeGeneration(generation uint32, t *tables) error {
	o := &g.objects
	if err := writeArray(o.Classes, generation, groups(t.classes)); err != nil {
		return err
	}
	if err := writeArray(o.Crossings, generation, groups(t.crossings)); err != nil {
		return err
	}
	if err := writeArray(o.LimitSets, generation, t.sets); err != nil {
		return err
	}
	if err := writeArray(o.Limits, generation, t.limits); err != nil {
		return err
	}
	if err := writeArray(o.Extras, generation, t.extras); err != nil {
		return err
	}
	if err := writeArray(o.Plans, generation, []bpfPlan{t.plan}); err != nil {
		return err
	}
	if err := g.writeInterfaces(generation, t.interfaces); err != nil {
		return err
	}
	return g.lists.setClasses(generation, t.sources, t.destinations)
}

// writeArray writes values into a generation's half of m, from its start.
func writeArray[V any](m *ebpf.Map, generation uint32, values []V) error {
	if len(values) == 0 {
		return nil
	}
	keys := make([]uint32, len(values))
	for i := range keys {
		keys[i] = generation*m.MaxEntries()/2 + uint32(i)
	}
	if _, err := m.BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("write %s: %w", m, err)
	}
	return nil
}

// groups packs classes as the program reads them.
func groups(classes []uint16) []bpfClassGroup {
	all := make([]bpfClassGroup, (len(classes)+classGroup-1)/classGroup)
	for i, class := range classes {
		all[i/classGroup].Class[i%classGroup] = class
	}
	return all
}

func (g *Gate) writeInterfaces(generation uint32, classes map[uint32]uint16) error {
	var gone []bpfInterfaceKey
	var key bpfInterfaceKey
	var class uint16
	entries := g.objects.Interfaces.Iterate()
	for entries.Next(&key, &class) {
		if _, ok := classes[key.Index]; key.Generation == generation && !ok {
			gone = append(gone, key)
		}
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read the interfaces' classes: %w", err)
	}
	for _, key := range gone {
		if err := g.objects.Interfaces.Delete(&key); err != nil {
			return fmt.Errorf("remove an interface's class: %w", err)
		}
	}
	for index, class := range classes {
		if err := g.objects.Interfaces.Put(&bpfInterfaceKey{Generation: generation, Index: index}, class); err != nil {
			return fmt.Errorf("write an interface's class: %w", err)
		}
	}
	return nil
}

// waitForReaders returns when every packet that was being judged when it was
// called is done: membarrier(2)'s global command waits for an RCU grace period.
func waitForReaders() {
	const membarrierGlobal = 1 << 0
	// a kernel without it (CONFIG_MEMBARRIER) or with nohz_full refuses: then
	// a yield of every CPU has to do
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		visitCPUs()
	}
}

// visitCPUs runs on every CPU in turn, so that what ran there before in
// softirq has ended.
func visitCPUs() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if unix.SchedGetaffinity(0, &before) != nil {
		return
	}
	for cpu := range before.Count() {
		var one unix.CPUSet
		one.Set(cpu)
		_ = unix.SchedSetaffinity(0, &one) // offline CPUs run nothing
	}
	_ = unix.SchedSetaffinity(0, &before)
}

func onlineCPUs() int {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return runtime.NumCPU()
	}
	return n
}

// limitIDs is the pinned map of limit ids while one set of rules is compiled.
type limitIDs struct {
	gate *Gate
	ids  map[string]bpfLimitId // all that the map holds
	used map[string]bool       // by the new rules
	made []string

	taken map[uint32]bool // counters
	next  uint32          // no counter below it is free
}

func (g *Gate) openIDs() (*limitIDs, error) {
	l := &limitIDs{gate: g, ids: map[string]bpfLimitId{}, used: map[string]bool{}, taken: map[uint32]bool{}}
	var name bpfLimitName
	var id bpfLimitId
	entries := g.objects.LimitIds.Iterate()
	for entries.Next(&name, &id) {
		l.ids[nameText(name)] = id
		l.taken[id.Counter] = true
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("read the limit ids: %w", err)
	}
	return l, nil
}

func nameText(n bpfLimitName) string {
	end := slices.Index(n.Text[:], 0)
	if end < 0 {
		end = len(n.Text)
	}
	return string(n.Text[:end])
}

func limitName(identity string) (n bpfLimitName, err error) {
	if len(identity) > len(n.Text) {
		return n, fmt.Errorf("the name is too long by %d bytes", len(identity)-len(n.Text))
	}
	copy(n.Text[:], identity)
	return n, nil
}

// get returns the id and the counters of an identity; new ones if it has none.
func (l *limitIDs) get(identity string) (bpfLimitId, error) {
	l.used[identity] = true
	if id, ok := l.ids[identity]; ok {
		return id, nil
	}
	counter, err := l.freeCounter()
	if err != nil {
		return bpfLimitId{}, err
	}
	name, err := limitName(identity)
	if err != nil {
		return bpfLimitId{}, err
	}
	g := l.gate
	id := bpfLimitId{Id: g.meta.NextLimit, Counter: counter}
	g.meta.NextLimit++
	if err := g.objects.Metas.Put(uint32(0), &g.meta); err != nil {
		return id, fmt.Errorf("write the next limit id: %w", err)
	}
	if err := g.clearCounter(counter); err != nil {
		return id, err
	}
	if err := g.objects.LimitIds.Put(&name, &id); err != nil {
		return id, fmt.Errorf("write limit id: %w", err)
	}
	l.ids[identity] = id
	l.made = append(l.made, identity)
	return id, nil
}

func (l *limitIDs) freeCounter() (uint32, error) {
	for ; l.next < l.gate.objects.RuleCounters.MaxEntries(); l.next++ {
		if !l.taken[l.next] {
			l.taken[l.next] = true
			return l.next, nil
		}
	}
	return 0, errors.New("all counters are taken: remove rules first")
}

// giveUp takes back the ids that were made for rules that did not come into
// force.
func (l *limitIDs) giveUp() error { return l.drop(l.made) }

// dropUnused forgets the identities of rules that are gone.
func (l *limitIDs) dropUnused() error {
	var gone []string
	for identity := range l.ids {
		if !l.used[identity] {
			gone = append(gone, identity)
		}
	}
	return l.drop(gone)
}

func (l *limitIDs) drop(identities []string) error {
	for _, identity := range identities {
		name, err := limitName(identity)
		if err != nil {
			continue
		}
		if err := l.gate.objects.LimitIds.Delete(&name); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget limit %s: %w", identity, err)
		}
	}
	return nil
}
