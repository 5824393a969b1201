package maps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// LayoutVersion is the version of the pinned maps' layout that this package
// writes. It is part of their folder's name.
const LayoutVersion = 3

// Folders of maps under the folder of all pins. What is in force lies in
// vN, N its layout. When another version takes over:
//
//	making  is filled from vN, and is nothing until it is renamed to
//	next    which is whole; packets may be judged by it, by vN, or some by either
//	old     is vN once all are judged by next, which then becomes vM
//
// Each step is one rename, so whoever is killed between two of them is found
// out by what there is, and the next start goes on from there.
const (
	makingName = "making"
	nextName   = "next"
	oldName    = "old"
)

func layoutDir(pins string, layout int) string {
	return filepath.Join(pins, fmt.Sprintf("v%d", layout))
}

// MapDir is the folder of the pinned maps under the folder of all pins.
func MapDir(pins string) string { return layoutDir(pins, LayoutVersion) }

// layouts are the folders of pinned maps that are in force, or may be, by
// layout.
func layouts(pins string) (map[int]string, error) {
	entries, err := os.ReadDir(pins)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the pins: %w", err)
	}
	all := map[int]string{}
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "v")
		if n, err := strconv.Atoi(digits); ok && err == nil {
			all[n] = filepath.Join(pins, e.Name())
		}
	}
	return all, nil
}

// locate says in which folder this version keeps its maps, and from which one
// of another layout they are carried over first ("": none). It finishes what
// was left unfinished.
func locate(pins string) (dir, from string, err error) {
	if err := recoverOld(pins); err != nil {
		return "", "", err
	}
	all, err := layouts(pins)
	if err != nil {
		return "", "", err
	}
	if len(all) > 1 {
		return "", "", fmt.Errorf("%s holds pins of %d layouts: remove all folders v* there but the one in use, or run `headgate detach --all`", pins, len(all))
	}
	next := filepath.Join(pins, nextName)
	for layout, other := range all {
		pending := exists(next)
		switch {
		case layout == LayoutVersion && !pending:
			return other, "", nil
		case !pending:
			return filepath.Join(pins, makingName), other, nil
		}
		if s, err := readShapes(next); err == nil && s.Layout == LayoutVersion {
			return next, other, nil
		}
		// a third version began: what it made goes on as if it had finished
		if err := os.Rename(other, filepath.Join(pins, oldName)); err != nil {
			return "", "", fmt.Errorf("put the maps of layout %d aside: %w", layout, err)
		}
		return locate(pins)
	}
	return MapDir(pins), "", nil
}

// recoverOld removes what is no longer, or not yet, of use.
func recoverOld(pins string) error {
	making, next, old := filepath.Join(pins, makingName), filepath.Join(pins, nextName), filepath.Join(pins, oldName)
	if err := os.RemoveAll(making); err != nil {
		return fmt.Errorf("remove unfinished maps: %w", err)
	}
	if !exists(old) {
		return nil
	}
	if exists(next) {
		s, err := readShapes(next)
		if err != nil {
			return err
		}
		// nothing is judged by what may have come to lie there
		if err := errors.Join(os.RemoveAll(layoutDir(pins, s.Layout)), os.Rename(next, layoutDir(pins, s.Layout))); err != nil {
			return fmt.Errorf("put the maps of layout %d in their place: %w", s.Layout, err)
		}
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("remove the maps of the layout before: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Settle ends a change of the layout, once this gate's programs are in place
// everywhere: the maps of the layout before are let go. Without a change it does
// nothing.
func (g *Gate) Settle() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.from == "" {
		return nil
	}
	if err := g.putInPlace(); err != nil {
		return err
	}
	pins := filepath.Dir(g.dir)
	if err := os.Rename(g.from, filepath.Join(pins, oldName)); err != nil {
		return fmt.Errorf("put the maps of the layout before aside: %w", err)
	}
	g.from, g.dir = "", MapDir(pins)
	return recoverOld(pins)
}

// putInPlace makes sure that the programs are in place where a table has grown
// since they were attached.
func (g *Gate) putInPlace() error {
	if g.onReplace == nil {
		return nil
	}
	g.programsHeld.Lock()
	defer g.programsHeld.Unlock()
	now := Programs{Frags: g.objects.Headgate, Plain: g.plain}
	if err := g.onReplace(now, now); err != nil {
		return fmt.Errorf("put the program of the new layout in place: %w", err)
	}
	return nil
}

// Unpin removes all pinned maps under pins, of whatever layout.
func Unpin(pins string) error {
	all, err := layouts(pins)
	if err != nil {
		return err
	}
	dirs := []string{makingName, nextName, oldName}
	for _, dir := range all {
		dirs = append(dirs, filepath.Base(dir))
	}
	for _, dir := range dirs {
		// in a bpffs a file is nothing but a reference
		if err := os.RemoveAll(filepath.Join(pins, dir)); err != nil {
			return fmt.Errorf("remove the pins: %w", err)
		}
	}
	return nil
}

// inForce is the folder of maps of this layout that packets are judged by, for
// who only looks; while the layout changes the new one.
func inForce(pins string) (string, error) {
	all, err := layouts(pins)
	if err != nil {
		return "", err
	}
	next := filepath.Join(pins, nextName)
	if exists(next) {
		if s, err := readShapes(next); err == nil && s.Layout == LayoutVersion {
			return next, nil
		}
	}
	if dir, ok := all[LayoutVersion]; ok {
		return dir, nil
	}
	for layout := range all {
		return "", fmt.Errorf("%s holds pins of layout v%d, this version reads v%d: start the daemon, which carries them over", pins, layout, LayoutVersion)
	}
	return MapDir(pins), nil
}
