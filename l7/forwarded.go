package l7

import (
	"net/netip"
	"net/textproto"
	"strings"
)

// walk returns the first hop from the right that is no declared proxy, of all
// field lines as if they were one list (RFC 9110, 5.3). Where every hop is
// declared, it is the leftmost. A hop that is no address ends the walk at the
// proxy that named it.
func (p *policy) walk(peer netip.Addr, lines []string) netip.Addr {
	last := peer
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var hop string
			rest, hop, more = cutLast(rest, ',', p.forwarded)
			if hop = textproto.TrimString(hop); hop == "" {
				continue // RFC 9110, 5.6.1: empty elements are ignored
			}
			if p.forwarded {
				hop = nodeFor(hop)
			}
			addr, ok := parseHop(hop)
			if !ok {
				return last
			}
			if last = addr; !contains(p.proxies, addr) {
				return last
			}
		}
	}
	return last
}

// cutLast cuts s at its last sep, outside of quotes if there may be some. It
// reads from the right: what a client wrote stands on the left, and a quote that
// it leaves open must not swallow what a proxy wrote after it.
func cutLast(s string, sep byte, quotes bool) (before, after string, found bool) {
	if !quotes {
		if i := strings.LastIndexByte(s, sep); i >= 0 {
			return s[:i], s[i+1:], true
		}
		return "", s, false
	}
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == '"':
			if !quoted || !escaped(s, i) {
				quoted = !quoted
			}
		case s[i] == sep && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return "", s, false
}

// escaped reports whether an odd number of backslashes stands before s[i].
func escaped(s string, i int) bool {
	n := i
	for n > 0 && s[n-1] == '\\' {
		n--
	}
	return (i-n)%2 == 1
}

// nodeFor returns the `for` of one element of Forwarded (RFC 7239, 4), without
// quotes and without a port that is no number. It is empty where there is none
// or more than one, and no address where it is `unknown` or obfuscated.
func nodeFor(element string) (node string) {
	for more := true; more; {
		var pair string
		element, pair, more = cutLast(element, ';', true)
		name, value, _ := strings.Cut(textproto.TrimString(pair), "=")
		if !strings.EqualFold(name, "for") {
			continue
		}
		if node != "" || value == "" {
			return ""
		}
		node = value
	}
	if inner, ok := strings.CutPrefix(node, `"`); ok {
		if node, ok = strings.CutSuffix(inner, `"`); !ok || strings.ContainsAny(node, `"\`) {
			return "" // no address needs an escape
		}
	}
	if i := strings.LastIndex(node, ":_"); i >= 0 { // RFC 7239, 6.3
		node = node[:i]
	}
	return node
}

// appendNode appends a as the value of `for`.
func appendNode(b []byte, a netip.Addr) []byte {
	if a.Is6() {
		b = append(b, `"[`...)
		return append(a.AppendTo(b), `]"`...)
	}
	return a.AppendTo(b)
}
