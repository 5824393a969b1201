package attachments

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// nic is an interface as the kernel tells of it, as far as attaching asks.
type nic struct {
	name      string
	index     int
	kind      string // bond, vlan, veth, ...; device for hardware
	master    int    // index of the bond, team or bridge that it is a member of; 0: none
	parent    int    // index of the interface that it rides on, as a VLAN device does; 0: none
	vlan      int    // id of a VLAN device
	attached  bool   // there is an XDP program
	programID uint32 // its id; 0 beside an offloaded one
	mode      string
}

// Surroundings are the interfaces and where the default routes lead.
type Surroundings struct {
	nics   []nic
	routes []defaultHop
}

func (s Surroundings) byIndex(index int) (nic, bool) {
	i := slices.IndexFunc(s.nics, func(n nic) bool { return n.index == index })
	if i < 0 {
		return nic{}, false
	}
	return s.nics[i], true
}

// dumps is how often a list is asked for that changes while the kernel tells it.
const dumps = 5

// listNICs asks the kernel for all interfaces of this network namespace.
func listNICs() ([]nic, error) {
	var links []netlink.Link
	var err error
	for range dumps {
		if links, err = netlink.LinkList(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	all := make([]nic, len(links))
	for i, l := range links {
		all[i] = nicOf(l)
	}
	return all, nil
}

// riders are the kinds whose frames come off the interface that they ride on as
// they are. Tunnels are none: outside they are other packets.
var riders = []string{"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"}

// unions are the kinds whose members' frames come in by them once more.
var unions = []string{"bond", "team", "bridge"}

func nicOf(l netlink.Link) nic {
	a := l.Attrs()
	n := nic{name: a.Name, index: a.Index, kind: l.Type(), master: a.MasterIndex}
	if a.NetNsID < 0 && slices.Contains(riders, n.kind) { // else the parent is in another namespace
		n.parent = a.ParentIndex
	}
	if v, ok := l.(*netlink.Vlan); ok {
		n.vlan = v.VlanId
	}
	if x := a.Xdp; x != nil && x.Attached {
		n.attached, n.programID, n.mode = true, x.ProgId, attachedMode(x)
	}
	return n
}

// listDefaultRoutes asks for all default routes of the main table, both families,
// also those that a better one leaves idle: their interfaces carry traffic too.
// On a host that has the Internet's routes it takes seconds; only auto needs it.
func listDefaultRoutes() ([]defaultHop, error) {
	var all []defaultHop
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		var routes []netlink.Route
		var err error
		for range dumps {
			routes, err = netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
			if !errors.Is(err, netlink.ErrDumpInterrupted) {
				break
			}
		}
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) { // IPv6 may be off
			return nil, fmt.Errorf("list default routes: %w", err)
		}
		for _, r := range routes {
			if isMainDefault(r) {
				all = append(all, hopsOf(r)...)
			}
		}
	}
	return all, nil
}

// isMainDefault reports whether r is what auto goes by.
func isMainDefault(r netlink.Route) bool {
	return r.Type == unix.RTN_UNICAST && r.Table == unix.RT_TABLE_MAIN && isDefault(r.Dst)
}
