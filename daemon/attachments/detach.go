package attachments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/internal/folderlock"
	"github.com/headgate/headgate/maps"
	"golang.org/x/sys/unix"
)

// detachPin takes our program off the interface of a pinned link, removes the
// pin, and reports whether there was an interface still.
func detachPin(pin string) (was bool, err error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return false, fmt.Errorf("open the pinned link %s: %w", pin, err)
	}
	defer l.Close()
	// a link whose interface has gone has nothing to detach
	err = l.Detach()
	if err != nil && !errors.Is(err, unix.ENOLINK) {
		return false, fmt.Errorf("detach %s: %w", filepath.Base(pin), err)
	}
	was = err == nil
	if err := l.Unpin(); err != nil {
		return was, fmt.Errorf("remove the pin %s: %w", pin, err)
	}
	return was, nil
}

// DetachAll takes our programs off every interface and removes all pins under
// pins. It works without a daemon, and not behind the back of one that lives:
// it would go on without knowing that its pins are gone. Where nothing is
// pinned it does nothing. It returns the interfaces that it took a program off,
// sorted, also with an error.
func DetachAll(pins string) (from []string, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(pins, &fs); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		return nil, fmt.Errorf("look at %s: %w", pins, err)
	}
	if fs.Type != unix.BPF_FS_MAGIC {
		return nil, fmt.Errorf("%s is not in a bpffs: say where the pins are with --pins", pins)
	}
	lock, err := folderlock.Take(pins)
	if err != nil {
		return nil, fmt.Errorf("detach: %w (ask that daemon: --socket PATH or -c FILE; or end it, then detach)", err)
	}
	defer lock.Close()
	links, err := os.ReadDir(linkDir(pins))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list the pinned links: %w", err)
	}
	for _, e := range links {
		was, err := detachPin(filepath.Join(linkDir(pins), e.Name()))
		if was {
			from = append(from, pinnedName(e.Name()))
		}
		if err != nil {
			return from, err
		}
	}
	slices.Sort(from)
	return from, removePins(pins)
}

// removePins removes all that is left under pins once nothing is attached.
func removePins(pins string) error {
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

// DetachUnused removes the pins once they are released and nothing is attached: maps that were pinned for
// a gate that came to nothing would hold the memory of the bucket table until a
// reboot.
func (k *Keeper) DetachUnused() error {
	have, err := Attached(k.pins)
	if err != nil || len(have) > 0 {
		return err
	}
	_, err = DetachAll(k.pins)
	return err
}

// Discard removes a folder of pins that was made for nothing, as far as it can:
// what went wrong has been told.
func Discard(pins string) {
	if _, err := DetachAll(pins); err != nil {
		os.Remove(pins)
	}
}
