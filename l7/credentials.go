package l7

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"

	"github.com/headgate/headgate/config"
)

// longestKey is the longest API key or user's name that is looked at, in bytes.
const longestKey = 512

// keyPlaces says where the API key of a request may be; it uses one of them.
type keyPlaces struct {
	header string // canonical; empty: in none
	bearer bool
	query  string // parameter; empty: in none
}

func (k *keyPlaces) any() bool { return k.header != "" || k.bearer || k.query != "" }

// identifyKey judges the API key of r. One that is empty or spaces, longer than
// 512 bytes or given more than once counts as none; with a key file so does one
// that the file does not hold.
func (p *policy) identifyKey(a *asker, r *http.Request, bearer string) {
	var text [longestKey]byte // on the stack
	key, ok := p.places.find(r, bearer, text[:0])
	if !ok || len(key) == 0 {
		return
	}
	sum := sha256.Sum256(key)
	if !p.keyFile {
		a.identity, a.key = claimed, sum
	} else if h, ok := p.keys.Find(sum); ok {
		a.identity, a.key, a.holder = verified, sum, holder{h.Owner, h.Tenant, h.Plan}
	}
}

// SetKeys puts the keys of a key file that changed in force for all requests
// that come after: those of the rules, their buckets and counters stay. It fails
// before the first SetPolicy.
func (g *Gate) SetKeys(keys *config.Keyring) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.policy.Load()
	if old == nil {
		return errors.New("change keys: there is no policy yet")
	}
	next := *old
	next.keys = keys
	g.policy.Store(&next)
	return nil
}

// find appends the key of r to b. It reports false if there are several, or one
// that is too long.
func (k *keyPlaces) find(r *http.Request, bearer string, b []byte) (key []byte, ok bool) {
	if k.header != "" {
		values := r.Header[k.header]
		if len(values) > 1 {
			return nil, false
		}
		if len(values) == 1 {
			if b, ok = addKey(b, strings.TrimSpace(values[0])); !ok {
				return nil, false
			}
		}
	}
	if k.bearer {
		if b, ok = addKey(b, bearer); !ok {
			return nil, false
		}
	}
	if k.query == "" {
		return b, true
	}
	return queryKey(b, r.URL.RawQuery, k.query)
}

// addKey puts key into b, unless that holds one already.
func addKey(b []byte, key string) ([]byte, bool) {
	switch {
	case key == "":
		return b, true
	case len(b) > 0, len(key) > longestKey:
		return nil, false
	}
	return append(b, key...), true
}

// queryKey puts the parameter name of a query into b, unless that holds a key
// already. A name in another spelling is another name: what it gives is no key,
// and so counts for the client.
func queryKey(b []byte, query, name string) ([]byte, bool) {
	for more := query != ""; more; {
		var pair string
		pair, query, more = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		if key != name {
			continue
		}
		had := len(b)
		var ok bool
		if b, ok = unescape(b, value); !ok || had > 0 && len(b) > had {
			return nil, false
		}
	}
	return trim(b), true
}

// unescape appends s without its percent signs and pluses, so that a key has one
// spelling. A malformed or too long one is none.
func unescape(b []byte, s string) ([]byte, bool) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case len(b) == longestKey:
			return nil, false
		case c == '+':
			c = ' '
		case c == '%':
			if i+2 >= len(s) || !ishex(s[i+1]) || !ishex(s[i+2]) {
				return nil, false
			}
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
		}
		b = append(b, c)
	}
	return b, true
}

func trim(b []byte) []byte {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	for len(b) > 0 && b[len(b)-1] == ' ' {
		b = b[:len(b)-1]
	}
	return b
}

// bearerOf returns the token of `Authorization: Bearer` (RFC 6750, 2.1), empty
// if there is none or more than one.
func bearerOf(h http.Header) string {
	values := h["Authorization"]
	if len(values) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// userOf returns the name that a declared proxy has put into its header: one,
// and not an endless one.
func userOf(values []string) string {
	if len(values) != 1 || len(values[0]) > longestKey {
		return ""
	}
	return strings.TrimSpace(values[0])
}
