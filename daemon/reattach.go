package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/config"
	"github.com/vishvananda/netlink"
)

// ReattachRequest asks for another attach mode of one interface.
type ReattachRequest struct {
	Interface string `json:"interface"`
	Mode      string `json:"mode,omitempty"` // native, generic or auto; empty: as network.attach_mode says
}

// ReattachReply is what came of it.
type ReattachReply struct {
	Interface  string `json:"interface"`
	Was        string `json:"was"` // attach mode before: native, generic or none
	AttachMode string `json:"attach_mode"`
	ProgramID  uint32 `json:"program_id"`
	Warning    string `json:"warning,omitempty"` // why generic
}

// reattach changes the attach mode of an interface. A link cannot change its
// mode, and native and generic exclude each other: the old program comes off
// before the new one goes on, and a tc program covers the gap.
func (n *network) reattach(q ReattachRequest) (ReattachReply, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, mode, err := n.reattachable(q)
	if err != nil {
		return ReattachReply{}, err
	}
	was := Attachment{Interface: at.name, AttachMode: "none"}
	h := n.held[at.index]
	if h != nil {
		if was, err = look(h.link, h.name, h.pin); err != nil {
			return ReattachReply{}, err
		}
	}
	if was.AttachMode == string(mode) || mode == config.AttachAuto && was.AttachMode == string(config.AttachNative) {
		return ReattachReply{q.Interface, was.AttachMode, was.AttachMode, was.ProgramID, ""}, nil
	}
	if h, err = n.swap(at, h, was, mode); err != nil {
		return ReattachReply{}, err
	}
	a, err := look(h.link, h.name, h.pin)
	if err != nil {
		return ReattachReply{}, err
	}
	n.log.Info("attached anew", "interface", a.Interface, "was", was.AttachMode, "mode", a.AttachMode)
	delete(n.faults, a.Interface)
	delete(n.leave, a.Interface)
	return ReattachReply{a.Interface, was.AttachMode, a.AttachMode, a.ProgramID, h.note}, nil
}

// reattachable checks what q asks for.
func (n *network) reattachable(q ReattachRequest) (nic, config.AttachMode, error) {
	switch {
	case n.gate == nil && n.detached:
		return nic{}, "", refuse("%s: %s", q.Interface, detachedWhy)
	case n.gate == nil:
		return nic{}, "", refuse("the network gate is off: name interfaces in network.interfaces")
	}
	mode := n.now.cfg.Network.AttachMode
	if q.Mode != "" {
		mode = config.AttachMode(q.Mode)
	}
	if mode != config.AttachAuto && mode != config.AttachNative && mode != config.AttachGeneric {
		return nic{}, "", badInput("mode %q: native, generic or auto", q.Mode)
	}
	i := slices.IndexFunc(n.picks, func(k pick) bool { return k.name == q.Interface })
	switch {
	case i < 0:
		return nic{}, "", notThere("%s is not in network.interfaces: %s", q.Interface, strings.Join(n.now.cfg.Network.Interfaces, ", "))
	case n.picks[i].index == 0:
		return nic{}, "", refuse("reattach %s: no such interface now", q.Interface)
	case n.picks[i].fault != "":
		return nic{}, "", refuse("reattach %s: %s", q.Interface, n.picks[i].fault)
	}
	return n.picks[i].nic, mode, nil
}

// swap takes the program off and attaches it in mode, or as it was where that
// fails. Nothing passes unjudged meanwhile; attach removes the cover.
func (n *network) swap(at nic, h *hold, was Attachment, mode config.AttachMode) (*hold, error) {
	if h == nil {
		return n.put(at, mode)
	}
	dev, err := netlink.LinkByIndex(at.index)
	if err != nil {
		return nil, refuse("reattach %s: no such interface now", at.name)
	}
	if err := cover(n.gate, n.pins, dev); err != nil {
		return nil, fmt.Errorf("%w; nothing was changed", err)
	}
	if err := h.release(); err != nil {
		return nil, errors.Join(err, uncoverAll(n.pins))
	}
	delete(n.held, at.index)
	note := h.note
	h, err = n.put(at, mode)
	if err == nil {
		return h, nil
	}
	h, back := n.put(at, config.AttachMode(was.AttachMode))
	if back != nil {
		// the cover stays: it is all that judges now
		return nil, fmt.Errorf("%w; going back to %s failed too: %w; a tc program judges in its place until `headgate reload` attaches again", err, was.AttachMode, back)
	}
	h.note = note // why it was so holds still
	return nil, refuse("%v; it is attached in %s mode as before", err, was.AttachMode)
}

// put attaches and keeps the hold.
func (n *network) put(at nic, mode config.AttachMode) (*hold, error) {
	h, err := n.attach(at, mode)
	if err == nil {
		n.held[at.index] = h
	}
	return h, err
}
