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
	now      *policy // in force
	detached bool

	held      map[int]*hold     // what is attached, by index; nil: not looked at yet
	picks     []pick            // what network.interfaces stood for when last looked at
	faults    map[string]string // interface, or item of the config → why it is not as the config says
	leave     map[string]string // interface → why it is left alone until a reload
	lost      map[string]string // interface → how its program was taken off, until it is back
	left      []string          // what patterns left out, as last logged
	pinFault  string            // what is wrong with the pins
	audited   auditStatus       // of the pinned maps
	unsettled error             // of the last reconcile
	repairs   repairLog
	indices   map[string]int // of interfaces that rules name, as the rules have them

	checks    []gatewayCheck
	checkDue  chan struct{}
	unchecked map[string]bool // interfaces that are attached without a check

	stub programs // in the place of the gate's programs: for tests
}

func newNetwork(log *slog.Logger) *network {
	n := &network{log: log, checkDue: make(chan struct{}, 1)}
	n.forgive()
	return n
}

// forgive forgets why interfaces are left alone: a start or a reload tries all.
func (n *network) forgive() {
	n.leave, n.lost, n.unchecked = map[string]string{}, map[string]string{}, map[string]bool{}
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
		n.forgive()
		fresh, err := n.align(p, true)
		if err != nil {
			return n.restore(fresh, err)
		}
		n.settle()
		if err := n.resize(p.cfg.Network.Slots); err != nil {
			return n.restore(fresh, err)
		}
	}
	n.now, n.detached = p, false
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
	nics, err := listNICs()
	if err != nil {
		return err
	}
	if err := n.gate.SetRules(p.networkRules(), p.cfg.Network.Management, p.named); err != nil {
		return fmt.Errorf("load rules into the network gate: %w", err)
	}
	n.indices = ruleIndices(p, nics)
	return nil
}

func (n *network) loadLists(p *policy) error {
	if err := n.gate.SetLists(p.lists()); err != nil {
		return fmt.Errorf("load blocks and allows into the network gate: %w", err)
	}
	return nil
}

// restore goes back to what was in force before cause, and says so if that
// fails too. fresh is what was attached since.
func (n *network) restore(fresh []*hold, cause error) error {
	for _, h := range fresh {
		delete(n.held, h.index)
		if err := h.release(); err != nil {
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
	err := n.load(n.now)
	if err == nil {
		_, err = n.align(n.now, false)
	}
	if err != nil {
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
	_, err = DetachAll(pins)
	return err
}

// discard removes a folder of pins that was made for nothing, as far as it can:
// what went wrong has been told.
func discard(pins string) {
	if _, err := DetachAll(pins); err != nil {
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
	pins := n.pins
	g, err := maps.Open(maps.Options{
		Pins: pins, Slots: cfg.Network.Slots,
		OnReplace: func(old, next maps.Programs) error { return replacePrograms(pins, old, next) },
	})
	if err != nil {
		return fmt.Errorf("open the network gate: %w", keepVerifierLog(cfg.State.Dir, err))
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
	return n.setOwn()
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

// detachAll takes our programs off all interfaces and removes all pins. A
// reload attaches again.
func (n *network) detachAll() ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		return []string{}, nil
	}
	names := []string{}
	for _, h := range n.held {
		names = append(names, h.name)
	}
	slices.Sort(names)
	n.release()
	n.detached = true
	_, err := DetachAll(n.pins)
	return names, err
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
	closeAll(n.held)
	n.held, n.picks, n.faults, n.pinFault = nil, nil, nil, ""
	if n.gate != nil {
		n.gate.Close()
		n.gate = nil
	}
	if n.pinLock != nil {
		n.pinLock.Close()
		n.pinLock = nil
	}
}
