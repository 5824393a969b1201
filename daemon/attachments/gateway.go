package attachments

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

// DefaultGateways returns the next hops of the host's default routes as they
// are now; none on a host without one.
func DefaultGateways() ([]netip.Addr, error) {
	hops, err := defaultHops()
	var all []netip.Addr
	for _, h := range hops {
		if h.gateway.IsValid() && !slices.Contains(all, h.gateway) {
			all = append(all, h.gateway)
		}
	}
	return all, err
}

// defaultHop is one next hop of a default route.
type defaultHop struct {
	index   int        // of its interface
	gateway netip.Addr // invalid: the link itself
}

// defaultHops returns the hops of the default routes that the host uses now.
func defaultHops() ([]defaultHop, error) {
	var all []defaultHop
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
			for _, h := range hopsOf(r) {
				if !slices.Contains(all, h) {
					all = append(all, h)
				}
			}
		}
	}
	return all, nil
}

// hopsOf returns where r leads if it is a default route.
func hopsOf(r netlink.Route) []defaultHop {
	if !isDefault(r.Dst) {
		return nil
	}
	if len(r.MultiPath) == 0 {
		return []defaultHop{{r.LinkIndex, nextHop(r.Gw, r.Via)}}
	}
	var all []defaultHop
	for _, hop := range r.MultiPath {
		all = append(all, defaultHop{hop.LinkIndex, nextHop(hop.Gw, hop.Via)})
	}
	return all
}

// nextHop is the gateway; via is one of the other family (RFC 5549).
func nextHop(gw net.IP, via netlink.Destination) netip.Addr {
	if v, ok := via.(*netlink.Via); ok {
		gw = v.Addr
	}
	a, _ := netip.AddrFromSlice(gw)
	return a.Unmap()
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
