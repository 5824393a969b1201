package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Repair is one thing that others took away and that was put back.
type Repair struct {
	At        time.Time `json:"at"`
	Kind      string    `json:"kind"` // pins, link or program
	Interface string    `json:"interface,omitempty"`
	What      string    `json:"what"`
}

// Kinds of repairs, which are labels of a metric.
const (
	repairPins    = "pins"    // pinned again
	repairLink    = "link"    // attached again
	repairProgram = "program" // ours put in the place of another in our link
)

// keptRepairs is how many of the last repairs status tells of.
const keptRepairs = 8

// repairLog counts repairs and keeps the last.
type repairLog struct {
	counts map[string]uint64
	last   []Repair
}

// repaired keeps, counts and logs a repair.
func (n *network) repaired(kind, iface, what string) {
	n.log.Warn("repaired: "+what, "interface", iface, "kind", kind)
	if n.repairs.counts == nil {
		n.repairs.counts = map[string]uint64{}
	}
	n.repairs.counts[kind]++
	n.repairs.last = append(n.repairs.last, Repair{At: time.Now().UTC().Round(time.Millisecond), Kind: kind, Interface: iface, What: what})
	n.repairs.last = n.repairs.last[max(0, len(n.repairs.last)-keptRepairs):]
}

// inspect holds what the daemon has attached against what the kernel says. What
// has gone with its interface is let go; what others took away is put back, or,
// without repair, told in faults.
func (n *network) inspect(s surroundings, repair bool, faults map[string]string) {
	for index, h := range n.held {
		at, there := s.byIndex(index)
		info, err := h.link.Info()
		if err != nil {
			faults[h.name] = fmt.Sprintf("its link cannot be looked at: %v", err)
			continue
		}
		on := info.XDP()
		switch {
		case on.Ifindex == 0 && there:
			n.forced(h, at.name, repair)
		case on.Ifindex != uint32(index) || !there || !runsNow(at, uint32(info.Program)):
			n.log.Info("interface has gone", "interface", h.name)
			n.letGo(h)
		default:
			n.inspectProgram(h, at, uint32(info.Program), repair, faults)
		}
	}
	n.pinFault = n.inspectPins(repair)
	n.rename(s)
}

// runsNow asks again where at, which was looked at before, runs another
// program: it may have been replaced since.
func runsNow(at nic, program uint32) bool {
	if at.runs(program) {
		return true
	}
	all, err := listNICs()
	if err != nil {
		return true // nothing is taken off on a guess
	}
	again, ok := surroundings{nics: all}.byIndex(at.index)
	return ok && again.runs(program)
}

// letGo forgets a hold whose interface is no longer here. Where it went to
// another network namespace the program comes off: no one would govern it there.
func (n *network) letGo(h *hold) {
	delete(n.held, h.index)
	if err := h.release(); err != nil {
		n.log.Error("let go of an interface that has gone", "interface", h.name, "err", err)
	}
}

// forced tells of a program that was taken off an interface that is still there.
func (n *network) forced(h *hold, name string, repair bool) {
	const how = "its program was detached by force, as `bpftool link detach` does"
	delete(n.held, h.index)
	if err := h.forget(); err != nil {
		n.log.Error("remove the pin of a detached program", "interface", name, "err", err)
	}
	if repair {
		n.lost[name] = how
		return
	}
	n.leave[name] = how + ", and network.repair is off: `headgate reload` attaches again"
}

// inspectProgram puts our program back into our link, if another was put there.
func (n *network) inspectProgram(h *hold, at nic, program uint32, repair bool, faults map[string]string) {
	ours, err := n.programs().ids()
	if err == nil && slices.Contains(ours, program) {
		return
	}
	what := fmt.Sprintf("another program (id %d) was put in the place of headgate's", program)
	if !repair {
		faults[at.name] = what + ", and network.repair is off: `headgate reload` puts it back"
		return
	}
	if err == nil {
		err = n.programs().update(h.link, at.name)
	}
	if err != nil {
		faults[at.name] = fmt.Sprintf("%s, which cannot be put back: %v", what, err)
		return
	}
	n.repaired(repairProgram, at.name, what+": put back")
}

