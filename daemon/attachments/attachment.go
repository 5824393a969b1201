package attachments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/config"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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
	n := nicOf(dev)
	if !n.runs(uint32(info.Program)) {
		a.AttachMode = outOfSight
		a.Warning = "its interface is in another network namespace than this process"
		return a, nil
	}
	a.Interface = n.name
	a.AttachMode = n.mode
	a.ProgramID = uint32(info.Program)
	return a, nil
}

// runs reports whether n has the program of that id attached. An index means
// another interface in another network namespace: what runs the program is the
// one. (Beside an offloaded program the id is left out.)
func (n nic) runs(program uint32) bool {
	return n.attached && (n.programID == 0 || n.programID == program)
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

// Attached asks the kernel what is attached by the links pinned under pins.
func Attached(pins string) ([]Attachment, error) {
	var all []Attachment
	err := eachLink(pins, func(pin string, l link.Link) error {
		defer l.Close()
		a, err := look(l, pinnedName(pin), pin)
		all = append(all, a)
		return err
	})
	return all, err
}

// eachLink opens all links pinned under pins; each is visit's to close.
func eachLink(pins string, visit func(pin string, l link.Link) error) error {
	entries, err := os.ReadDir(linkDir(pins))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the pinned links: %w", err)
	}
	for _, e := range entries {
		pin := filepath.Join(linkDir(pins), e.Name())
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			return fmt.Errorf("open the pinned link %s: %w (remove the file if it is not headgate's)", pin, err)
		}
		if err := visit(pin, l); err != nil {
			return err
		}
	}
	return nil
}
