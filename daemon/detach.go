package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/maps"
	"golang.org/x/sys/unix"
)

// detachPin takes our program off the interface of a pinned link and removes the
// pin.
func detachPin(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return fmt.Errorf("open the pinned link %s: %w", pin, err)
	}
	defer l.Close()
	// a link whose interface has gone has nothing to detach
	if err := l.Detach(); err != nil && !errors.Is(err, unix.ENOLINK) {
		return fmt.Errorf("detach %s: %w", filepath.Base(pin), err)
	}
	if err := l.Unpin(); err != nil {
		return fmt.Errorf("remove the pin %s: %w", pin, err)
	}
	return nil
}

// DetachAll takes our programs off every interface and removes all pins under
// pins. It works without a daemon, and not behind the back of one that lives:
// it would go on without knowing that its pins are gone. Where nothing is
// pinned it does nothing.
func DetachAll(pins string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(pins, &fs); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return fmt.Errorf("look at %s: %w", pins, err)
	}
	if fs.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("%s is not in a bpffs: say where the pins are with --pins", pins)
	}
	lock, err := lockDir(pins)
	if err != nil {
		return fmt.Errorf("detach: %w (ask that daemon: --socket PATH or -c FILE; or end it, then detach)", err)
	}
	defer lock.Close()
	links, err := os.ReadDir(linkDir(pins))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list the pinned links: %w", err)
	}
	for _, e := range links {
		if err := detachPin(filepath.Join(linkDir(pins), e.Name())); err != nil {
			return err
		}
	}
	if err := uncoverAll(pins); err != nil {
		return err
	}
	if err := os.RemoveAll(linkDir(pins)); err != nil {
		return fmt.Errorf("remove the pins in %s: %w", linkDir(pins), err)
	}
	if err := maps.Unpin(pins); err != nil {
		return err
	}
	if err := os.Remove(pins); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", pins, err)
	}
	return nil
}
