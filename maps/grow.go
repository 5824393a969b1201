package maps

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// A table of prefixes is crowded, so that lines spill, when more than
// crowdedNum / crowdedDen of its places are held; at half of them a larger one
// is made ready.
const (
	crowdedNum = 5
	crowdedDen = 8
)

// crowded tells whether n more would be too many.
func (t *prefixTable) crowded(n int) bool {
	return (t.held+n)*crowdedDen > t.places()*crowdedNum
}

// Reserve makes room for so many more prefixes of each family, at once where
// they would make the tables grow several times. It does not hold up other
// changes but for a moment.
func (g *Gate) Reserve(v4, v6 int) error {
	for f, n := range [2]int{v4, v6} {
		g.mu.Lock()
		t := g.lists.prefixes.tables[f]
		places := t.places()
		for n > 0 && (t.held+n)*2 > places {
			places *= 2
		}
		now := t.places()
		g.mu.Unlock()
		if places > now {
			if err := g.grow(f, places); err != nil {
				return err
			}
		}
	}
	return nil
}

// growAhead makes a table larger before it is crowded, beside whoever fills it.
func (g *Gate) growAhead(f int, t *prefixTable) {
	if t.held*2 < t.places() || g.growing[f] || g.closed {
		return
	}
	g.growing[f] = true
	places := t.places() * 2
	g.background.Go(func() {
		// should it fail, the next prefix that finds no place tries again and
		// says why
		_ = g.grow(f, places)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.growing[f] = false
	})
}

// larger is a larger table of prefixes and the programs that read it.
type larger struct {
	table    *ebpf.Map
	programs Programs
	replaced int // how often programs had been replaced before
}

func (l *larger) close() {
	l.table.Close()
	l.programs.close()
}

// grow makes the table of a family larger. The programs are loaded while others
// go on changing the table that is in force.
func (g *Gate) grow(f, places int) error {
	for {
		l, err := g.prepareBeside(f, places)
		if err != nil {
			return err
		}
		g.mu.Lock()
		if g.closed || g.lists.prefixes.tables[f].places() >= places {
			g.mu.Unlock()
			l.close()
			return nil
		}
		// programs of before would bring back a table that was replaced since
		if l.replaced == g.replaced {
			err = g.useLarger(f, l)
			g.mu.Unlock()
			return err
		}
		g.mu.Unlock()
		l.close()
	}
}

// prepareBeside is prepareLarger for callers that do not hold g.mu: the maps may
// be replaced and closed meanwhile.
func (g *Gate) prepareBeside(f, places int) (*larger, error) {
	g.mu.Lock()
	replaced, meta := g.replaced, g.meta
	on, err := cloneMaps(g.mapsByName())
	g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	defer closeMaps(on)
	l, err := g.prepareLarger(f, places, on, meta)
	if err == nil {
		l.replaced = replaced
	}
	return l, err
}

func cloneMaps(all map[string]*ebpf.Map) (map[string]*ebpf.Map, error) {
	clones := map[string]*ebpf.Map{}
	for name, m := range all {
		c, err := m.Clone()
		if err != nil {
			closeMaps(clones)
			return nil, fmt.Errorf("open map %s again: %w", name, err)
		}
		clones[name] = c
	}
	return clones, nil
}

func closeMaps(all map[string]*ebpf.Map) {
	for _, m := range all {
		m.Close()
	}
}

// growLocked is grow to twice the places, for callers that hold g.mu.
func (g *Gate) growLocked(f, places int) error {
	l, err := g.prepareLarger(f, places*2, g.mapsByName(), g.meta)
	if err != nil {
		return err
	}
	return g.useLarger(f, l)
}

func (g *Gate) prepareLarger(f, places int, on map[string]*ebpf.Map, meta bpfMeta) (*larger, error) {
	name := prefixNames[f]
	spec, err := loadBpf()
	if err != nil {
		return nil, fmt.Errorf("read the embedded program: %w", err)
	}
	ms := spec.Maps[name].Copy()
	ms.MaxEntries = uint32(places / prefixWays)
	table, err := ebpf.NewMap(ms)
	if err != nil {
		return nil, mapError(name, "", err)
	}
	programs, err := g.programsOn(spec, on, meta, name, table)
	if err != nil {
		table.Close()
		return nil, err
	}
	return &larger{table: table, programs: programs}, nil
}

