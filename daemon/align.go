package daemon

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/headgate/headgate/config"
)

// survey looks at all that decides what is to be attached.
func survey(cfg *config.Config) (s surroundings, err error) {
	if s.nics, err = listNICs(); err != nil {
		return s, err
	}
	if slices.Contains(cfg.Network.Interfaces, config.AutoInterfaces) {
		s.routes, err = listDefaultRoutes()
	}
	return s, err
}

// align makes what is attached what network.interfaces of p stands for now. A
// fault of one interface is kept for status and leaves the others alone; asked,
// by a start or a reload, it is returned instead, with the holds that are fresh,
// and what is no longer named stays until dropOthers. The caller holds n.mu.
func (n *network) align(p *policy, asked bool) (fresh []*hold, err error) {
	s, err := survey(p.cfg)
	if err != nil {
		return nil, err
	}
	if n.held == nil {
		if err := n.recall(s); err != nil {
			return nil, err
		}
	}
	faults := map[string]string{}
	n.inspect(s, p.cfg.Network.Repair || asked, faults)
	picks, left := choose(p.cfg.Network.Interfaces, s, indices(n.held))
	for _, k := range picks {
		if k.fatal && asked {
			return nil, fmt.Errorf("attach %s: %s", k.name, k.fault)
		}
	}
	n.drop(s, picks, asked)
	n.tellLeft(left)
	for _, k := range picks {
		if n.held[k.index] != nil {
			continue
		}
		h, err := n.take(k, p.cfg.Network.AttachMode, asked)
		if err != nil && asked && k.index != 0 {
			return fresh, err
		}
		how, lost := n.lost[k.name]
		if err != nil {
			faults[k.name] = err.Error()
			continue
		}
		if lost {
			n.repaired(repairLink, k.name, how+": attached again")
			delete(n.lost, k.name)
		}
		fresh = append(fresh, h)
	}
	n.picks = picks
	n.tellFaults(faults)
	if asked {
		n.tellModes(p.cfg.Network.AttachMode)
	}
	return fresh, n.followIndices(p, s)
}

// tellModes says where what was attached before is in another mode than the
// config has now: to change it the program has to come off.
func (n *network) tellModes(mode config.AttachMode) {
	for _, h := range n.held {
		h.other = ""
		a, err := look(h.link, h.name, h.pin)
		if err != nil || a.ProgramID == 0 || mode == config.AttachAuto || a.AttachMode == string(mode) {
			continue
		}
		h.other = fmt.Sprintf("attached in %s mode, network.attach_mode says %s: `headgate reattach %s` changes it without a gap", a.AttachMode, mode, h.name)
		n.log.Warn(h.other, "interface", h.name)
	}
}

