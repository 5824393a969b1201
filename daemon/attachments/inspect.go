package attachments

import (
	"fmt"
	"slices"
)

// inspect holds what the daemon has attached against what the kernel says. What
// has gone with its interface is let go; what others took away is put back, or,
// without repair, told in faults.
func (k *Keeper) inspect(s Surroundings, repair bool, faults map[string]string) {
	for index, h := range k.held {
		at, there := s.byIndex(index)
		info, err := h.link.Info()
		if err != nil {
			faults[h.name] = fmt.Sprintf("its link cannot be looked at: %v", err)
			continue
		}
		on := info.XDP()
		switch {
		case on.Ifindex == 0 && there:
			k.forced(h, at.name, repair)
		case on.Ifindex != uint32(index) || !there || !runsNow(at, uint32(info.Program)):
			k.log.Info("interface has gone", "interface", h.name)
			k.letGo(h)
		default:
			k.inspectProgram(h, at, uint32(info.Program), repair, faults)
		}
	}
	k.pinFault = k.inspectPins(repair)
	k.rename(s)
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
	again, ok := Surroundings{nics: all}.byIndex(at.index)
	return ok && again.runs(program)
}

// letGo forgets a hold whose interface is no longer here. Where it went to
// another network namespace the program comes off: no one would govern it there.
func (k *Keeper) letGo(h *hold) {
	delete(k.held, h.index)
	if err := h.release(); err != nil {
		k.log.Error("let go of an interface that has gone", "interface", h.name, "err", err)
	}
}

// forced tells of a program that was taken off an interface that is still there.
func (k *Keeper) forced(h *hold, name string, repair bool) {
	const how = "its program was detached by force, as `bpftool link detach` does"
	delete(k.held, h.index)
	if err := h.forget(); err != nil {
		k.log.Error("remove the pin of a detached program", "interface", name, "err", err)
	}
	if repair {
		k.lost[name] = how
		return
	}
	k.leave[name] = how + ", and network.repair is off: `headgate reload` attaches again"
}

// inspectProgram puts our program back into our link, if another was put there.
func (k *Keeper) inspectProgram(h *hold, at nic, program uint32, repair bool, faults map[string]string) {
	ours, err := k.programs().ids()
	if err == nil && slices.Contains(ours, program) {
		return
	}
	what := fmt.Sprintf("another program (id %d) was put in the place of headgate's", program)
	if !repair {
		faults[at.name] = what + ", and network.repair is off: `headgate reload` puts it back"
		return
	}
	if err == nil {
		err = k.programs().update(h.link, at.name)
	}
	if err != nil {
		faults[at.name] = fmt.Sprintf("%s, which cannot be put back: %v", what, err)
		return
	}
	k.repaired(repairProgram, at.name, what+": put back")
}

// rename lets holds and their pins follow the names of their interfaces. Two may
// have changed names, so all old pins go first: the links are open meanwhile.
func (k *Keeper) rename(s Surroundings) {
	var moved []*hold
	for index, h := range k.held {
		at, ok := s.byIndex(index)
		if !ok || h.name == at.name && h.pin == pinPath(k.pins, at.name) {
			continue
		}
		if h.name != at.name {
			k.log.Info("interface was renamed", "interface", at.name, "was", h.name)
		}
		h.name = at.name
		moved = append(moved, h)
	}
	for _, h := range moved {
		if err := h.link.Unpin(); err != nil {
			k.log.Error("move the pin of a renamed interface", "interface", h.name, "err", err)
		}
	}
	for _, h := range moved {
		if err := h.repin(pinPath(k.pins, h.name)); err != nil {
			k.log.Error("move the pin of a renamed interface", "interface", h.name, "err", err)
		}
	}
}

// sound reports whether all that the daemon holds is as it left it: a few system
// calls an interface, for what raises no event.
func (k *Keeper) sound() bool {
	ours, err := k.programs().ids()
	if err != nil || k.pinFault != "" || k.lostPins() != "" {
		return false
	}
	for index, h := range k.held {
		info, err := h.link.Info()
		if err != nil || info.XDP().Ifindex != uint32(index) || !slices.Contains(ours, uint32(info.Program)) {
			return false
		}
	}
	return true
}
