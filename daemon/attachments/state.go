package attachments

import (
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate/config"
)

// State is one interface that network.interfaces stands for, or an item of it
// that stands for none, and what the kernel says of it.
type State struct {
	Attachment
	Fault string // why it is not as the config says; empty: it is
}

// States asks the kernel what is attached, in the order of the config.
func (k *Keeper) States() []State {
	var all []State
	for _, p := range k.picks {
		all = append(all, k.state(p))
	}
	return all
}

func (k *Keeper) state(p pick) State {
	h := k.held[p.index]
	if h == nil {
		why := firstOf(k.faults[p.name], "nothing of headgate is attached")
		return State{Attachment{Interface: p.name, AttachMode: "none", Warning: why}, why}
	}
	a, err := look(h.link, h.name, h.pin)
	s := State{a, k.faults[p.name]}
	s.Interface = h.name
	s.Warning = firstOf(a.Warning, h.other, h.note, p.note)
	if err != nil {
		s.Fault = err.Error()
	}
	if s.ProgramID == 0 && s.Fault == "" {
		s.Fault = s.Warning
	}
	return s
}

// Faults says what is wrong with the pins, and with looking at interfaces.
func (k *Keeper) Faults() []string {
	var all []string
	if k.pinFault != "" {
		all = append(all, k.pinFault)
	}
	if k.unsettled != nil {
		all = append(all, k.unsettled.Error())
	}
	return all
}

// NotFiltered says of each interface, or item of the config, why nothing is
// attached.
func (k *Keeper) NotFiltered() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(k.faults)) {
		all = append(all, fmt.Sprintf("interface %s: %s", name, k.faults[name]))
	}
	return all
}

// tellModes says where what was attached before is in another mode than the
// config has now: to change it the program has to come off.
func (k *Keeper) tellModes(mode config.AttachMode) {
	for _, h := range k.held {
		h.other = ""
		a, err := look(h.link, h.name, h.pin)
		if err != nil || a.ProgramID == 0 || mode == config.AttachAuto || a.AttachMode == string(mode) {
			continue
		}
		h.other = fmt.Sprintf("attached in %s mode, network.attach_mode says %s: `headgate reattach %s` changes it without a gap", a.AttachMode, mode, h.name)
		k.log.Warn(h.other, "interface", h.name)
	}
}

// tellFaults keeps faults, and logs each once as it comes and as it goes.
func (k *Keeper) tellFaults(faults map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		if k.faults[name] != faults[name] {
			k.log.Error("not filtered: "+faults[name], "interface", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.faults)) {
		if faults[name] == "" {
			k.log.Info("no longer at fault", "interface", name)
		}
	}
	k.faults = faults
}

// tellLeft logs once what is left out of a pattern.
func (k *Keeper) tellLeft(left []string) {
	for _, l := range left {
		if !slices.Contains(k.left, l) {
			k.log.Warn(l)
		}
	}
	k.left = left
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
