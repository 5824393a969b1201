package attachments

import (
	"fmt"
	"path/filepath"
)

// String names it as far as it is known.
func (o occupant) String() string {
	text := fmt.Sprintf("program id %d", o.id)
	if o.name != "" || o.tag != "" {
		text += fmt.Sprintf(", name %q, tag %s", o.name, o.tag)
	} else {
		// a daemon that has started has no more rights than it needs
		text += fmt.Sprintf(" (`bpftool prog show id %d` names it)", o.id)
	}
	if o.pid != 0 {
		text += fmt.Sprintf(", held by pid %d (%s)", o.pid, o.command)
	}
	if o.pin != "" {
		text += ", pinned at " + o.pin
	}
	return text
}

// refusal says why it stays and what there is to choose.
func (o occupant) refusal() error {
	name := o.on.name
	pins := filepath.Dir(filepath.Dir(o.pin))
	switch {
	case o.ours() && o.pid != 0 && o.pin != "":
		return fmt.Errorf("attach %s: already running pid %d (%s), which holds it with its pins in %s: end that one and `headgate detach --all --pins %s`, or name another interface", name, o.pid, o.command, pins, pins)
	case o.ours() && o.pid != 0:
		return fmt.Errorf("attach %s: already running pid %d (%s), which holds it: end that one, or name another interface", name, o.pid, o.command)
	case o.ours() && o.pin != "":
		return fmt.Errorf("attach %s: a headgate whose daemon is dead left its program there (%s): set state.pins to %s to take it over, or `headgate detach --all --pins %s`", name, o, pins, pins)
	case o.ours():
		return fmt.Errorf("attach %s: a program of headgate is there whose process and pin are out of sight (%s): %s", name, o, o.cure())
	}
	return fmt.Errorf("attach %s: another XDP program is there: %s; two do not go together, native beside generic neither: name another interface, or take it off: %s (headgate never removes it)", name, o, o.cure())
}

// cure is the command that takes the program off.
func (o occupant) cure() string {
	off := map[string]string{"native": "xdpdrv", "generic": "xdpgeneric"}[o.on.mode]
	if off == "" {
		off = "xdp"
	}
	byNetlink := fmt.Sprintf("`ip link set dev %s %s off`", o.on.name, off)
	byLink := fmt.Sprintf("`bpftool link detach id %d`", o.link)
	switch {
	case o.name == "xdp_dispatcher":
		return fmt.Sprintf("`xdp-loader unload %s --all`", o.on.name)
	case o.link != 0:
		return byLink
	case o.netlink:
		return byNetlink
	}
	return byNetlink + ", or find its link with `bpftool link` and `bpftool link detach id N`"
}
