package maps

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Unpinned returns the names of the gate's maps, and of what describes them, that
// have no pin under pins: somebody removed it, or something else is mounted there
// now. While the layout changes they are elsewhere, and nothing is amiss.
func (g *Gate) Unpinned(pins string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unpinned(pins)
}

func (g *Gate) unpinned(pins string) []string {
	if g.from != "" {
		return nil
	}
	var names []string
	for _, name := range append(slices.Collect(maps.Keys(g.mapsByName())), shapesName) {
		if _, err := os.Lstat(filepath.Join(MapDir(pins), name)); err != nil {
			names = append(names, name)
		}
	}
	return names
}

// Repin pins again the maps that Unpinned tells of. Buckets and blocks are in
// the maps, which the gate holds open, so nothing is lost meanwhile.
func (g *Gate) Repin(pins string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	dir := MapDir(pins)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of pins %s: %w", dir, err)
	}
	all := g.mapsByName()
	var errs []error
	for _, name := range g.unpinned(pins) {
		if name == shapesName {
			continue // it is made anew below
		}
		// a map that thinks it is pinned would try to move its pin
		m, err := all[name].Clone()
		if err == nil {
			err = m.Pin(filepath.Join(dir, name))
			m.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pin map %s again: %w", name, err))
		}
	}
	return errors.Join(append(errs, g.shapes.write(dir))...)
}