// take attaches what k stands for, if anything. Asked, it waits a moment for what
// a dying headgate holds.
func (n *network) take(k pick, mode config.AttachMode, asked bool) (*hold, error) {
	why := k.fault
	if why == "" {
		why = n.leave[k.name]
	}
	if why != "" {
		return nil, faultText(why)
	}
	patience := time.Duration(0)
	if asked {
		patience = dyingPatience
	}
	if err := n.makeRoom(k.nic, patience); err != nil {
		return nil, err
	}
	gateways := n.gatewaysOf(k.nic)
	h, err := n.attach(k.nic, mode)
	if err != nil {
		return nil, err
	}
	n.held[k.index] = h
	a, err := look(h.link, h.name, h.pin)
	if err != nil {
		return nil, err
	}
	n.log.Info("attached", "interface", h.name, "mode", a.AttachMode, "program", a.ProgramID)
	for _, note := range []string{h.note, k.note} {
		if note != "" {
			n.log.Warn(note, "interface", h.name)
		}
	}
	n.watchGateways(h, gateways)
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
func (n *network) attach(at nic, mode config.AttachMode) (*hold, error) {
	defer n.gate.HoldPrograms()()
	return attach(n.programs(), n.pins, at, mode)
}

// programs are the gate's, or those that a test puts in their place.
func (n *network) programs() programs {
	if n.stub != nil {
		return n.stub
	}
	return n.gate.Program
}

// recall takes over the links that are pinned: what an earlier daemon attached
// goes on, with our program in it. Links that hold nothing any more are removed.
func (n *network) recall(s surroundings) error {
	if n.gate != nil {
		defer n.gate.HoldPrograms()()
	}
	held := map[int]*hold{}
	err := eachLink(n.pins, func(pin string, l link.Link) error {
		info, err := l.Info()
		if err != nil {
			l.Close()
			return fmt.Errorf("look at the pinned link %s: %w", pin, err)
		}
		h := &hold{link: l, id: info.ID, name: pinnedName(pin), pin: pin}
		x := info.XDP()
		if x == nil {
			l.Close()
			return fmt.Errorf("the pinned link %s is not of an XDP program (remove the file: it is not headgate's)", pin)
		}
		at, ok := s.byIndex(int(x.Ifindex))
		if !ok || held[at.index] != nil || !at.runs(uint32(info.Program)) {
			n.log.Info("removed a pin of an interface that has gone", "interface", h.name)
			return h.forget()
		}
		h.index = at.index
		held[at.index] = h
		return n.programs().update(l, at.name)
	})
	if err != nil {
		closeAll(held)
		return err
	}
	n.held = held
	return nil
}

func closeAll(held map[int]*hold) {
	for _, h := range held {
		h.close()
	}
}

// drop takes the program off interfaces that are none of the picks. While a
// reload may still fail, only off those that stand in the way of one: a bond is
// refused while a program is on its members.
func (n *network) drop(s surroundings, picks []pick, onlyRivals bool) {
	for index, h := range n.held {
		if slices.ContainsFunc(picks, func(k pick) bool { return k.index == index }) {
			continue
		}
		x, _ := s.byIndex(index)
		if onlyRivals && !slices.ContainsFunc(picks, func(k pick) bool {
			_, rival := s.rival(x, []nic{k.nic})
			return k.index != 0 && rival
		}) {
			continue
		}
		delete(n.held, index)
		if err := h.release(); err != nil {
			n.log.Error("detach", "interface", h.name, "err", err)
			continue
		}
		n.log.Info("detached: network.interfaces does not stand for it any more", "interface", h.name)
	}
}

// dropOthers takes the program off interfaces that cfg does not stand for.
func (n *network) dropOthers(cfg *config.Config) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		return n.dropPinned(cfg)
	}
	n.drop(surroundings{}, n.picks, false)
	return uncoverAll(n.pins)
}

// dropPinned does the same for a gate that is off: an earlier daemon may have
// had it on.
func (n *network) dropPinned(cfg *config.Config) error {
	if _, err := os.Stat(cfg.State.Pins); err != nil {
		return nil // none, or out of the reach of a daemon without privilege
	}
	have, err := attachments(cfg.State.Pins)
	if err != nil {
		return err
	}
	for _, a := range have {
		if _, err := detachPin(a.Pin); err != nil {
			return err
		}
		n.log.Info("detached: no longer named in network.interfaces", "interface", a.Interface)
	}
	return nil
}

// tellFaults keeps faults, and logs each once as it comes and as it goes.
func (n *network) tellFaults(faults map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		if n.faults[name] != faults[name] {
			n.log.Error("not filtered: "+faults[name], "interface", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.faults)) {
		if faults[name] == "" {
			n.log.Info("no longer at fault", "interface", name)
		}
	}
	n.faults = faults
}

// tellLeft logs once what is left out of a pattern.
func (n *network) tellLeft(left []string) {
	for _, l := range left {
		if !slices.Contains(n.left, l) {
			n.log.Warn(l)
		}
	}
	n.left = left
}

// followIndices sets the rules again when an interface that they name has
// another index than they were set with.
func (n *network) followIndices(p *policy, s surroundings) error {
	if maps.Equal(n.indices, ruleIndices(p, s.nics)) {
		return nil
	}
	return n.loadRules(p)
}

// ruleIndices returns the index of each interface that a rule names and that is
// there.
func ruleIndices(p *policy, nics []nic) map[string]int {
	all := map[string]int{}
	for _, r := range p.networkRules() {
		for _, name := range r.Match.Interfaces {
			if i := slices.IndexFunc(nics, func(x nic) bool { return x.name == name }); i >= 0 {
				all[name] = nics[i].index
			}
		}
	}
	return all
}
