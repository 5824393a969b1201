package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// matches reads `match`. That its fields fit the gate is checked with the gate.
func (rr *ruleReader) matches() {
	if rr.match == nil {
		return
	}
	rr.packet()
	m := &rr.rule.Match
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
	rr.requests()
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
