package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon/preflight"
	"github.com/headgate/headgate/maps"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attachment is what the kernel says of our program on one interface.
type Attachment struct {
	Interface  string `json:"interface"`
	AttachMode string `json:"attach_mode"` // native, generic, none, or out of sight
	ProgramID  uint32 `json:"program_id"`
	Pin        string `json:"pin"`
	Warning    string `json:"warning,omitempty"` // why generic, or why not attached
}

// outOfSight is the attach mode of a program that is attached where this
// process cannot look.
const outOfSight = "out of sight"

func linkDir(pins string) string { return filepath.Join(pins, "links") }

// attach puts the gate's program on the interface and pins the link, or
// replaces the program in the link that is pinned there already, in one step.
// Programs of others are never touched.
func attach(g *maps.Gate, pins, iface string, mode config.AttachMode) (a Attachment, err error) {
	defer func() {
		if err == nil {
			err = uncoverPin(coverPin(pins, iface))
		}
	}()
	dev, err := netlink.LinkByName(iface)
	if err != nil {
		return Attachment{}, fmt.Errorf("attach %s: no such interface: network.interfaces may name %s", iface, interfaceNames())
	}
	if err := preflight.Attachable(dev); err != nil {
		return Attachment{}, err
	}
	pin := filepath.Join(linkDir(pins), iface)
	old, err := pinnedLink(pin, dev.Attrs().Index)
	switch {
	case err != nil:
		return Attachment{}, err
	case old != nil:
		defer old.Close()
		return adopt(g, old, dev, pin, mode)
	}
	if xdp := dev.Attrs().Xdp; xdp != nil && xdp.Attached {
		return Attachment{}, fmt.Errorf("attach %s: another XDP program is there: %s; take it off or name another interface (headgate never removes it)", iface, describeProgram(xdp.ProgId))
	}
	return attachNew(g, dev, pin, mode)
}

// pinnedLink opens the link pinned at pin, or returns nil where there is none.
// A link whose interface has gone or was made anew holds nothing: its pin is
// removed.
func pinnedLink(pin string, index int) (link.Link, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the pinned link %s: %w (remove the file if it is not headgate's)", pin, err)
	}
	info, err := l.Info()
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("look at the pinned link %s: %w", pin, err)
	}
	if xdp := info.XDP(); xdp != nil && xdp.Ifindex == uint32(index) {
		return l, nil
	}
	defer l.Close()
	if err := l.Unpin(); err != nil {
		return nil, fmt.Errorf("remove the pin %s of an interface that has gone: %w", pin, err)
	}
	return nil, nil
}

// adopt replaces the program in a link of ours. The attach mode stays: to
// change it the program would have to come off first.
func adopt(g *maps.Gate, l link.Link, dev netlink.Link, pin string, mode config.AttachMode) (Attachment, error) {
	err := l.Update(g.Program(true))
	if err != nil {
		err = l.Update(g.Program(false))
	}
	if err != nil {
		return Attachment{}, fmt.Errorf("replace the program on %s: %w", dev.Attrs().Name, err)
	}
	a, err := look(l, dev.Attrs().Name, pin)
	if mode != config.AttachAuto && err == nil && a.AttachMode != string(mode) {
		a.Warning = fmt.Sprintf("attached in %s mode, network.attach_mode says %s: to change it, `headgate detach --all`, then `headgate reload`", a.AttachMode, mode)
	}
	return a, err
}

// attachNew tries what the mode allows, the fastest first: native with frames
// of several buffers, native without, generic.
func attachNew(g *maps.Gate, dev netlink.Link, pin string, mode config.AttachMode) (Attachment, error) {
	name := dev.Attrs().Name
	if err := os.MkdirAll(filepath.Dir(pin), 0o700); err != nil {
		return Attachment{}, fmt.Errorf("make the folder of pins: %w", err)
	}
	warning := ""
	if mode != config.AttachGeneric {
		var native error
		var l link.Link
		for _, frags := range []bool{true, false} {
			if l, native = tryAttach(g, dev, frags, link.XDPDriverMode); native == nil {
				return pinNew(l, name, pin, "")
			}
			if errors.Is(native, unix.EBUSY) || errors.Is(native, unix.EPERM) {
				return Attachment{}, attachError(name, native)
			}
		}
		why := whyRefused(name, g.Program(false).FD(), native)
		if mode == config.AttachNative {
			return Attachment{}, fmt.Errorf("attach %s in native mode: %s; or use network.attach_mode: auto or generic", name, why)
		}
		warning = "attached in generic mode, which is slower, as native is refused: " + why
	}
	l, err := tryAttach(g, dev, true, link.XDPGenericMode)
	if err != nil {
		return Attachment{}, attachError(name, err)
	}
	return pinNew(l, name, pin, warning)
}

