package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon/attachments"
	"github.com/headgate/headgate/maps"
)

const detachedWhy = "detached by `headgate detach`: `headgate reload` attaches again"

// network is the daemon's hold on the network gate. With no interfaces named
// nothing is loaded, and the daemon needs no privilege.
type network struct {
	log *slog.Logger

	mu       sync.Mutex
	gate     *maps.Gate // nil: off
	attached *attachments.Keeper
	now      *policy // in force
	detached bool
	audited  auditStatus // of the pinned maps
	ruled    *policy     // whose rules are loaded
	inlets   inlets      // of the interfaces that these rules name

	capturing *maps.Captures // nil: nobody does
}

func newNetwork(log *slog.Logger) *network {
	n := &network{log: log}
	n.attached = attachments.New(attachments.Owner{Log: log, Lock: &n.mu, Config: n.wanted, Moved: n.followInlets})
	return n
}

// wanted is the config that says what is to be attached now, if anything.
func (n *network) wanted() *config.Config {
	if n.now == nil || n.detached {
		return nil
	}
	return n.now.cfg
}

// apply puts p in force, or leaves all as it was: the rules and lists first,
// so that no packet meets a program without them, then the interfaces.
func (n *network) apply(p *policy) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, before := os.Stat(p.cfg.State.Pins)
	if err := n.open(p.cfg); err != nil {
		if n.releaseIdle() && errors.Is(before, os.ErrNotExist) {
			attachments.Discard(p.cfg.State.Pins)
		}
		return err
	}
	if n.gate != nil {
		if err := n.load(p); err != nil {
			return n.restore(nil, err)
		}
		n.attached.Forgive()
		undo, err := n.attached.Start(p.cfg)
		if err != nil {
			return n.restore(undo, err)
		}
		n.settle()
		if err := n.resize(p.cfg.Network.Slots); err != nil {
			return n.restore(undo, err)
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

// relabel notes that what is in force is p now, which asks the same of this gate
// as old.
func (n *network) relabel(old, p *policy) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.now == old {
		n.now = p
	}
}

func (n *network) load(p *policy) error {
	if err := n.loadRules(p); err != nil {
		return err
	}
	return n.loadLists(p)
}

func (n *network) loadRules(p *policy) error {
	s, err := attachments.Survey()
	if err != nil {
		return err
	}
	return n.loadRulesAt(p, s)
}

func (n *network) loadRulesAt(p *policy, s attachments.Surroundings) error {
	before := n.inlets
	n.inlets = inletsFor(p, s)
	if err := n.gate.SetRules(p.networkRules(), p.cfg.Network.Management, p.named); err != nil {
		n.inlets = before
		return fmt.Errorf("load rules into the network gate: %w", err)
	}
	n.ruled = p
	return nil
}

func (n *network) loadLists(p *policy) error {
	if err := n.gate.SetLists(p.lists()); err != nil {
		return fmt.Errorf("load blocks and allows into the network gate: %w", err)
	}
	return nil
}

// restore goes back to what was in force before cause, and says so if that
// fails too. undo takes off what was attached since, if anything may have been.
func (n *network) restore(undo func() error, cause error) error {
	if undo != nil {
		cause = errors.Join(cause, undo())
	}
	made := n.gate != nil && !n.gate.Adopted()
	if n.releaseIdle() {
		if made {
			cause = errors.Join(cause, n.attached.DetachUnused())
		}
		return cause
	}
	err := n.load(n.now)
	if err == nil {
		err = n.attached.Restore(n.now.cfg)
	}
	if err != nil {
		return fmt.Errorf("%w; going back failed too: %w", cause, err)
	}
	return cause
}

// open loads the gate when interfaces are named for the first time.
func (n *network) open(cfg *config.Config) error {
	if n.gate != nil || len(cfg.Network.Interfaces) == 0 {
		return nil
	}
	if err := n.attached.Claim(cfg.State.Pins); err != nil {
		return err
	}
	g, err := maps.Open(maps.Options{Pins: cfg.State.Pins, Slots: cfg.Network.Slots, OnReplace: n.attached.Replace, Inlets: n.inletsOf})
	if err != nil {
		return fmt.Errorf("open the network gate: %w", keepVerifierLog(cfg.State.Dir, err))
	}
	own, err := attachments.OwnAddresses()
	if err == nil {
		err = g.SetOwnAddresses(own)
	}
	if err != nil {
		g.Close()
		return fmt.Errorf("open the network gate: %w", err)
	}
	n.gate = g
	n.attached.Use(g)
	n.tellCarried()
	return n.setOwn()
}

// setOwn tells the gate which addresses are the host's.
func (n *network) setOwn() error {
	own, err := attachments.OwnAddresses()
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
		err := attachments.FollowAddresses(ctx, n.log, func(own []netip.Addr) error {
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

// dropOthers takes our programs off interfaces that cfg does not stand for.
func (n *network) dropOthers(cfg *config.Config) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.attached.DropOthers(cfg)
}

// detachAll takes our programs off all interfaces and removes all pins. A
// reload attaches again.
func (n *network) detachAll() ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		return []string{}, nil
	}
	names := n.attached.Interfaces()
	n.release()
	n.detached = true
	_, err := attachments.DetachAll(n.now.cfg.State.Pins)
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
	n.attached.Release()
	if n.gate != nil {
		n.gate.Close()
		n.gate = nil
	}
}
