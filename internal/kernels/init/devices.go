package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/maps"
	"github.com/vishvananda/netlink"
)

func setMTU(end rig.End, bytes int) error {
	return rig.Run(end.NS, func() error {
		dev, err := netlink.LinkByIndex(end.Index)
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(dev, bytes)
	})
}

// add makes an interface in the namespace of an end and waits until it is up.
// The end that it returns is the new interface's.
func add(on rig.End, dev netlink.Link, members ...rig.End) (rig.End, error) {
	end := on
	err := rig.Run(on.NS, func() error {
		if err := netlink.LinkAdd(dev); err != nil {
			return fmt.Errorf("make %s: %w", dev.Attrs().Name, err)
		}
		made, err := netlink.LinkByName(dev.Attrs().Name)
		if err != nil {
			return err
		}
		for _, m := range members {
			if err := enslave(m, made.Attrs().Index); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(made); err != nil {
			return err
		}
		end.Interface, end.Index = made.Attrs().Name, made.Attrs().Index
		return awaitUp(end.Index)
	})
	return end, err
}

// enslave is called in the namespace of both.
func enslave(member rig.End, bond int) error {
	dev, err := netlink.LinkByIndex(member.Index)
	if err != nil {
		return err
	}
	// a bond takes interfaces that are down
	err = errors.Join(netlink.LinkSetDown(dev), netlink.LinkSetMasterByIndex(dev, bond), netlink.LinkSetUp(dev))
	if err != nil {
		return fmt.Errorf("enslave %s: %w", member.Interface, err)
	}
	return awaitUp(member.Index)
}

func awaitUp(index int) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		dev, err := netlink.LinkByIndex(index)
		if err != nil {
			return err
		}
		if dev.Attrs().OperState == netlink.OperUp {
			return nil
		}
	}
	return fmt.Errorf("interface %d is not up within 10 s", index)
}

// RC-010 with real VLAN devices: the program on the parent holds for what its
// VLANs carry, and on a VLAN device for that VLAN.

func checkVLANParent(g *maps.Gate) error {
	return checkVLAN(link.XDPDriverMode, g, func(parent, _ rig.End) rig.End { return parent })
}

func checkVLANParentGeneric(g *maps.Gate) error {
	return checkVLAN(link.XDPGenericMode, g, func(parent, _ rig.End) rig.End { return parent })
}

func checkVLANDevice(g *maps.Gate) error {
	return checkVLAN(link.XDPGenericMode, g, func(_, device rig.End) rig.End { return device })
}

func checkVLAN(mode link.XDPAttachFlags, g *maps.Gate, choose func(parent, device rig.End) rig.End) error {
	n, err := rig.New(1)
	if err != nil {
		return err
	}
	defer n.Close()
	over := n.Links[0]
	if over.Gate, err = addVLAN10("vlan10", n.Links[0].Gate); err != nil {
		return err
	}
	if over.Peer, err = addVLAN10("vlan10", n.Links[0].Peer); err != nil {
		return err
	}
	l, err := attach(g, choose(n.Links[0].Gate, over.Gate), mode)
	if err != nil {
		return err
	}
	defer l.Close()
	return sendAll(over, []rig.Link{over}, fresh, func(*rig.Packet) {})
}

// addVLAN10 makes a device of VLAN 10 on parent.
func addVLAN10(name string, parent rig.End) (rig.End, error) {
	a := netlink.NewLinkAttrs()
	a.Name, a.ParentIndex = name, parent.Index
	return add(parent, &netlink.Vlan{LinkAttrs: a, VlanId: 10})
}

// addBond makes bond0 of members in one namespace.
func addBond(members ...rig.End) (rig.End, error) {
	a := netlink.NewLinkAttrs()
	a.Name = "bond0"
	b := netlink.NewLinkBond(a)
	b.Mode = netlink.BOND_MODE_BALANCE_RR
	return add(members[0], b, members...)
}

// checkBond is RC-111: the program on a bond holds for what comes in by any
// member, also by one that joins later, and a member is refused beside it.
func checkBond(g *maps.Gate) error {
	n, err := rig.New(3)
	if err != nil {
		return err
	}
	defer n.Close()
	bond, err := addBond(n.Links[0].Gate, n.Links[1].Gate)
	if err != nil {
		return err
	}
	l, err := attach(g, bond, link.XDPDriverMode)
	if err != nil {
		return err
	}
	defer l.Close()
	at := n.Links[0]
	at.Gate = bond
	if err := sendAll(at, n.Links[:2], fresh, func(*rig.Packet) {}); err != nil {
		return fmt.Errorf("two members: %w", err)
	}
	if l, err := attach(g, n.Links[0].Gate, link.XDPDriverMode); err == nil {
		l.Close()
		return errors.New("the kernel attaches to a member of the bond as well")
	}
	if err := rig.Run(bond.NS, func() error { return enslave(n.Links[2].Gate, bond.Index) }); err != nil {
		return err
	}
	if err := sendAll(at, n.Links, spent, func(*rig.Packet) {}); err != nil {
		return fmt.Errorf("a third member: %w", err)
	}
	return nil
}
