package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/maps"
)

const detachedWhy = "detached by `headgate detach`: `headgate reload` attaches again"

// network is the daemon's hold on the network gate. With no interfaces named
// nothing is loaded, and the daemon needs no privilege.
type network struct {
	log *slog.Logger

	mu       sync.Mutex
	gate     *maps.Gate // nil: off
	pinLock  *os.File   // held while gate is open
	pins     string
	now      *policy           // in force
	faults   map[string]string // interface → why nothing is attached
	notes    map[string]string // interface → what attaching said, such as why generic
	detached bool
}

// apply puts p in force, or leaves all as it was: the rules and lists first,
// so that no packet meets a program without them, then the interfaces.
func (n *network) apply(p *policy) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, before := os.Stat(p.cfg.State.Pins)
	if err := n.open(p.cfg); err != nil {
		if n.releaseIdle() && errors.Is(before, os.ErrNotExist) {
			discard(p.cfg.State.Pins)
		}
		return err
	}
	if n.gate != nil {
		if err := n.load(p); err != nil {
			return n.restore(nil, err)
		}
		fresh, err := n.attachAll(p.cfg)
		if err != nil {
			return n.restore(fresh, err)
		}
		n.settle()
	}
	n.now, n.detached, n.faults = p, false, nil
	return nil
}

// update puts changed rules, and lists that differ in few prefixes, in force
// without touching interfaces.
func (n *network) update(p *policy, few []netip.Prefix) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		n.now = p
		return nil
	}
	err := n.loadRules(p)
	if err == nil {
		err = n.gate.SetHeld(few, p.held)
	}
	if err != nil {
		return n.restore(nil, err)
	}
	n.now = p
	return nil
}

func (n *network) load(p *policy) error {
	if err := n.loadRules(p); err != nil {
		return err
	}
	return n.loadLists(p)
}

func (n *network) loadRules(p *policy) error {
	if err := n.gate.SetRules(p.networkRules(), p.cfg.Network.Management, p.named); err != nil {
		return fmt.Errorf("load rules into the network gate: %w", err)
	}
	return nil
}

func (n *network) loadLists(p *policy) error {
	if err := n.gate.SetLists(p.lists()); err != nil {
		return fmt.Errorf("load blocks and allows into the network gate: %w", err)
	}
	return nil
}

// restore goes back to what was in force before cause, and says so if that
// fails too. fresh are the interfaces attached since.
func (n *network) restore(fresh []string, cause error) error {
	for _, iface := range fresh {
		if err := detach(n.pins, iface); err != nil {
			cause = errors.Join(cause, err)
		}
	}
	made := n.gate != nil && !n.gate.Adopted()
	if n.releaseIdle() {
		if made {
			cause = errors.Join(cause, unpinUnused(n.pins))
		}
		return cause
	}
	if err := n.load(n.now); err != nil {
		return fmt.Errorf("%w; going back failed too: %w", cause, err)
	}
	return cause
}

// unpinUnused removes maps that were pinned for a gate that came to nothing:
// they would hold the memory of the bucket table until a reboot.
func unpinUnused(pins string) error {
	have, err := attachments(pins)
	if err != nil || len(have) > 0 {
		return err
	}
	return DetachAll(pins)
}

// discard removes a folder of pins that was made for nothing, as far as it can:
// what went wrong has been told.
func discard(pins string) {
	if DetachAll(pins) != nil {
		os.Remove(pins)
	}
}

// ownFolder makes sure that a folder of pins is ours. Anyone may make folders in
// a bpffs with its usual mode, and the owner of a folder removes what is in it.
func ownFolder(pins string) error {
	var st unix.Stat_t
	if err := unix.Lstat(pins, &st); err != nil {
		return fmt.Errorf("look at %s: %w", pins, err)
	}
	if uid := os.Geteuid(); st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != uid {
		return fmt.Errorf("%s is no folder of user %d, so others could take the pins away (its owner is user %d: remove it, or set state.pins to another)", pins, uid, st.Uid)
	}
	return nil
}

// open loads the gate when interfaces are named for the first time.
func (n *network) open(cfg *config.Config) error {
	n.pins = cfg.State.Pins
	if n.gate != nil || len(cfg.Network.Interfaces) == 0 {
		return nil
	}
	// Where the folder cannot be made, Open says what is missing.
	if os.MkdirAll(n.pins, 0o700) == nil && n.pinLock == nil {
		if err := ownFolder(n.pins); err != nil {
			return err
		}
		lock, err := lockDir(n.pins)
		if err != nil {
			return err
		}
		n.pinLock = lock
	}
	g, err := maps.Open(maps.Options{Pins: n.pins, Slots: cfg.Network.Slots})
	if err != nil {
		return fmt.Errorf("open the network gate: %w", err)
	}
	own, err := ownAddresses()
	if err == nil {
		err = g.SetOwnAddresses(own)
	}
	if err != nil {
		g.Close()
		return fmt.Errorf("open the network gate: %w", err)
	}
	n.gate = g
	n.tellCarried()
	n.warnSize(cfg.Network.Slots)
	return n.setOwn()
}

