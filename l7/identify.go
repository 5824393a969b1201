package l7

import (
	"crypto/sha256"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"

	"github.com/headgate/headgate/limit"
)

// longestKey is the longest API key that is looked at, in bytes.
const longestKey = 512

// identity says what a request's API key is worth.
type identity byte

const (
	anonymous identity = iota // no key, or one that does not count
	claimed                   // a key that nobody vouches for
	verified                  // a key of the key file
)

// asker is who sent a request.
type asker struct {
	peer     netip.Addr // of the socket
	client   netip.Addr // after declared proxies were looked through
	declared bool       // peer is a declared proxy
	forged   bool       // an undeclared peer sent forwarding headers
	bucket   [17]byte   // the client as a part of bucket keys
	identity identity
	key      [32]byte // hash of the API key: of it alone, as it is kept nowhere else
	holder            // of a verified key

	user    string // verified; policy.learnUser fills it in
	learned bool   // user is final, if empty: nobody
}

// holder is what the key file says of a key. All but owner may be empty.
type holder struct{ owner, tenant, plan string }

// identify finds out who sent r. X-Forwarded-For counts only when the peer is
// a declared proxy, and then from right to left up to the first hop that is
// none. A hop that is no address ends the walk at the proxy that named it. It
// fills in a.
func (p *policy) identify(r *http.Request, a *asker) {
	*a = asker{peer: peerOf(r.RemoteAddr)}
	a.declared = contains(p.proxies, a.peer)
	a.client = a.peer
	if a.declared {
		a.client = p.walk(a.peer, r.Header["X-Forwarded-For"])
	} else {
		a.forged = claimsAddress(r.Header)
	}
	a.bucket = clientOf(a.client, p.clientBits)
	if p.keyHeader != "" {
		p.identifyKey(a, r.Header[p.keyHeader])
	}
}

// walk returns the first hop from the right that is no declared proxy, of all
// field lines as if they were one list (RFC 9110, 5.3). Where every hop is
// declared, it is the leftmost.
func (p *policy) walk(peer netip.Addr, lines []string) netip.Addr {
	last := peer
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var hop string
			if at := strings.LastIndexByte(rest, ','); at >= 0 {
				rest, hop = rest[:at], rest[at+1:]
			} else {
				hop, more = rest, false
			}
			if hop = textproto.TrimString(hop); hop == "" {
				continue // RFC 9110, 5.6.1: empty elements are ignored
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

// identifyKey judges an API key. One that is empty or spaces, longer than 512
// bytes or given more than once counts as none; with a key file so does one
// that the file does not hold.
func (p *policy) identifyKey(a *asker, values []string) {
	if len(values) != 1 || len(values[0]) > longestKey {
		return
	}
	key := strings.TrimSpace(values[0])
	if key == "" {
		return
	}
	var text [longestKey]byte // on the stack
	sum := sha256.Sum256(text[:copy(text[:], key)])
	if !p.keyFile {
		a.identity, a.key = claimed, sum
	} else if h, ok := p.keys[sum]; ok {
		a.identity, a.key, a.holder = verified, sum, h
	}
}

// learnUser finds out which user a is, at the first call; it may check a
// signature, so what can be decided without the user is decided before.
func (p *policy) learnUser(a *asker) {
	a.learned = true
}

// appendKey appends the API key as a part of a bucket key. A claimed one
// belongs to the client that claims it.
func (a *asker) appendKey(b []byte) []byte {
	if a.identity == claimed {
		b = limit.AppendPart(b, 'c', a.bucket[:])
	}
	return limit.AppendPart(b, 'k', a.key[:])
}

// claimsAddress reports whether h holds a header that names a client.
func claimsAddress(h http.Header) bool {
	return len(h["X-Forwarded-For"]) > 0 || len(h["Forwarded"]) > 0 || len(h["X-Real-Ip"]) > 0
}

// stripIdentity removes from h what only a declared proxy may say, and from
// everyone its underscore spellings, which CGI and its heirs take for the
// same header.
func stripIdentity(h http.Header, declared bool) {
	for name := range h {
		plain := textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
		names := strings.HasPrefix(plain, "X-Forwarded-") || plain == "Forwarded" || plain == "X-Real-Ip"
		if names && (!declared || plain != name) {
			delete(h, name)
		}
	}
}
