package attachments

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/config"
)

// Start makes what is attached what network.interfaces of cfg stands for now, as
// a start or a reload asks. What is no longer named stays until DropOthers. undo
// takes off what it attached, also what it did before an error; it is never nil.
func (k *Keeper) Start(cfg *config.Config) (undo func() error, err error) {
	fresh, err := k.align(cfg, true)
	return func() error { return k.takeOff(fresh) }, err
}

// Restore is Start without the asking: a fault of one interface is kept for
// status and leaves the others alone.
func (k *Keeper) Restore(cfg *config.Config) error {
	_, err := k.align(cfg, false)
	return err
}

func (k *Keeper) takeOff(fresh []*hold) error {
	var errs []error
	for _, h := range fresh {
		delete(k.held, h.index)
		errs = append(errs, h.release())
	}
	return errors.Join(errs...)
}

// align makes what is attached what network.interfaces of cfg stands for now. A
// fault of one interface is kept for status and leaves the others alone; asked,
// it is returned instead, with the holds that are fresh.
func (k *Keeper) align(cfg *config.Config, asked bool) (fresh []*hold, err error) {
	s, err := survey(cfg)
	if err != nil {
		return nil, err
	}
	if k.held == nil {
		if err := k.recall(s); err != nil {
			return nil, err
		}
	}
	faults := map[string]string{}
	k.inspect(s, cfg.Network.Repair || asked, faults)
	picks, left := choose(cfg.Network.Interfaces, s, indices(k.held))
	for _, p := range picks {
		if p.fatal && asked {
			return nil, fmt.Errorf("attach %s: %s", p.name, p.fault)
		}
	}
	k.drop(s, picks, asked)
	k.tellLeft(left)
	for _, p := range picks {
		if k.held[p.index] != nil {
			continue
		}
		h, err := k.take(p, cfg.Network.AttachMode, asked)
		if err != nil && asked && p.index != 0 {
			return fresh, err
		}
		how, lost := k.lost[p.name]
		if err != nil {
			faults[p.name] = err.Error()
			continue
		}
		if lost {
			k.repaired(repairLink, p.name, how+": attached again")
			delete(k.lost, p.name)
		}
		fresh = append(fresh, h)
	}
	k.picks = picks
	k.tellFaults(faults)
	if asked {
		k.tellModes(cfg.Network.AttachMode)
	}
	return fresh, k.owner.Moved(s)
}

// take attaches what p stands for, if anything. Asked, it waits a moment for what
// a dying headgate holds.
func (k *Keeper) take(p pick, mode config.AttachMode, asked bool) (*hold, error) {
	why := p.fault
	if why == "" {
		why = k.leave[p.name]
	}
	if why != "" {
		return nil, faultText(why)
	}
	patience := time.Duration(0)
	if asked {
		patience = dyingPatience
	}
	if err := k.makeRoom(p.nic, patience); err != nil {
		return nil, err
	}
	gateways := k.gatewaysOf(p.nic)
	h, err := k.attach(p.nic, mode)
	if err != nil {
		return nil, err
	}
	k.held[p.index] = h
	a, err := look(h.link, h.name, h.pin)
	if err != nil {
		return nil, err
	}
	k.log.Info("attached", "interface", h.name, "mode", a.AttachMode, "program", a.ProgramID)
	for _, note := range []string{h.note, p.note} {
		if note != "" {
			k.log.Warn(note, "interface", h.name)
		}
	}
	k.watchGateways(h, gateways)
	return h, nil
}

// faultText is a fault that is already a sentence.
type faultText string

func (f faultText) Error() string { return string(f) }

func indices(held map[int]*hold) map[int]bool {
	all := map[int]bool{}
	for i := range held {
		all[i] = true
	}
	return all
}

// attach attaches the programs in force, which are not replaced meanwhile.
func (k *Keeper) attach(at nic, mode config.AttachMode) (*hold, error) {
	defer k.gate.HoldPrograms()()
	return attach(k.programs(), k.pins, at, mode)
}

// programs are the gate's, or those that a test puts in their place.
func (k *Keeper) programs() programs {
	if k.stub != nil {
		return k.stub
	}
	return k.gate.Program
}
