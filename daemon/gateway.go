package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// far are addresses all over the unicast space. The kernel is asked which route
// it would take to them; nothing is sent. A dump of all routes would take
// seconds on a host that has the Internet's.
var far = []net.IP{
	net.IPv4(1, 0, 0, 1), net.IPv4(129, 0, 0, 1), net.IPv4(223, 255, 255, 254),
	net.ParseIP("2000::1"), net.ParseIP("2a00::1"), net.ParseIP("3fff:ffff::1"),
}

// defaultGateways returns the next hops of the host's default routes as they
// are now; none on a host without one.
func defaultGateways() ([]netip.Addr, error) {
	var all []netip.Addr
	add := func(ip net.IP) {
		if a, ok := netip.AddrFromSlice(ip); ok && !slices.Contains(all, a.Unmap()) {
			all = append(all, a.Unmap())
		}
	}
	for _, to := range far {
		// the entry that matches, with all its hops, not the one chosen
		routes, err := netlink.RouteGetWithOptions(to, &netlink.RouteGetOptions{FIBMatch: true})
		if unreachable(err) {
			continue
		}
		if err != nil {
			return all, fmt.Errorf("ask for the route to %s: %w", to, err)
		}
		for _, r := range routes {
			if !isDefault(r.Dst) {
				continue
			}
			add(r.Gw)
			addVia(r.Via, add)
			for _, hop := range r.MultiPath {
				add(hop.Gw)
				addVia(hop.Via, add)
			}
		}
	}
	return all, nil
}

// addVia adds a next hop of the other family (RFC 5549).
func addVia(d netlink.Destination, add func(net.IP)) {
	if via, ok := d.(*netlink.Via); ok {
		add(via.Addr)
	}
}

func isDefault(dst *net.IPNet) bool {
	if dst == nil {
		return true
	}
	ones, _ := dst.Mask.Size()
	return ones == 0
}

// unreachable is how the kernel says that it has no route, or not the family.
func unreachable(err error) bool {
	for _, e := range []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL, unix.EAFNOSUPPORT} {
		if err == e {
			return true
		}
	}
	return false
}
