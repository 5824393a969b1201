package maps

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
)

// carrier says how a map gets from one layout into another. Maps without one
// are written anew from config and state before any packet meets them.
type carrier struct {
	what  string // is lost where it cannot be carried
	ticks bool   // it holds times, or what the seed made
	whole bool   // it is taken over as it is, or not at all
	// convert, if set, takes the place of carrying field by field
	convert func(c *carrying, name string, old, made *ebpf.Map) (carried bool, err error)
}

// carriers by map name.
var carriers = map[string]carrier{
	"metas":         {what: "the clock and the seed of all tables", convert: carryMeta},
	"buckets":       {what: "the levels of all buckets, so that each source may take its burst once more, and the blocks by a rule's then that are not written down", ticks: true, whole: true},
	"overflows":     {what: "the levels of the overflow buckets", ticks: true},
	"vouches":       {what: "who is vouched for", ticks: true},
	"events":        {what: "blocks by a rule's then that the daemon has not heard of", ticks: true, whole: true},
	"limit_ids":     {what: "which buckets and counters are whose"},
	"rule_counters": {what: "the counters of all rules"},
	"cpus":          {what: "the counters of all reasons"},
	"controls":      {what: "whether the gate was opened by hand", convert: carryControl},
	"prefixes4":     {what: "blocks and allows of IPv4 prefixes that neither config nor state names", ticks: true, convert: carryPrefixes},
	"prefixes6":     {what: "blocks and allows of IPv6 prefixes that neither config nor state names", ticks: true, convert: carryPrefixes},
}

// carrying is one change of layout.
type carrying struct {
	from, dir string
	was, is   shapes
	lost      []string
	adopted   map[string]bool
	held      map[netip.Prefix]own
}

// Carried tells from which layout the maps were carried over and what of them
// was lost, a line each. ok is false where the layout did not change.
func (g *Gate) Carried() (layout string, lost []string, ok bool) {
	if g.carried == nil {
		return "", nil, false
	}
	return filepath.Base(g.carried.from), g.carried.lost, true
}

// startCarrying reads what the maps in from look like, and makes those that
// look the same ones of the new layout too: both programs work on them, and so
// nothing is lost while one takes the place of the other.
func startCarrying(spec *ebpf.CollectionSpec, from, dir string) (*carrying, error) {
	c := &carrying{from: from, dir: dir, adopted: map[string]bool{}, held: map[netip.Prefix]own{}}
	var err error
	if c.is, err = describe(spec); err != nil {
		return nil, err
	}
	c.was, err = readShapes(from)
	if errors.Is(err, fs.ErrNotExist) {
		c.lose("all that config and state do not name: the version that pinned %s does not say what its maps look like", from)
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	for _, name := range c.names() {
		if err := c.adopt(name, spec.Maps[name]); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// names are the maps that both layouts have, in order; those that are gone are
// lost.
func (c *carrying) names() (all []string) {
	for name := range c.was.Maps {
		if _, ok := c.is.Maps[name]; ok {
			all = append(all, name)
		} else {
			c.lose("%s: this version has no such map", name)
		}
	}
	slices.Sort(all)
	return all
}

func (c *carrying) lose(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(c.lost, line) {
		c.lost = append(c.lost, line)
		slices.Sort(c.lost)
	}
}

// sameTicks tells whether times and tags mean the same in both layouts.
func (c *carrying) sameTicks() bool {
	was, is := c.was.Maps["metas"], c.is.Maps["metas"]
	for _, name := range []string{"epoch", "seed"} {
		f, ok := was.find(name)
		g, _ := is.find(name)
		if !ok || f.Size != g.Size {
			return false
		}
	}
	return c.was.Table == c.is.Table
}

func (c *carrying) adopt(name string, ms *ebpf.MapSpec) error {
	how := carriers[name]
	if how.convert != nil || !c.was.Maps[name].same(c.is.Maps[name]) || how.ticks && !c.sameTicks() {
		return nil
	}
	old, err := openPinnedMap(filepath.Join(c.from, name), false)
	if err != nil {
		return err
	}
	defer old.Close()
	if old.MaxEntries() != ms.MaxEntries && name != "buckets" {
		return nil
	}
	ms.MaxEntries = old.MaxEntries()
	path := filepath.Join(c.dir, name)
	if exists(path) {
		c.adopted[name] = true
		return nil
	}
	// of a clone: the pin of the map itself would be moved
	again, err := old.Clone()
	if err != nil {
		return fmt.Errorf("take over map %s: %w", name, err)
	}
	defer again.Close()
	if err := again.Pin(path); err != nil {
		return fmt.Errorf("take over map %s: %w", name, err)
	}
	c.adopted[name] = true
	return nil
}

// fill carries what was not adopted into the maps that were made.
func (c *carrying) fill(made map[string]*ebpf.Map) error {
	for _, name := range c.names() {
		if c.adopted[name] {
			continue
		}
		how, was, is := carriers[name], c.was.Maps[name], c.is.Maps[name]
		if how.whole || how.ticks && !c.sameTicks() || !was.sameKeys(is) {
			c.lose("%s: %s", name, how.what)
			continue
		}
		old, err := openPinnedMap(filepath.Join(c.from, name), false)
		if err != nil {
			return err
		}
		convert := how.convert
		if convert == nil {
			convert = carryFields
		}
		carried, err := convert(c, name, old, made[name])
		old.Close()
		if err != nil {
			return fmt.Errorf("carry map %s over: %w", name, err)
		}
		if !carried {
			c.lose("%s: %s", name, how.what)
		}
	}
	return nil
}

// endCarrying writes down what the maps look like, and makes those that were
// carried over whole.
func (g *Gate) endCarrying(spec *ebpf.CollectionSpec) error {
	if g.dir == "" {
		return nil
	}
	if g.carried != nil {
		if err := g.restorePrefixes(g.carried.held); err != nil {
			return err
		}
	}
	var err error
	if g.shapes, err = describe(spec); err != nil {
		return err
	}
	if err := g.shapes.write(g.dir); err != nil {
		return err
	}
	if filepath.Base(g.dir) != makingName {
		return nil
	}
	next := filepath.Join(filepath.Dir(g.dir), nextName)
	if err := os.Rename(g.dir, next); err != nil {
		return fmt.Errorf("put the maps of the new layout in their place: %w", err)
	}
	g.dir = next
	return nil
}
