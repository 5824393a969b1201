package attachments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon/preflight"
)

// hold is the daemon's hold on the program of one interface. While the link is
// open here, nothing that becomes of its pin takes the program off.
type hold struct {
	link  link.Link
	id    link.ID
	index int
	name  string // of the interface
	pin   string
	note  string // what attaching said, such as why generic
	other string // that it is in another mode than the config has
}

func (h *hold) close() { h.link.Close() }

// release takes the program off and removes the pin.
func (h *hold) release() error {
	// a link whose interface has gone has nothing to detach
	if err := h.link.Detach(); err != nil && !errors.Is(err, unix.ENOLINK) {
		return fmt.Errorf("detach %s: %w", h.name, err)
	}
	return h.forget()
}

// forget lets go of a link that holds nothing any more.
func (h *hold) forget() error {
	defer h.close()
	if err := h.link.Unpin(); err != nil {
		return fmt.Errorf("remove the pin %s: %w", h.pin, err)
	}
	return nil
}

// programs are the gate's programs for drivers that give frames of several
// buffers, and for those that do not.
type programs func(frags bool) *ebpf.Program

// ids returns the ids of both.
func (p programs) ids() ([]uint32, error) {
	var all []uint32
	for _, frags := range []bool{true, false} {
		info, err := p(frags).Info()
		if err != nil {
			return nil, fmt.Errorf("look at the loaded program: %w", err)
		}
		id, _ := info.ID()
		all = append(all, uint32(id))
	}
	return all, nil
}

// update puts our program in the place of the one in the link, in one step.
// The attach mode stays: to change it the program would have to come off first.
func (p programs) update(l link.Link, name string) error {
	err := l.Update(p(true))
	if err != nil {
		err = l.Update(p(false))
	}
	if err != nil {
		return fmt.Errorf("replace the program on %s: %w", name, err)
	}
	return nil
}

// attach puts the gate's program on an interface that has none and pins the
// link. Programs of others are never touched. It tries what the mode allows,
// the fastest first: native with frames of several buffers, native without,
// generic. The cover of an interface that a killed daemon left goes once the
// program is on.
func attach(p programs, pins string, n nic, mode config.AttachMode) (h *hold, err error) {
	defer func() {
		if err != nil {
			return
		}
		if err = uncoverPin(coverPin(pins, n.name)); err != nil {
			err = errors.Join(err, h.release())
		}
	}()
	dev, err := netlink.LinkByIndex(n.index)
	if err != nil {
		return nil, fmt.Errorf("attach %s: it has gone: %w", n.name, err)
	}
	if err := preflight.Attachable(dev); err != nil {
		return nil, err
	}
	pin := pinPath(pins, n.name)
	if err := os.MkdirAll(filepath.Dir(pin), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of pins: %w", err)
	}
	note := ""
	if mode != config.AttachGeneric {
		var native error
		var l link.Link
		for _, frags := range []bool{true, false} {
			if l, native = tryAttach(p, n, frags, link.XDPDriverMode); native == nil {
				return pinNew(l, n, pin, "")
			}
			if isForeign(native) || errors.Is(native, unix.EPERM) {
				return nil, attachError(n.name, native)
			}
		}
		why := whyRefused(n.name, p(false).FD(), native)
		if mode == config.AttachNative {
			return nil, fmt.Errorf("attach %s in native mode: %s; or use network.attach_mode: auto or generic", n.name, why)
		}
		note = "attached in generic mode, which is slower, as native is refused: " + why + "; then: headgate reattach " + n.name
	}
	l, err := tryAttach(p, n, true, link.XDPGenericMode)
	if err != nil {
		return nil, attachError(n.name, err)
	}
	return pinNew(l, n, pin, note)
}

// whyRefused says why the kernel refused a program in native mode, and the cure.
func whyRefused(iface string, program int, err error) string {
	f, look := preflight.Look(iface)
	if look != nil {
		return err.Error()
	}
	return f.Explain(program, err)
}

func tryAttach(p programs, n nic, frags bool, flags link.XDPAttachFlags) (link.Link, error) {
	return link.AttachXDP(link.XDPOptions{Program: p(frags), Interface: n.index, Flags: flags})
}

// isForeign reports whether attaching failed because of another program there:
// EBUSY in the same mode, EEXIST in another mode or on an interface above.
func isForeign(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) }

func attachError(name string, err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("attach %s: another XDP program is there: take it off or name another interface (headgate never removes it)", name)
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("attach %s: another XDP program is there in another mode, or on an interface above it: two do not go together; take it off or name another interface (headgate never removes it)", name)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("attach %s: %w (run as root, or with CAP_NET_ADMIN and CAP_BPF)", name, unix.EPERM)
	}
	return fmt.Errorf("attach %s: %w", name, err)
}

func pinNew(l link.Link, n nic, pin, note string) (*hold, error) {
	// a pin of this name is of a link that holds nothing: those that do are known
	err := os.Remove(pin)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = l.Pin(pin)
	}
	var info *link.Info
	if err == nil {
		info, err = l.Info()
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("pin the link of %s: %w (without a pin the program goes with the daemon)", n.name, err)
	}
	return &hold{link: l, id: info.ID, index: n.index, name: n.name, pin: pin, note: note}, nil
}

func linkDir(pins string) string { return filepath.Join(pins, "links") }

// pinPath is where the link of an interface is pinned. A bpffs refuses dots,
// which VLAN devices have as a rule, and an interface's name has no colon.
func pinPath(pins, name string) string {
	return filepath.Join(linkDir(pins), strings.ReplaceAll(name, ".", ":"))
}

// pinnedName is the interface that a pin was made for.
func pinnedName(pin string) string { return strings.ReplaceAll(filepath.Base(pin), ":", ".") }