// inspectPins puts back the pins of maps and links, and says what is wrong with
// them if it may not or cannot.
func (n *network) inspectPins(repair bool) (fault string) {
	what := n.lostPins()
	if what == "" {
		return ""
	}
	if !repair {
		return what + ", and network.repair is off: filtering goes on while this daemon lives; `headgate reload` pins again"
	}
	if err := n.repin(); err != nil {
		return fmt.Sprintf("%s, and pinning again failed: %v (filtering goes on while this daemon lives)", what, err)
	}
	n.repaired(repairPins, "", what+": pinned again")
	return ""
}

// lostPins says which pins are not where they were put; "" for none.
func (n *network) lostPins() string {
	mine, err := n.pinLock.Stat()
	if err != nil {
		return fmt.Sprintf("the folder of pins cannot be looked at: %v", err)
	}
	now, err := os.Stat(n.pins)
	switch {
	case err == nil && !os.SameFile(mine, now):
		return fmt.Sprintf("another folder is at %s than the pins were put in: something was mounted over it, or it was made anew", n.pins)
	case err != nil && (!inBPFFS(filepath.Dir(n.pins)) || !sameDevice(mine, filepath.Dir(n.pins))):
		return fmt.Sprintf("%s is out of sight: the bpffs was unmounted, or something was mounted over it", n.pins)
	case err != nil:
		return fmt.Sprintf("%s was removed with all pins", n.pins)
	}
	if lost := n.gate.Unpinned(n.pins); len(lost) > 0 {
		slices.Sort(lost)
		return fmt.Sprintf("the pins of %d maps were removed, %s the first", len(lost), lost[0])
	}
	for _, h := range n.held {
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
func (n *network) repin() error {
	if err := os.MkdirAll(n.pins, 0o700); err != nil {
		return fmt.Errorf("make %s: %w (mount -t bpf bpf /sys/fs/bpf)", n.pins, err)
	}
	if !inBPFFS(n.pins) {
		return fmt.Errorf("%s is not in a bpffs (mount -t bpf bpf /sys/fs/bpf)", n.pins)
	}
	if err := n.relock(); err != nil {
		return err
	}
	if err := n.gate.Repin(n.pins); err != nil {
		return err
	}
	for _, h := range n.held {
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
func (n *network) relock() error {
	mine, err := n.pinLock.Stat()
	if err != nil {
		return err
	}
	now, err := os.Stat(n.pins)
	if err != nil {
		return err
	}
	if os.SameFile(mine, now) {
		return nil
	}
	if err := ownFolder(n.pins); err != nil {
		return err
	}
	lock, err := lockDir(n.pins)
	if err != nil {
		return err
	}
	n.pinLock.Close()
	n.pinLock = lock
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

// rename lets holds and their pins follow the names of their interfaces. Two may
// have changed names, so all old pins go first: the links are open meanwhile.
func (n *network) rename(s surroundings) {
	var moved []*hold
	for index, h := range n.held {
		at, ok := s.byIndex(index)
		if !ok || h.name == at.name && h.pin == pinPath(n.pins, at.name) {
			continue
		}
		if h.name != at.name {
			n.log.Info("interface was renamed", "interface", at.name, "was", h.name)
		}
		h.name = at.name
		moved = append(moved, h)
	}
	for _, h := range moved {
		if err := h.link.Unpin(); err != nil {
			n.log.Error("move the pin of a renamed interface", "interface", h.name, "err", err)
		}
	}
	for _, h := range moved {
		if err := h.repin(pinPath(n.pins, h.name)); err != nil {
			n.log.Error("move the pin of a renamed interface", "interface", h.name, "err", err)
		}
	}
}

// sound reports whether all that the daemon holds is as it left it: a few system
// calls an interface, for what raises no event.
func (n *network) sound() bool {
	ours, err := n.programs().ids()
	if err != nil || n.pinFault != "" || n.lostPins() != "" {
		return false
	}
	for index, h := range n.held {
		info, err := h.link.Info()
		if err != nil || info.XDP().Ifindex != uint32(index) || !slices.Contains(ours, uint32(info.Program)) {
			return false
		}
	}
	return true
}
