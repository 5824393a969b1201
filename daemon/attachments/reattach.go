package attachments

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/config"
)

// ErrNotNamed is that network.interfaces does not stand for an interface.
var ErrNotNamed = errors.New("it is not in network.interfaces")

// Unchanged is why an interface stays as it is.
type Unchanged string

func (u Unchanged) Error() string { return string(u) }

// Reattach changes the attach mode of an interface and returns what was
// attached before and what is now. A link cannot change its mode, and native
// and generic exclude each other: the old program comes off before the new one
// goes on, and a tc program covers the gap.
//
// The error is ErrNotNamed, an Unchanged, or what went wrong on the way.
func (k *Keeper) Reattach(name string, mode config.AttachMode) (was, is Attachment, err error) {
	at, err := k.named(name)
	if err != nil {
		return was, is, err
	}
	was = Attachment{Interface: at.name, AttachMode: "none"}
	h := k.held[at.index]
	if h != nil {
		if was, err = look(h.link, h.name, h.pin); err != nil {
			return was, is, err
		}
	}
	if was.AttachMode == string(mode) || mode == config.AttachAuto && was.AttachMode == string(config.AttachNative) {
		return was, was, nil
	}
	if h, err = k.swap(at, h, was, mode); err != nil {
		return was, is, err
	}
	if is, err = look(h.link, h.name, h.pin); err != nil {
		return was, is, err
	}
	is.Warning = h.note
	k.log.Info("attached anew", "interface", is.Interface, "was", was.AttachMode, "mode", is.AttachMode)
	delete(k.faults, is.Interface)
	delete(k.leave, is.Interface)
	return was, is, nil
}

// named finds an interface that may be attached anew.
func (k *Keeper) named(name string) (nic, error) {
	i := slices.IndexFunc(k.picks, func(p pick) bool { return p.name == name })
	switch {
	case i < 0:
		return nic{}, ErrNotNamed
	case k.picks[i].index == 0:
		return nic{}, Unchanged(fmt.Sprintf("reattach %s: no such interface now", name))
	case k.picks[i].fault != "":
		return nic{}, Unchanged(fmt.Sprintf("reattach %s: %s", name, k.picks[i].fault))
	}
	return k.picks[i].nic, nil
}

// swap takes the program off and attaches it in mode, or as it was where that
// fails. Nothing passes unjudged meanwhile; attach removes the cover.
func (k *Keeper) swap(at nic, h *hold, was Attachment, mode config.AttachMode) (*hold, error) {
	if h == nil {
		return k.put(at, mode)
	}
	dev, err := netlink.LinkByIndex(at.index)
	if err != nil {
		return nil, Unchanged(fmt.Sprintf("reattach %s: no such interface now", at.name))
	}
	if err := cover(k.gate, k.pins, dev); err != nil {
		return nil, fmt.Errorf("%w; nothing was changed", err)
	}
	if err := h.release(); err != nil {
		return nil, errors.Join(err, uncoverAll(k.pins))
	}
	delete(k.held, at.index)
	note := h.note
	h, err = k.put(at, mode)
	if err == nil {
		return h, nil
	}
	h, back := k.put(at, config.AttachMode(was.AttachMode))
	if back != nil {
		// the cover stays: it is all that judges now
		return nil, fmt.Errorf("%w; going back to %s failed too: %w; a tc program judges in its place until `headgate reload` attaches again", err, was.AttachMode, back)
	}
	h.note = note // why it was so holds still
	return nil, Unchanged(fmt.Sprintf("%v; it is attached in %s mode as before", err, was.AttachMode))
}

// put attaches and keeps the hold.
func (k *Keeper) put(at nic, mode config.AttachMode) (*hold, error) {
	h, err := k.attach(at, mode)
	if err == nil {
		k.held[at.index] = h
	}
	return h, err
}
