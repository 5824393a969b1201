package attachments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/link"

	"github.com/headgate/headgate/maps"
)

// Replace puts other programs of the gate into every pinned link, each in one
// step; after an error the ones before are in all of them again.
func (k *Keeper) Replace(old, next maps.Programs) error {
	pins := k.pins
	entries, err := os.ReadDir(linkDir(pins))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the pinned links: %w", err)
	}
	for i, e := range entries {
		err := updateLink(filepath.Join(linkDir(pins), e.Name()), next)
		if err == nil {
			continue
		}
		for _, done := range entries[:i+1] {
			err = errors.Join(err, updateLink(filepath.Join(linkDir(pins), done.Name()), old))
		}
		return err
	}
	return nil
}

// updateLink replaces the program in the link pinned at pin, if its interface
// is still there.
func updateLink(pin string, p maps.Programs) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the pinned link %s: %w", pin, err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return fmt.Errorf("look at the pinned link %s: %w", pin, err)
	}
	if xdp := info.XDP(); xdp == nil || xdp.Ifindex == 0 {
		return nil
	}
	if l.Update(p.Frags) == nil {
		return nil
	}
	if err := l.Update(p.Plain); err != nil {
		return fmt.Errorf("replace the program of %s: %w", filepath.Base(pin), err)
	}
	return nil
}
