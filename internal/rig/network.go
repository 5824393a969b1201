package rig

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Network is one namespace under test, Gate, and others that are joined to it,
// each by a veth pair of its own.
type Network struct {
	Gate  *Namespace
	Links []Link
}

// Link is a veth pair between the gate's namespace and a peer's. Link n has
// 10.0.n.0/24 and 2001:db8:n::/64; the gate is .1 and ::1, the peer .2 and ::2.
type Link struct {
	Gate, Peer End
}

// End is one interface of a veth pair.
type End struct {
	NS        *Namespace
	Interface string
	Index     int
	MAC       net.HardwareAddr
	IPv4      netip.Addr
	IPv6      netip.Addr
}

// Net makes a gate and one peer, and removes them when the test ends. It
// skips the test without root.
func Net(tb TB) *Network {
	tb.Helper()
	return Star(tb, 1)
}

// Star is Net with several peers, at most 250.
func Star(tb TB, peers int) *Network {
	tb.Helper()
	RequireRoot(tb)
	n, err := New(peers)
	if err != nil {
		tb.Fatalf("make the test's network: %v", err)
	}
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Errorf("remove the test's network: %v", err)
		}
	})
	return n
}

// New makes a gate and its peers. Addresses outside the links' networks are
// routed by the gate to the first peer, so that any source can be answered.
// It first removes what dead processes left.
func New(peers int) (*Network, error) {
	if peers < 1 || peers > 250 {
		return nil, fmt.Errorf("make a network of %d peers: not 1 to 250", peers)
	}
	removeStale()
	n := &Network{}
	if err := n.build(peers); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Network) build(peers int) (err error) {
	if n.Gate, err = newNamespace(); err != nil {
		return err
	}
	for i := range peers {
		ns, err := newNamespace()
		if err != nil {
			return err
		}
		l := newLink(n.Gate, ns, i)
		n.Links = append(n.Links, l)
		if err := l.build(); err != nil {
			return fmt.Errorf("join %s and %s: %w", n.Gate.Name, ns.Name, err)
		}
	}
	for i := range n.Links {
		if err := n.Links[i].open(); err != nil {
			return err
		}
	}
	return n.routeRest()
}

// Close removes the links and the namespaces. Links go first: a namespace
// that some process still uses must not keep one alive.
func (n *Network) Close() error {
	var errs []error
	for _, l := range n.Links {
		link, err := l.Gate.NS.links.LinkByName(l.Gate.Interface)
		if err == nil {
			err = l.Gate.NS.links.LinkDel(link)
		}
		errs = append(errs, err)
		errs = append(errs, l.Peer.NS.close())
	}
	if n.Gate != nil {
		errs = append(errs, n.Gate.close())
	}
	return errors.Join(errs...)
}

func newLink(gate, peer *Namespace, i int) Link {
	end := func(ns *Namespace, name string, side byte) End {
		return End{
			NS:        ns,
			Interface: fmt.Sprintf("%s%d", name, i),
			MAC:       net.HardwareAddr{2, 0, 0, 0, byte(i), side},
			IPv4:      netip.AddrFrom4([4]byte{10, 0, byte(i), side}),
			IPv6:      netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, byte(i), 15: side}),
		}
	}
	return Link{Gate: end(gate, "gate", 1), Peer: end(peer, "peer", 2)}
}

func (l Link) build() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = l.Gate.Interface
	attrs.HardwareAddr = l.Gate.MAC
	attrs.Namespace = netlink.NsFd(l.Gate.NS.handle)
	err := netlink.LinkAdd(&netlink.Veth{
		LinkAttrs:        attrs,
		PeerName:         l.Peer.Interface,
		PeerHardwareAddr: l.Peer.MAC,
		PeerNamespace:    netlink.NsFd(l.Peer.NS.handle),
	})
	if err != nil {
		return fmt.Errorf("add veth %s: %w", l.Gate.Interface, err)
	}
	return nil
}

// open sets both ends up, gives them their addresses and waits until the
// kernel says that they carry packets.
func (l *Link) open() error {
	ends := []*End{&l.Gate, &l.Peer}
	for _, e := range ends {
		if err := e.open(); err != nil {
			return fmt.Errorf("open %s in %s: %w", e.Interface, e.NS.Name, err)
		}
	}
	for _, e := range ends {
		if err := e.awaitCarrier(5 * time.Second); err != nil {
			return err
		}
	}
	return nil
}

func (e *End) open() error {
	link, err := e.NS.links.LinkByName(e.Interface)
	if err != nil {
		return err
	}
	e.Index = link.Attrs().Index
	if err := e.NS.links.LinkSetUp(link); err != nil {
		return err
	}
	if err := e.AddAddress(netip.PrefixFrom(e.IPv4, 24)); err != nil {
		return err
	}
	return e.AddAddress(netip.PrefixFrom(e.IPv6, 64))
}

// awaitCarrier waits for the operational state up. Until then the interface
// has no queue and the kernel drops, without an error, what is sent.
func (e *End) awaitCarrier(limit time.Duration) error {
	for start := time.Now(); time.Since(start) < limit; time.Sleep(time.Millisecond) {
		link, err := e.NS.links.LinkByIndex(e.Index)
		if err != nil {
			return fmt.Errorf("read state of %s: %w", e.Interface, err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
	}
	return fmt.Errorf("wait for carrier on %s in %s: none within %v", e.Interface, e.NS.Name, limit)
}

// AddAddress gives the interface one more address, usable at once. With a
// prefix of one address (/32, /128) nothing but the address itself is added;
// the gate reaches it through its default route.
func (e End) AddAddress(p netip.Prefix) error {
	link, err := e.NS.links.LinkByIndex(e.Index)
	if err != nil {
		return fmt.Errorf("find %s: %w", e.Interface, err)
	}
	addr := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := e.NS.links.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("add %v to %s: %w", p, e.Interface, err)
	}
	return nil
}

// StaticNeighbours tells both ends each other's hardware address for good, so
// that neither asks: no ARP and no neighbour discovery is on the wire.
func (l Link) StaticNeighbours() error {
	for _, pair := range [][2]End{{l.Gate, l.Peer}, {l.Peer, l.Gate}} {
		at, other := pair[0], pair[1]
		for _, addr := range []netip.Addr{other.IPv4, other.IPv6} {
			err := at.NS.links.NeighSet(&netlink.Neigh{
				LinkIndex:    at.Index,
				State:        unix.NUD_PERMANENT,
				IP:           addr.AsSlice(),
				HardwareAddr: other.MAC,
			})
			if err != nil {
				return fmt.Errorf("set neighbour %v on %s: %w", addr, at.Interface, err)
			}
		}
	}
	return nil
}

// routeRest sends what no link holds to the first peer.
func (n *Network) routeRest() error {
	first := n.Links[0]
	for _, via := range []netip.Addr{first.Peer.IPv4, first.Peer.IPv6} {
		err := n.Gate.links.RouteAdd(&netlink.Route{LinkIndex: first.Gate.Index, Gw: via.AsSlice()})
		if err != nil {
			return fmt.Errorf("add default route through %v: %w", via, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	bits := p.Addr().BitLen()
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), bits)}
}