func tryAttach(g *maps.Gate, dev netlink.Link, frags bool, flags link.XDPAttachFlags) (link.Link, error) {
	return link.AttachXDP(link.XDPOptions{Program: g.Program(frags), Interface: dev.Attrs().Index, Flags: flags})
}

// whyRefused says why the kernel refused a program in native mode, and the cure.
func whyRefused(iface string, program int, err error) string {
	f, look := preflight.Look(iface)
	if look != nil {
		return err.Error()
	}
	return f.Explain(program, err)
}

func attachError(name string, err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("attach %s: another XDP program is there: take it off or name another interface (headgate never removes it)", name)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("attach %s: %w (run as root, or with CAP_NET_ADMIN and CAP_BPF)", name, unix.EPERM)
	}
	return fmt.Errorf("attach %s: %w", name, err)
}

func pinNew(l link.Link, name, pin, warning string) (Attachment, error) {
	defer l.Close()
	if err := l.Pin(pin); err != nil {
		return Attachment{}, fmt.Errorf("pin the link of %s: %w (without a pin the program goes with the daemon)", name, err)
	}
	a, err := look(l, name, pin)
	a.Warning = warning
	return a, err
}

// look asks the kernel what a link of ours has attached.
func look(l link.Link, name, pin string) (Attachment, error) {
	a := Attachment{Interface: name, AttachMode: "none", Pin: pin}
	info, err := l.Info()
	if err != nil {
		return a, fmt.Errorf("look at the link of %s: %w", name, err)
	}
	xdp := info.XDP()
	if xdp == nil || xdp.Ifindex == 0 {
		a.Warning = "its link holds no interface: it has gone, or was detached by force"
		return a, nil
	}
	dev, err := netlink.LinkByIndex(int(xdp.Ifindex))
	if err != nil {
		a.AttachMode = outOfSight
		a.Warning = fmt.Sprintf("its interface is in another network namespace than this process: %v", err)
		return a, nil
	}
	// An index means another interface in another network namespace: what runs
	// our program is the one. (Beside an offloaded program the id is left out.)
	on := dev.Attrs().Xdp
	if on == nil || !on.Attached || on.ProgId != 0 && on.ProgId != uint32(info.Program) {
		a.AttachMode = outOfSight
		a.Warning = "its interface is in another network namespace than this process"
		return a, nil
	}
	a.Interface = dev.Attrs().Name
	a.AttachMode = attachedMode(on)
	a.ProgramID = uint32(info.Program)
	return a, nil
}

func attachedMode(xdp *netlink.LinkXdp) string {
	switch xdp.AttachMode {
	case nl.XDP_ATTACHED_DRV:
		return string(config.AttachNative)
	case nl.XDP_ATTACHED_SKB:
		return string(config.AttachGeneric)
	}
	return fmt.Sprintf("mode %d", xdp.AttachMode)
}

// attachments asks the kernel what is attached by the links pinned under pins.
func attachments(pins string) ([]Attachment, error) {
	entries, err := os.ReadDir(linkDir(pins))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the pinned links: %w", err)
	}
	var all []Attachment
	for _, e := range entries {
		pin := filepath.Join(linkDir(pins), e.Name())
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			return nil, fmt.Errorf("open the pinned link %s: %w", pin, err)
		}
		a, err := look(l, e.Name(), pin)
		l.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// describeProgram names a program of others as far as our rights allow.
func describeProgram(id uint32) string {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return fmt.Sprintf("program id %d", id)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return fmt.Sprintf("program id %d", id)
	}
	return fmt.Sprintf("program id %d, name %q, tag %s", id, info.Name, info.Tag)
}

func interfaceNames() string {
	devs, err := net.Interfaces()
	if err != nil || len(devs) == 0 {
		return "none: there is none"
	}
	names := make([]string, len(devs))
	for i, d := range devs {
		names[i] = d.Name
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
