package attachments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// inspectPins puts back the pins of maps and links, and says what is wrong with
// them if it may not or cannot.
func (k *Keeper) inspectPins(repair bool) (fault string) {
	what := k.lostPins()
	if what == "" {
		return ""
	}
	if !repair {
		return what + ", and network.repair is off: filtering goes on while this daemon lives; `headgate reload` pins again"
	}
	if err := k.repin(); err != nil {
		return fmt.Sprintf("%s, and pinning again failed: %v (filtering goes on while this daemon lives)", what, err)
	}
	k.repaired(repairPins, "", what+": pinned again")
	return ""
}

// lostPins says which pins are not where they were put; "" for none.
func (k *Keeper) lostPins() string {
	mine, err := k.lock.Stat()
	if err != nil {
		return fmt.Sprintf("the folder of pins cannot be looked at: %v", err)
	}
	now, err := os.Stat(k.pins)
	switch {
	case err == nil && !os.SameFile(mine, now):
		return fmt.Sprintf("another folder is at %s than the pins were put in: something was mounted over it, or it was made anew", k.pins)
	case err != nil && (!inBPFFS(filepath.Dir(k.pins)) || !sameDevice(mine, filepath.Dir(k.pins))):
		return fmt.Sprintf("%s is out of sight: the bpffs was unmounted, or something was mounted over it", k.pins)
	case err != nil:
		return fmt.Sprintf("%s was removed with all pins", k.pins)
	}
	if lost := k.gate.Unpinned(k.pins); len(lost) > 0 {
		slices.Sort(lost)
		return fmt.Sprintf("the pins of %d maps were removed, %s the first", len(lost), lost[0])
	}
	for _, h := range k.held {
		if !h.pinned() {
			return fmt.Sprintf("the pin %s was removed", h.pin)
		}
	}
	return ""
}

// pinned reports whether the pin is there and leads to the link.
func (h *hold) pinned() bool {
	l, err := link.LoadPinnedLink(h.pin, nil)
	if err != nil {
		return false
	}
	defer l.Close()
	info, err := l.Info()
	return err == nil && info.ID == h.id
}

// inBPFFS reports whether dir, or what there is of it, lies in a bpffs.
func inBPFFS(dir string) bool {
	var fs unix.Statfs_t
	for unix.Statfs(dir, &fs) != nil {
		if dir == filepath.Dir(dir) {
			return false
		}
		dir = filepath.Dir(dir)
	}
	return fs.Type == unix.BPF_FS_MAGIC
}

// sameDevice reports whether dir, or what there is of it, lies in the file
// system of mine.
func sameDevice(mine os.FileInfo, dir string) bool {
	now, err := os.Stat(dir)
	for err != nil && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		now, err = os.Stat(dir)
	}
	a, ok := mine.Sys().(*syscall.Stat_t)
	if err != nil || !ok {
		return true
	}
	return a.Dev == now.Sys().(*syscall.Stat_t).Dev
}

// repin pins all that is not pinned, in a folder that is made anew if need be.
func (k *Keeper) repin() error {
	if err := os.MkdirAll(k.pins, 0o700); err != nil {
		return fmt.Errorf("make %s: %w (mount -t bpf bpf /sys/fs/bpf)", k.pins, err)
	}
	if !inBPFFS(k.pins) {
		return fmt.Errorf("%s is not in a bpffs (mount -t bpf bpf /sys/fs/bpf)", k.pins)
	}
	if err := k.relock(); err != nil {
		return err
	}
	if err := k.gate.Repin(k.pins); err != nil {
		return err
	}
	for _, h := range k.held {
		if h.pinned() {
			continue
		}
		if err := h.repin(h.pin); err != nil {
			return err
		}
	}
	return nil
}

// relock takes the folder of pins that is there now, if it is another one.
func (k *Keeper) relock() error {
	mine, err := k.lock.Stat()
	if err != nil {
		return err
	}
	now, err := os.Stat(k.pins)
	if err != nil {
		return err
	}
	if os.SameFile(mine, now) {
		return nil
	}
	lock, err := claim(k.pins)
	if err != nil {
		return err
	}
	k.lock.Close()
	k.lock = lock
	return nil
}

// repin puts the pin at path, in the place of whatever is there.
func (h *hold) repin(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the folder of pins: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	if err := h.link.Unpin(); err != nil { // the old pin, which it would move else
		return fmt.Errorf("pin the link of %s again: %w", h.name, err)
	}
	if err := h.link.Pin(path); err != nil {
		return fmt.Errorf("pin the link of %s again: %w", h.name, err)
	}
	h.pin = path
	return nil
}
