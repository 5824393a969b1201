package l7

import (
	"net/http"
	"strings"
)

// trailers passes on the fields after a request's body. Only those that the
// request announced are: they are announced to the upstream in turn.
type trailers struct {
	from http.Header // the server fills it in at the body's end
	to   http.Header
}

// announce returns what passes on the trailers of in to out, or nil where there
// are none.
func (p *policy) announce(in, out *http.Request, declared bool) *trailers {
	out.Trailer = nil
	if len(in.Trailer) == 0 {
		return nil
	}
	to := make(http.Header, len(in.Trailer))
	for name := range in.Trailer {
		if !beforeBody(name) && name != p.places.header {
			to[name] = nil
		}
	}
	p.stripIdentity(to, declared)
	if len(to) == 0 {
		return nil
	}
	out.Trailer = to
	return &trailers{in.Trailer, to}
}

// copy fills in what has come.
func (t *trailers) copy() {
	for name := range t.to {
		t.to[name] = t.from[name]
	}
}

// beforeBody reports whether a field frames a message, says where it goes or who
// sends it, and so must not come after its body (RFC 9110, 6.5.1): an upstream
// that merges trailers into the header would let it win.
func beforeBody(name string) bool {
	switch name {
	case "Authorization", "Cache-Control", "Connection", "Cookie", "Expect", "Host", "Keep-Alive", "Max-Forwards", "Pragma",
		"Range", "Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Http-Method-Override":
		return true
	}
	return strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "If-") || strings.HasPrefix(name, "Proxy-")
}
