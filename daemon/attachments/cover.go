package attachments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/maps"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// While an interface is without its XDP program, because its attach mode
// changes, the gate's tc program judges in its place. It is pinned before the
// one comes off and removed when the other is on, so that a daemon that is
// killed in between leaves the interface covered; the next start removes it.

const coverName = "headgate_cover"

func coverDir(pins string) string { return filepath.Join(pins, "covers") }

// coverPin is where the cover of an interface is pinned. A bpffs takes no dot
// in a name; an interface takes no colon in its.
func coverPin(pins, iface string) string {
	return filepath.Join(coverDir(pins), strings.ReplaceAll(iface, ".", ":"))
}

// cover lets the tc program judge what arrives at dev. Until uncover it judges
// what the XDP program has passed a second time, if there is one: too strict,
// never too loose.
func cover(g *maps.Gate, pins string, dev netlink.Link) error {
	name := dev.Attrs().Name
	p, err := g.LoadCover()
	if err != nil {
		return fmt.Errorf("cover %s: %w", name, err)
	}
	defer p.Close()
	if err := os.MkdirAll(coverDir(pins), 0o700); err != nil {
		return fmt.Errorf("cover %s: make the folder of pins: %w", name, err)
	}
	// of a daemon that was killed, perhaps of another version
	if err := uncoverPin(coverPin(pins, name)); err != nil {
		return err
	}
	err = coverTCX(p, dev, coverPin(pins, name))
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = coverClsact(p, dev, coverPin(pins, name))
	}
	if err != nil {
		return fmt.Errorf("cover %s by a tc program while its attach mode changes: %w", name, err)
	}
	return nil
}

// coverTCX puts the program before all others (Linux 6.6).
func coverTCX(p *ebpf.Program, dev netlink.Link, pin string) error {
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: dev.Attrs().Index, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: link.Head(),
	})
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.Pin(pin); err != nil {
		return errors.Join(fmt.Errorf("pin it: %w", err), l.Detach())
	}
	return nil
}

// coverClsact is for older kernels: a filter of the clsact qdisc, which holds
// without a pin. What is pinned is the program, to know later that it is ours.
// A clsact qdisc that was made for it stays, empty: others may use it by then.
func coverClsact(p *ebpf.Program, dev netlink.Link, pin string) error {
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: dev.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add a clsact qdisc: %w", err)
	}
	if err := p.Pin(pin); err != nil {
		return fmt.Errorf("pin it: %w", err)
	}
	if err := netlink.FilterAdd(coverFilter(p, dev.Attrs().Index)); err != nil {
		return errors.Join(fmt.Errorf("add a filter: %w", err), os.Remove(pin))
	}
	return nil
}

func coverFilter(p *ebpf.Program, index int) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Fd: p.FD(), Name: coverName, DirectAction: true,
	}
}

// Covered returns the interfaces that a change of the attach mode which was cut
// short left covered by a tc program.
func Covered(pins string) (names []string, err error) {
	entries, err := os.ReadDir(coverDir(pins))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, strings.ReplaceAll(e.Name(), ":", "."))
	}
	return names, err
}

// uncoverAll removes what cover put on any interface.
func uncoverAll(pins string) error {
	names, err := Covered(pins)
	if err != nil {
		return fmt.Errorf("list the pinned covers: %w", err)
	}
	for _, name := range names {
		err = errors.Join(err, uncoverPin(coverPin(pins, name)))
	}
	if err == nil {
		err = os.Remove(coverDir(pins))
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// uncoverPin removes the cover that is pinned at pin, if there is one.
func uncoverPin(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil: // a program, whose filter holds it
		err = removeFilter(strings.ReplaceAll(filepath.Base(pin), ":", "."))
	default:
		defer l.Close()
		// an interface that has gone has taken it along
		if err = l.Detach(); errors.Is(err, unix.ENOLINK) {
			err = nil
		}
	}
	if err == nil {
		err = os.Remove(pin)
	}
	if err != nil {
		return fmt.Errorf("remove the tc program that covered %s: %w", filepath.Base(pin), err)
	}
	return nil
}

func removeFilter(iface string) error {
	dev, err := netlink.LinkByName(iface)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return err
	}
	filters, err := netlink.FilterList(dev, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return fmt.Errorf("list its filters: %w", err)
	}
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == coverName {
			err = errors.Join(err, netlink.FilterDel(b))
		}
	}
	return err
}
