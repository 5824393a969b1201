package maps

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/config"
	"golang.org/x/sys/unix"
)

// SetRules makes rules (those of the network gate) and management ports the
// ones in force, in one step: a packet sees the old set or the new one, and
// after an error the old one. Rules that keep name, per, algorithm and unit
// keep what their buckets hold.
func (g *Gate) SetRules(rules []config.Rule, m config.Management) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	// packets that began before the last flip may still read the generation
	// that is idle now, and count for rules that are gone
	waitForReaders()
	ids, err := g.openIDs()
	if err != nil {
		return err
	}
	salt := func(id uint32) uint64 { return g.table.salt(bpfSlotKindSLOT_RULE, id) }
	t, err := compile(rules, m, ids.get, salt, onlineCPUs())
	if err != nil {
		return errors.Join(err, ids.giveUp())
	}
	idle := 1 - g.control.generation()&1
	if err := g.writeGeneration(idle, t); err != nil {
		return errors.Join(err, ids.giveUp())
	}
	g.control.setGeneration(idle)
	g.counters = map[string]uint32{}
	for i, name := range t.names {
		if name != "" {
			g.counters[name] = t.limits[i].Counter
		}
	}
	return ids.dropUnused()
}

func (g *Gate) writeGeneration(generation uint32, t *tables) error {
	entries := make([]bpfService, services/classes)
	for i, class := range t.class {
		entries[i/classes].Class[i%classes] = class
	}
	for _, w := range []struct {
		m      *ebpf.Map
		base   uint32
		count  int
		values any
	}{
		{g.objects.Services, generation * uint32(len(entries)), len(entries), entries},
		{g.objects.LimitSets, generation * maxSets, len(t.sets), t.sets},
		{g.objects.Limits, generation * maxLimits, len(t.limits), t.limits},
	} {
		keys := make([]uint32, w.count)
		for i := range keys {
			keys[i] = w.base + uint32(i)
		}
		if _, err := w.m.BatchUpdate(keys, w.values, nil); err != nil {
			return fmt.Errorf("write %s: %w", w.m, err)
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
}

func (g *Gate) openIDs() (*limitIDs, error) {
	l := &limitIDs{gate: g, ids: map[string]bpfLimitId{}, used: map[string]bool{}}
	var name bpfLimitName
	var id bpfLimitId
	entries := g.objects.LimitIds.Iterate()
	for entries.Next(&name, &id) {
		l.ids[nameText(name)] = id
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
	taken := make(map[uint32]bool, len(l.ids))
	for _, id := range l.ids {
		taken[id.Counter] = true
	}
	for c := range l.gate.objects.RuleCounters.MaxEntries() {
		if !taken[c] {
			return c, nil
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
