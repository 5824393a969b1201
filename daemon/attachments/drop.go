package attachments

import (
	"os"
	"slices"

	"github.com/headgate/headgate/config"
)

// drop takes the program off interfaces that are none of the picks. While a
// reload may still fail, only off those that stand in the way of one: a bond is
// refused while a program is on its members.
func (k *Keeper) drop(s Surroundings, picks []pick, onlyRivals bool) {
	for index, h := range k.held {
		if slices.ContainsFunc(picks, func(p pick) bool { return p.index == index }) {
			continue
		}
		x, _ := s.byIndex(index)
		if onlyRivals && !slices.ContainsFunc(picks, func(p pick) bool {
			_, rival := s.rival(x, []nic{p.nic})
			return p.index != 0 && rival
		}) {
			continue
		}
		delete(k.held, index)
		if err := h.release(); err != nil {
			k.log.Error("detach", "interface", h.name, "err", err)
			continue
		}
		k.log.Info("detached: network.interfaces does not stand for it any more", "interface", h.name)
	}
}

// DropOthers takes the program off interfaces that cfg does not stand for.
func (k *Keeper) DropOthers(cfg *config.Config) error {
	if k.gate == nil {
		return k.dropPinned(cfg)
	}
	k.drop(Surroundings{}, k.picks, false)
	return uncoverAll(k.pins)
}

// dropPinned does the same for a gate that is off: an earlier daemon may have
// had it on.
func (k *Keeper) dropPinned(cfg *config.Config) error {
	if _, err := os.Stat(cfg.State.Pins); err != nil {
		return nil // none, or out of the reach of a daemon without privilege
	}
	have, err := Attached(cfg.State.Pins)
	if err != nil {
		return err
	}
	for _, a := range have {
		if _, err := detachPin(a.Pin); err != nil {
			return err
		}
		k.log.Info("detached: no longer named in network.interfaces", "interface", a.Interface)
	}
	return uncoverAll(cfg.State.Pins)
}
