package l7

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// mostFields is how many field lines a request may have, whatever their size:
// upstreams commonly take 100 to 200, and each costs more than its bytes.
const mostFields = 256

// malformed returns the answer to a request that no rule could hold, or that an
// upstream could read as another one than the gate does, or none. What net/http
// refuses by itself does not come here; it lets more through on HTTP/2.
func malformed(r *http.Request) problem {
	bad := func(detail string) problem { return problem{Status: http.StatusBadRequest, Detail: detail} }
	switch {
	case r.Method == http.MethodConnect:
		return problem{Status: http.StatusMethodNotAllowed, Detail: "this is no tunnel"}
	case strings.Contains(r.RequestURI, "#"):
		// Not allowed in a request (RFC 9112, 3.2); some servers cut there.
		return bad("a request has no fragment")
	case !isHost(r.Host):
		return bad("the host is no name or address with or without a port")
	case fieldLines(r.Header) > mostFields:
		return problem{
			Status: http.StatusRequestHeaderFieldsTooLarge,
			Detail: fmt.Sprintf("a request has at most %d header fields here", mostFields),
		}
	case r.ProtoMajor < 2:
		return problem{}
	case !isToken(r.Method):
		return bad("the method is no token")
	case strings.ContainsFunc(r.RequestURI, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		// In HTTP/1 what follows a space would be another part of the line.
		return bad("the target has a space in it")
	case !strings.HasPrefix(r.RequestURI, "/") && r.RequestURI != "*":
		return bad("the path does not begin with a slash") // RFC 9113, 8.3.1
	}
	if lines, ok := r.Header["Host"]; ok && (len(lines) > 1 || !strings.EqualFold(lines[0], r.Host)) {
		return bad("host and :authority differ") // RFC 9113, 8.3.1
	}
	return problem{}
}

func fieldLines(h http.Header) (n int) {
	for _, lines := range h {
		n += len(lines)
	}
	return n
}

// isHost reports whether s is a name or address, with or without a port, that
// all read alike. It may be empty, as in HTTP/1.0. Escapes and letters beyond
// ASCII are not allowed: what is sent on would be another host than the one that
// rules were chosen by.
func isHost(s string) bool {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		inner, port, ok := strings.Cut(rest, "]")
		a, err := netip.ParseAddr(inner)
		return ok && err == nil && a.Is6() && a.Zone() == "" && (port == "" || port[0] == ':' && isDigits(port[1:]))
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		case c == '.' && (i == 0 || s[i-1] != '.'):
		case c == ':':
			return isDigits(s[i+1:])
		default:
			return false
		}
	}
	return true
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// isToken reports whether s is a token (RFC 9110, 5.6.2).
func isToken(s string) bool {
	const others = "!#$%&'*+-.^_`|~"
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune(others, c))
	})
}

// endsConnection reports whether r is the last request that its connection may
// bring. A body in chunks could have a length beside it, and one of HTTP/1.0 be
// in chunks: net/http drops the field that does not count, and whoever stands
// before the gate may have gone by it (RFC 9112, 6.1 and 9.3).
func endsConnection(r *http.Request) bool {
	return r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0)
}
