package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// protocols are the names of IP protocols (IANA assigned internet protocol
// numbers) that a match may use instead of the number.
var protocols = []struct {
	name   string
	number uint8
}{
	{"icmp", 1}, {"tcp", 6}, {"udp", 17}, {"gre", 47}, {"esp", 50}, {"ah", 51}, {"icmpv6", 58}, {"sctp", 132},
}

// ProtocolNumber returns the IP protocol number of a Match's Protocol; ok is
// false if it is empty or none.
func ProtocolNumber(s string) (number uint8, ok bool) {
	for _, p := range protocols {
		if p.name == s {
			return p.number, true
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	return uint8(n), err == nil
}

// matches reads `match`. That its fields fit the gate is checked with the gate.
func (rr *ruleReader) matches() {
	if rr.match == nil {
		return
	}
	m := &rr.rule.Match
	m.Protocol = rr.protocol()
	m.Ports = rr.ports()
	for _, w := range rr.match.words("method") {
		rr.use(w, &m.Methods, checkMethod(w.text), w.text)
	}
	for _, w := range rr.match.words("path") {
		rr.use(w, &m.Paths, checkPath(w.text), w.text)
	}
	for _, w := range rr.match.words("host") {
		host := strings.ToLower(w.text)
		rr.use(w, &m.Hosts, checkHost(host), host)
	}
}

// use appends one value of a match, or reports what is wrong with it.
func (rr *ruleReader) use(w word, to *[]string, fault, value string) {
	switch {
	case fault != "":
		rr.errorf(w.node, "%s", fault)
	case slices.Contains(*to, value):
		rr.errorf(w.node, "%s is there twice: remove one", quote(value))
	default:
		*to = append(*to, value)
	}
}

func (rr *ruleReader) protocol() string {
	w, ok := rr.match.word("protocol")
	if !ok {
		return ""
	}
	names := make([]string, len(protocols))
	for i, p := range protocols {
		names[i] = p.name
		if w.text == p.name || w.text == strconv.Itoa(int(p.number)) {
			return p.name
		}
	}
	if n, err := parseWhole(w.text); err == nil && n <= 255 {
		return w.text
	}
	rr.errorf(w.node, "%s, or a number from 0 to 255", oneOf("protocol", w.text, names))
	return ""
}

func (rr *ruleReader) ports() []PortRange {
	var ports []PortRange
	for _, w := range rr.match.words("ports") {
		p, err := parsePorts(w.text)
		if err != nil {
			rr.errorf(w.node, "%s", err)
			continue
		}
		ports = append(ports, p)
	}
	p, given := rr.match.values["protocol"], rr.rule.Match.Protocol
	switch {
	case !rr.match.has("ports"):
	case p == nil:
		rr.errorf(rr.match.keys["ports"], "`ports` needs a protocol: add `protocol: tcp` or `protocol: udp`, or make a rule for each")
	case given != "" && given != "tcp" && given != "udp":
		rr.errorf(rr.match.keys["ports"], "`ports` are of tcp or udp, not of %s: remove them", given)
	}
	return ports
}

// parsePorts reads 80 or 8000-8010.
func parsePorts(s string) (PortRange, error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	first, err1 := parsePort(from)
	last, err2 := parsePort(to)
	switch {
	case err1 != nil || err2 != nil:
		return PortRange{}, fmt.Errorf("%s is no port: write a number from 1 to 65535, or two with a hyphen, such as 8000-8010", quote(s))
	case first > last:
		return PortRange{}, fmt.Errorf("%s runs backwards: write %d-%d", quote(s), last, first)
	}
	return PortRange{first, last}, nil
}

func parsePort(s string) (uint16, error) {
	n, err := parseWhole(s)
	if err == nil && (n < 1 || n > 65535) {
		err = errTooLarge
	}
	return uint16(n), err
}

// methods are those of RFC 9110, RFC 5789, RFC 4918 and the query draft. Others
// are taken as they are, unless they look like a slip of one of these.
var methods = []string{
	"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY",
	"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK",
}

func checkMethod(s string) string {
	if slices.Contains(methods, s) {
		return ""
	}
	upper := strings.ToUpper(s)
	switch near := nearest(upper, methods); {
	case slices.Contains(methods, upper):
		return fmt.Sprintf("method %s: did you mean %s?", quote(s), upper)
	case near != "":
		return fmt.Sprintf("unknown method %s: did you mean %s?", quote(s), near)
	case len(s) > 32 || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "":
		return fmt.Sprintf("%s is no method: write one in upper case, such as POST", quote(s))
	}
	return ""
}

// checkHost checks a host name in lower case, "*.example.com", or an address.
func checkHost(s string) string {
	if _, err := netip.ParseAddr(s); err == nil {
		return ""
	}
	bare := strings.TrimPrefix(s, "*.")
	host, port, hasPort := strings.Cut(bare, ":")
	switch {
	case strings.Contains(s, "://"):
		return fmt.Sprintf("host %s: write the name alone, without scheme", quote(s))
	case strings.Contains(s, "/"):
		return fmt.Sprintf("host %s: write the name alone, and the path under `path`", quote(s))
	case hasPort && strings.Trim(port, "0123456789") == "":
		return fmt.Sprintf("host %s: write %s, a host matches on every port", quote(s), quote(host))
	case strings.HasPrefix(s, "[") || strings.Contains(s, "]"):
		return fmt.Sprintf("host %s: write the address without brackets", quote(s))
	case strings.HasSuffix(s, "."):
		return fmt.Sprintf("host %s: remove the dot at its end", quote(s))
	case strings.Contains(bare, "*"):
		return fmt.Sprintf("host %s: a wildcard is one `*.` at the start", quote(s))
	case strings.IndexFunc(s, func(c rune) bool { return c > 0x7e }) >= 0:
		return fmt.Sprintf("host %s: write it in its ASCII form, xn--...", quote(s))
	case !isHostName(bare):
		return fmt.Sprintf("host %s is no host name", quote(s))
	}
	return ""
}

// isHostName checks RFC 1123 labels, and takes the underscore that is in use.
func isHostName(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}