// warnSize says that a table that was pinned before has kept its size.
func (n *network) warnSize(wanted uint32) {
	if t, err := n.gate.Table(); err == nil && n.gate.Adopted() && t.Slots != uint64(wanted) {
		n.log.Warn("network.slots is not in force: the pinned bucket table keeps its size (to make a new one: stop the daemon, `headgate detach --all`, start it)",
			"slots", t.Slots, "network.slots", wanted)
	}
}

// setOwn tells the gate which addresses are the host's.
func (n *network) setOwn() error {
	own, err := ownAddresses()
	if err != nil {
		return err
	}
	if err := n.gate.SetOwnAddresses(own); err != nil {
		return fmt.Errorf("tell the network gate the host's addresses: %w", err)
	}
	return nil
}

// follow keeps the gate's idea of the host's addresses true until ctx ends.
func (n *network) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		err := followAddresses(ctx, n.log, func(own []netip.Addr) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.gate == nil {
				return nil
			}
			return n.gate.SetOwnAddresses(own)
		})
		if err != nil {
			n.log.Error("follow the host's addresses: trying again", "err", err)
			pause(ctx, 5*time.Second)
		}
	}
	return nil
}

// sweepEvery keeps dead slots from ever getting so old that their TAT looks
// like the future: that takes years.
const sweepEvery = 24 * time.Hour

// sweep frees the dead slots of the bucket table once a day.
func (n *network) sweep(ctx context.Context) error {
	for pause(ctx, sweepEvery); ctx.Err() == nil; pause(ctx, sweepEvery) {
		n.mu.Lock()
		if n.gate != nil {
			n.log.Debug("swept the bucket table", "freed", n.gate.Sweep())
		}
		n.mu.Unlock()
	}
	return nil
}

// attachAll attaches every interface that is named and returns those that had
// nothing of ours before.
func (n *network) attachAll(cfg *config.Config) (fresh []string, err error) {
	before, err := attachments(n.pins)
	if err != nil {
		return nil, err
	}
	for _, iface := range cfg.Network.Interfaces {
		a, err := attach(n.gate, n.pins, iface, cfg.Network.AttachMode)
		if err != nil {
			return fresh, err
		}
		if !attachedTo(before, iface) {
			fresh = append(fresh, iface)
			n.log.Info("attached", "interface", iface, "mode", a.AttachMode, "program", a.ProgramID)
		}
		n.note(a)
	}
	return fresh, nil
}

// note keeps what attaching said, and logs it once.
func (n *network) note(a Attachment) {
	if a.Warning != "" && n.notes[a.Interface] != a.Warning {
		n.log.Warn(a.Warning, "interface", a.Interface)
	}
	if n.notes == nil {
		n.notes = map[string]string{}
	}
	n.notes[a.Interface] = a.Warning
}

// detachOthers takes the program off interfaces that are no longer named.
func (n *network) detachOthers(cfg *config.Config) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := os.Stat(n.pins); err != nil {
		return nil
	}
	have, err := attachments(n.pins)
	if err != nil {
		return err
	}
	for _, a := range have {
		if slices.Contains(cfg.Network.Interfaces, a.Interface) {
			continue
		}
		if err := detachPin(a.Pin); err != nil { // named as the interface was then
			return err
		}
		n.log.Info("detached: no longer named in network.interfaces", "interface", a.Interface)
	}
	return uncoverAll(n.pins)
}

// attachedTo reports whether the kernel runs our program on iface.
func attachedTo(list []Attachment, iface string) bool {
	return slices.ContainsFunc(list, func(a Attachment) bool {
		return a.Interface == iface && a.ProgramID != 0
	})
}

// reconcile attaches again where an interface went away and came back, and
// notes why where it cannot.
func (n *network) reconcile() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil || n.now == nil || n.detached {
		return
	}
	have, err := attachments(n.pins)
	if err != nil {
		n.log.Error("look at attached programs", "err", err)
		return
	}
	faults := map[string]string{}
	for _, iface := range n.now.cfg.Network.Interfaces {
		if attachedTo(have, iface) {
			continue
		}
		a, err := attach(n.gate, n.pins, iface, n.now.cfg.Network.AttachMode)
		if err != nil {
			faults[iface] = err.Error()
			if n.faults[iface] != err.Error() {
				n.log.Error("attach again", "interface", iface, "err", err)
			}
			continue
		}
		n.note(a)
		n.log.Info("attached again", "interface", iface, "mode", a.AttachMode)
	}
	n.faults = faults
}

// detachAll takes our programs off all interfaces and removes all pins. A
// reload attaches again.
func (n *network) detachAll() ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		return []string{}, nil
	}
	names := slices.Clone(n.now.cfg.Network.Interfaces)
	n.release()
	n.detached = true
	return names, DetachAll(n.pins)
}

// close lets go of the maps. Programs stay attached and go on filtering.
func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.release()
}

// releaseIdle lets go of a gate that nothing in force needs.
func (n *network) releaseIdle() bool {
	if n.now != nil && len(n.now.cfg.Network.Interfaces) > 0 && !n.detached {
		return false
	}
	n.release()
	return true
}

func (n *network) release() {
	if n.gate != nil {
		n.gate.Close()
		n.gate = nil
	}
	if n.pinLock != nil {
		n.pinLock.Close()
		n.pinLock = nil
	}
}