// programsOn loads the programs on maps, with another in the place of one.
func (g *Gate) programsOn(spec *ebpf.CollectionSpec, on map[string]*ebpf.Map, meta bpfMeta, name string, other *ebpf.Map) (Programs, error) {
	all := maps.Clone(on)
	all[name] = other
	return loadPrograms(spec, all, meta, g.clock)
}

// useLarger fills the larger table, puts the programs that read it in the place
// of those in force, and only then lets go of the smaller one.
func (g *Gate) useLarger(f int, l *larger) error {
	s := g.lists.prefixes
	next, err := openPrefixTable(l.table, g.meta.Seed, true)
	if err != nil {
		l.close()
		return err
	}
	s.tables[f].each(func(p netip.Prefix, v bpfPrefix) {
		if err == nil && !next.put(p, v) {
			err = errors.New("the larger table of prefixes has no place for what the smaller one holds")
		}
	})
	if err == nil {
		err = g.repin(prefixNames[f], l.table)
	}
	if err == nil {
		if err = g.replace(l.programs); err != nil {
			err = errors.Join(err, g.repin(prefixNames[f], g.prefixMaps()[f]))
		}
	}
	if err != nil {
		l.close()
		return errors.Join(err, next.close())
	}
	was, m := s.tables[f], g.prefixMaps()[f]
	s.tables[f] = next
	g.setPrefixMap(f, l.table)
	return errors.Join(was.close(), m.Close())
}

// replace puts programs in the place of those in force, first where they are
// attached.
func (g *Gate) replace(next Programs) error {
	g.programsHeld.Lock()
	defer g.programsHeld.Unlock()
	old := Programs{Frags: g.objects.Headgate, Plain: g.plain}
	// while the layout changes, what is attached is another layout's, and goes
	// on until all is carried over and set
	if g.onReplace != nil && g.from == "" {
		if err := g.onReplace(old, next); err != nil {
			return fmt.Errorf("put the program with a table of another size in place: %w", err)
		}
	}
	g.objects.Headgate, g.plain = next.Frags, next.Plain
	g.replaced++
	old.close()
	return nil
}

// repin puts m in the place of the pinned map of a name, in one step.
func (g *Gate) repin(name string, m *ebpf.Map) error {
	if g.dir == "" {
		return nil
	}
	path := filepath.Join(g.dir, name)
	fresh := path + nextPin
	if err := removeLeftover(fresh); err != nil {
		return err
	}
	// of a clone: a map that is pinned already would be moved
	c, err := m.Clone()
	if err != nil {
		return fmt.Errorf("pin table %s: %w", name, err)
	}
	defer c.Close()
	if err := c.Pin(fresh); err != nil {
		return fmt.Errorf("pin table %s: %w", name, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("put a table in the place of the pinned %s: %w", path, err)
	}
	return nil
}

// nextPin follows the name of a table on its way to take the place of another.
const nextPin = "_next"

func removeLeftover(pin string) error {
	if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the pin %s that was left behind: %w", pin, err)
	}
	return nil
}

// removeLeftovers removes what a process left behind that was killed while a
// table grew: the smaller table is still pinned, and holds the same.
func removeLeftovers(dir string) error {
	if dir == "" {
		return nil
	}
	for _, name := range prefixNames {
		if err := removeLeftover(filepath.Join(dir, name+nextPin)); err != nil {
			return err
		}
	}
	return nil
}

var prefixNames = [2]string{"prefixes4", "prefixes6"}

// prefixMaps are the tables of prefixes by family.
func (g *Gate) prefixMaps() [2]*ebpf.Map {
	return [2]*ebpf.Map{g.objects.Prefixes4, g.objects.Prefixes6}
}

func (g *Gate) setPrefixMap(f int, m *ebpf.Map) {
	*[2]**ebpf.Map{&g.objects.Prefixes4, &g.objects.Prefixes6}[f] = m
}
