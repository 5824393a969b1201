// Package preflight looks at an interface before the network gate is attached,
// says in words what will happen, and, where the kernel refuses, why and what
// cures it. Looking needs no privilege.
package preflight

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Facts are what the kernel says of an interface, as far as it bears on XDP.
type Facts struct {
	Name   string
	Index  int
	Driver string // as `ethtool -i` names it; empty: unknown
	Kind   string // of a virtual link: veth, vlan, bond, bridge; "device": hardware
	Parent string // of a vlan or macvlan: the interface below
	Master string // the bond or bridge that it belongs to
	// MasterKind is bond, bridge or another kind; empty without a master.
	MasterKind string
	Ethernet   bool // its frames begin with an Ethernet header
	MTU        int  // bytes
	Up         bool

	Channels Channels
	Features map[string]bool // what is on, by the kernel's names: rx-lro, rx-vlan-hw-parse
	XDP      *XDP            // nil: unknown (before Linux 6.3)
	Attached string          // what is attached: native, generic; empty: nothing
	Program  uint32          // its id

	Peer *Facts // of a veth, where it is in the same network namespace
}

// Channels are the queues of an interface that are in use, and how many it may
// have. A combined channel is one of each direction.
type Channels struct {
	RX, TX, Combined          uint32
	MaxRX, MaxTX, MaxCombined uint32
}

// Receive is the number of queues that receive.
func (c Channels) Receive() uint32 { return c.RX + c.Combined }

// Send is the number of queues that send.
func (c Channels) Send() uint32 { return c.TX + c.Combined }

// XDP is what the driver says it can do (netdev family of generic netlink,
// Linux 6.3).
type XDP struct {
	Basic bool // pass, drop, abort and send back, in native mode
	Frags bool // frames of more than one buffer
}

// Attachable refuses an interface whose frames the network gate cannot read: it
// would drop all of them, or pass all of them unread.
func Attachable(dev netlink.Link) error {
	if a := dev.Attrs(); !ethernetFrames(a) {
		return fmt.Errorf("attach %s: its frames have no Ethernet header (link type %s), so the network gate cannot read them: attach to the interface that carries its packets", a.Name, a.EncapType)
	}
	return nil
}

func ethernetFrames(a *netlink.LinkAttrs) bool {
	return a.EncapType == "ether" || a.EncapType == "loopback"
}

// Look reads the facts of an interface in the network namespace of the calling
// thread. What the kernel or the driver does not tell is left zero.
func Look(name string) (Facts, error) {
	dev, err := netlink.LinkByName(name)
	if err != nil {
		return Facts{}, fmt.Errorf("look at %s: %w", name, err)
	}
	f := facts(dev)
	if dev.Type() == "veth" && dev.Attrs().NetNsID < 0 && dev.Attrs().ParentIndex > 0 {
		if peer, err := netlink.LinkByIndex(dev.Attrs().ParentIndex); err == nil {
			p := facts(peer)
			f.Peer = &p
		}
	}
	return f, nil
}

func facts(dev netlink.Link) Facts {
	a := dev.Attrs()
	f := Facts{
		Name: a.Name, Index: a.Index, Kind: dev.Type(), MTU: a.MTU,
		Ethernet: ethernetFrames(a),
		Up:       a.Flags&unix.IFF_UP != 0,
		Driver:   driver(a.Name),
		Channels: channels(a.Index),
		Features: features(a.Index),
		XDP:      xdp(a.Index),
	}
	if dev.Type() == "vlan" || dev.Type() == "macvlan" {
		f.Parent = nameOf(a.ParentIndex)
	}
	if a.MasterIndex > 0 {
		if master, err := netlink.LinkByIndex(a.MasterIndex); err == nil {
			f.Master, f.MasterKind = master.Attrs().Name, master.Type()
		}
	}
	if on := a.Xdp; on != nil && on.Attached {
		f.Program, f.Attached = on.ProgId, "native"
		if on.AttachMode == nl.XDP_ATTACHED_SKB {
			f.Attached = "generic"
		}
	}
	return f
}

func nameOf(index int) string {
	dev, err := netlink.LinkByIndex(index)
	if err != nil {
		return ""
	}
	return dev.Attrs().Name
}

// driver asks by ioctl (SIOCETHTOOL), as netlink does not tell it.
func driver(name string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}
