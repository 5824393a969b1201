package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// longestPrefix is more than any address or prefix needs in text.
const longestPrefix = 64

// ParsePrefix reads an address prefix; a bare address is a prefix of its whole
// length. An IPv4-mapped IPv6 prefix (RFC 4291, 2.5.5.2) becomes the IPv4 one,
// because packets carry the latter. Set host bits are an error that names the
// prefix that was probably meant: whether 192.0.2.7/24 means one host or 256
// is not for a program to guess.
func ParsePrefix(s string) (netip.Prefix, error) {
	if len(s) > longestPrefix {
		return netip.Prefix{}, fmt.Errorf("%s is too long for an address: write one such as 192.0.2.0/24", quote(s))
	}
	if strings.Contains(s, "%") {
		return netip.Prefix{}, fmt.Errorf("%s has a zone: remove %q and what follows", quote(s), "%")
	}
	p, err := parsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s is no address prefix: %s", quote(s), prefixHint(s))
	}
	if m := p.Masked(); m != p {
		return netip.Prefix{}, fmt.Errorf("%s has host bits set: write %s, or %s for the one address",
			quote(s), unmapped(m), unmapped(netip.PrefixFrom(p.Addr(), p.Addr().BitLen())))
	}
	return unmapped(p), nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		return netip.ParsePrefix(s)
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// unmapped turns an IPv4-mapped prefix of at least 96 bits into an IPv4 one.
func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// prefixHint says what is wrong with text that is no prefix, for the shapes
// that other tools accept.
func prefixHint(s string) string {
	addr, length, slash := strings.Cut(s, "/")
	_, err := netip.ParseAddr(addr)
	switch {
	case s == "":
		return "it is empty"
	case slash && err == nil && strings.Contains(length, "."):
		return "write the length in bits, such as /24, not a mask"
	case slash && err == nil:
		return "the length is a whole number without leading zero, up to /32 for IPv4 and /128 for IPv6"
	case strings.HasPrefix(s, "[") || strings.Contains(s, "]"):
		return "write the address without brackets or port"
	case isRange(s):
		return "write a range as the prefixes that it is made of"
	case strings.Contains(s, "*"):
		return "write a wildcard as a prefix, such as 192.0.2.0/24"
	}
	if _, err := netip.ParseAddrPort(s); err == nil {
		return "write the address without a port"
	}
	return "write one such as 192.0.2.0/24, 192.0.2.7 or 2001:db8::/32; names are not looked up"
}

// isRange reports whether s is two addresses with a hyphen between them.
func isRange(s string) bool {
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		return false
	}
	_, err1 := netip.ParseAddr(strings.TrimSpace(from))
	_, err2 := netip.ParseAddr(strings.TrimSpace(to))
	return errors.Join(err1, err2) == nil
}
