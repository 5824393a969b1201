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
	dev, mode, err := n.reattachable(q)
	if err != nil {
		return ReattachReply{}, err
	}
	was, err := n.attachmentOf(dev)
	if err != nil {
		return ReattachReply{}, err
	}
	if was.AttachMode == string(mode) || mode == config.AttachAuto && was.AttachMode == string(config.AttachNative) {
		return ReattachReply{q.Interface, was.AttachMode, was.AttachMode, was.ProgramID, ""}, nil
	}
	a, err := n.swap(dev, was, mode)
	if err != nil {
		return ReattachReply{}, err
	}
	n.log.Info("attach mode changed", "interface", a.Interface, "was", was.AttachMode, "mode", a.AttachMode)
	n.note(a)
	delete(n.faults, a.Interface)
	return ReattachReply{a.Interface, was.AttachMode, a.AttachMode, a.ProgramID, a.Warning}, nil
}

// reattachable checks what q asks for.
func (n *network) reattachable(q ReattachRequest) (netlink.Link, config.AttachMode, error) {
	switch {
	case n.gate == nil && n.detached:
		return nil, "", refuse("%s: %s", q.Interface, detachedWhy)
	case n.gate == nil:
		return nil, "", refuse("the network gate is off: name interfaces in network.interfaces")
	case !slices.Contains(n.now.cfg.Network.Interfaces, q.Interface):
		return nil, "", notThere("%s is not in network.interfaces: %s", q.Interface, strings.Join(n.now.cfg.Network.Interfaces, ", "))
	}
	mode := n.now.cfg.Network.AttachMode
	if q.Mode != "" {
		mode = config.AttachMode(q.Mode)
	}
	if mode != config.AttachAuto && mode != config.AttachNative && mode != config.AttachGeneric {
		return nil, "", badInput("mode %q: native, generic or auto", q.Mode)
	}
	dev, err := netlink.LinkByName(q.Interface)
	if err != nil {
		return nil, "", refuse("reattach %s: no such interface now", q.Interface)
	}
	return dev, mode, nil
}

// attachmentOf is what of ours is on dev.
func (n *network) attachmentOf(dev netlink.Link) (Attachment, error) {
	have, err := attachments(n.pins)
	if err != nil {
		return Attachment{}, err
	}
	for _, a := range have {
		if a.Interface == dev.Attrs().Name && a.ProgramID != 0 {
			return a, nil
		}
	}
	return Attachment{Interface: dev.Attrs().Name, AttachMode: "none"}, nil
}

// swap takes the program off dev and attaches it in mode, or as it was where
// that fails. Nothing passes unjudged meanwhile; attach removes the cover.
func (n *network) swap(dev netlink.Link, was Attachment, mode config.AttachMode) (Attachment, error) {
	name := dev.Attrs().Name
	if was.ProgramID == 0 {
		return attach(n.gate, n.pins, name, mode)
	}
	if err := cover(n.gate, n.pins, dev); err != nil {
		return Attachment{}, fmt.Errorf("%w; nothing was changed", err)
	}
	if err := detachPin(was.Pin); err != nil {
		return Attachment{}, errors.Join(err, uncoverAll(n.pins))
	}
	a, err := attach(n.gate, n.pins, name, mode)
	if err == nil {
		return a, nil
	}
	if _, back := attach(n.gate, n.pins, name, config.AttachMode(was.AttachMode)); back != nil {
		// the cover stays: it is all that judges now
		return a, fmt.Errorf("%w; going back to %s failed too: %w; a tc program judges in its place until `headgate reload` attaches again", err, was.AttachMode, back)
	}
	return a, refuse("%v; it is attached in %s mode as before", err, was.AttachMode)
}
