package l7

import (
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// identity says what a request's API key is worth.
type identity byte

const (
	anonymous identity = iota // no key, or one that does not count
	claimed                   // a key that nobody vouches for
	verified                  // a key of the key file
)

// asker is who sent a request.
type asker struct {
	origin   *origin    // nil: of no request
	peer     netip.Addr // of the socket
	client   netip.Addr // after declared proxies were looked through
	declared bool       // peer is a declared proxy
	bucket   [17]byte   // the client as a part of bucket keys
	identity identity
	key      [32]byte // hash of the API key: of it alone, as it is kept nowhere else
	holder            // of a verified key

	token   string // may name a user, and was not verified yet
	user    string // verified; policy.learnUser fills it in
	learned bool   // user is final, if empty: nobody
}

// holder is what the key file says of a key. All but owner may be empty.
type holder struct{ owner, tenant, plan string }

// identify finds out who sent r, and fills in a, which was zero. What names a client counts only
// where the peer is a declared proxy. The user is left to learnUser.
func (p *policy) identify(r *http.Request, a *asker) {
	o := p.origin(r)
	a.origin, a.peer, a.client, a.declared = o, o.peer, o.peer, o.declared
	switch {
	case !a.declared:
	case p.forwarded:
		a.client = p.walk(a.peer, r.Header["Forwarded"])
	default:
		a.client = p.walk(a.peer, r.Header["X-Forwarded-For"])
	}
	if a.bucket = o.bucket; a.client != a.peer {
		a.bucket = clientOf(a.client, p.clientBits)
	}
	p.identifyUser(a, r.Header)
	if p.places.any() {
		bearer := ""
		if p.places.bearer && a.token == "" {
			bearer = bearerOf(r.Header)
		}
		p.identifyKey(a, r, bearer)
	}
}

// identifyUser takes the user that a declared proxy names, or the token that may
// name one.
func (p *policy) identifyUser(a *asker, h http.Header) {
	switch {
	case p.userHeader != "" && a.declared:
		a.user = userOf(h[p.userHeader])
	case p.tokens != nil:
		if t := bearerOf(h); looksLikeToken(t) {
			a.token = t
			return
		}
	}
	a.learned = true
}

// learnUser finds out which user a is, at the first call; it may check a
// signature, so what can be decided without the user is decided before.
func (p *policy) learnUser(a *asker) {
	if !p.recallUser(a) {
		a.user, a.learned = p.tokens.verify(a.token), true
	}
}

// recallUser is learnUser without the signature: it reports false if one has to
// be checked.
func (p *policy) recallUser(a *asker) bool {
	if !a.learned {
		a.user, a.learned = p.tokens.recall(a.token)
	}
	return a.learned
}

// appendKey appends the API key as a part of a bucket key. A claimed one
// belongs to the client that claims it.
func (a *asker) appendKey(b []byte) []byte {
	if a.identity == claimed {
		b = limit.AppendPart(b, 'c', a.bucket[:])
	}
	return limit.AppendPart(b, 'k', a.key[:config.KeyPart])
}

// claimsAddress reports whether h holds a header that names a client.
func claimsAddress(h http.Header) bool {
	return len(h["X-Forwarded-For"]) > 0 || len(h["Forwarded"]) > 0 || len(h["X-Real-Ip"]) > 0
}

// stripIdentity removes from h what only a declared proxy may say, and from
// everyone its underscore spellings, which CGI and its heirs take for the same
// header, and the forwarding header that is not the one to go by: nobody
// vouches for what it says.
func (p *policy) stripIdentity(h http.Header, declared bool) {
	for name := range h {
		plain := textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
		names := strings.HasPrefix(plain, "X-Forwarded-") || plain == "Forwarded" || plain == "X-Real-Ip" || plain == p.userHeader || plain == overHeader
		other := plain == "Forwarded" && !p.forwarded || plain == "X-Forwarded-For" && p.forwarded
		if names && (!declared || plain != name || other) {
			delete(h, name)
		}
	}
}
