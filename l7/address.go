package l7

import (
	"net/netip"
	"strconv"
	"strings"
)

// longestAddress is the longest text taken for an address: IPv6 in full with
// brackets, a zone of the 15 bytes that an interface name has, and a port.
const longestAddress = 64

var nat64 = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052

// canonical returns the one spelling of a under which it is counted: an
// IPv4-mapped or NAT64 address as its IPv4 address, and no zone.
func canonical(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// peerOf returns the address of the socket's peer. What has none, as the peer
// of a Unix socket, is the unspecified address: one client, not an unlimited
// one.
func peerOf(remote string) netip.Addr {
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		return canonical(ap.Addr())
	}
	return netip.IPv6Unspecified()
}

// parseHop reads one element of X-Forwarded-For: an address, IPv6 with or
// without brackets, with or without a port.
func parseHop(s string) (netip.Addr, bool) {
	if len(s) > longestAddress {
		return netip.Addr{}, false
	}
	host := s
	if inner, rest, ok := strings.Cut(strings.TrimPrefix(s, "["), "]"); ok && s[0] == '[' {
		if rest != "" && !isPort(rest) || !strings.Contains(inner, ":") {
			return netip.Addr{}, false
		}
		host = inner
	} else if i := strings.IndexByte(s, ':'); i >= 0 && i == strings.LastIndexByte(s, ':') {
		if !isPort(s[i:]) {
			return netip.Addr{}, false
		}
		host = s[:i]
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return canonical(a), true
}

// isPort reports whether s is a colon and a port number.
func isPort(s string) bool {
	if len(s) < 2 || len(s) > 6 || s[0] != ':' || s[1] == '+' {
		return false
	}
	_, err := strconv.ParseUint(s[1:], 10, 16)
	return err == nil
}

// clientOf returns the prefix that makes one client: an IPv4 address, or bits
// of an IPv6 address. Its 17 bytes are a part of bucket keys.
func clientOf(a netip.Addr, bits int) (c [17]byte) {
	c[0] = '4'
	if a.Is6() {
		c[0] = '6'
		a = netip.PrefixFrom(a, bits).Masked().Addr()
	}
	b := a.As16()
	copy(c[1:], b[:])
	return c
}
