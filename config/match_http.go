package config

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// HeaderMatch is one header that a request must have, with one of the values in
// one of its lines. A value with a * at its end is the start of one.
type HeaderMatch struct {
	Name   string // canonical
	Values []string
}

// Identity says what a request brought along to tell who asks.
type Identity string

const (
	IdentityNone     Identity = "none"     // neither a key that counts nor a user
	IdentityClaimed  Identity = "claimed"  // an API key, and there is no key file
	IdentityVerified Identity = "verified" // an API key of the key file
	IdentityUser     Identity = "user"     // a verified user
)

var identities = []Identity{IdentityNone, IdentityClaimed, IdentityVerified, IdentityUser}

// httpMatchKeys are the keys of `match` that only the HTTP gate has.
var httpMatchKeys = []string{"method", "path", "host", "headers", "identity", "plan"}

const (
	mostHeaders  = 16
	longestValue = 256
)

// requests reads what a match asks of HTTP requests beside method, path and
// host.
func (rr *ruleReader) requests() {
	m := &rr.rule.Match
	rr.headers()
	for _, w := range rr.match.words("identity") {
		switch id := Identity(w.text); {
		case !slices.Contains(identities, id):
			rr.errorf(w.node, "%s", oneOf("identity", w.text, texts(identities)))
		case slices.Contains(m.Identities, id):
			rr.errorf(w.node, "%s is there twice: remove one", quote(w.text))
		default:
			m.Identities = append(m.Identities, id)
		}
	}
	for _, w := range rr.match.words("plan") {
		fault := ""
		if len(w.text) > longestOwner {
			fault = fmt.Sprintf("plan of %d bytes: the most is %d", len(w.text), longestOwner)
		}
		rr.use(w, &m.Plans, fault, w.text)
	}
}

// headers reads `headers`, whose keys are names that the user gives.
func (rr *ruleReader) headers() {
	var pairs []*ast.MappingValueNode
	switch v := rr.match.values["headers"].(type) {
	case nil:
		return
	case *ast.MappingNode:
		pairs = v.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{v}
	default:
		rr.errorf(v, "`headers` is a mapping, not %s: write `Name: value` for each, such as {X-Plan: gold}", kind(v))
		return
	}
	switch {
	case len(pairs) == 0:
		rr.errorf(rr.match.at("headers"), "`headers` is empty: fill it or remove the key")
	case len(pairs) > mostHeaders:
		rr.errorf(rr.match.at("headers"), "`headers` names %d: the most is %d", len(pairs), mostHeaders)
	}
	all := &rr.rule.Match.Headers
	for _, p := range pairs {
		h, ok := rr.header(p)
		switch {
		case !ok:
		case slices.ContainsFunc(*all, func(o HeaderMatch) bool { return o.Name == h.Name }):
			rr.errorf(p.Key, "header %s is there twice: give it one list of values", h.Name)
		default:
			*all = append(*all, h)
		}
	}
	slices.SortFunc(*all, func(a, b HeaderMatch) int { return strings.Compare(a.Name, b.Name) })
}

// header reads one name with a value or a list of them.
func (rr *ruleReader) header(p *ast.MappingValueNode) (h HeaderMatch, ok bool) {
	name, ok := rr.match.keyName(p.Key)
	if !ok {
		return h, false
	}
	h.Name = textproto.CanonicalMIMEHeaderKey(name)
	if fault := checkMatchHeader(h.Name); fault != "" {
		rr.errorf(p.Key, "%s", fault)
		return h, false
	}
	nodes := []ast.Node{p.Value}
	if list, isList := p.Value.(*ast.SequenceNode); isList {
		nodes = list.Values
	}
	if len(nodes) == 0 {
		rr.errorf(p.Value, "header %s has an empty list: fill it or remove the header", h.Name)
	}
	for _, n := range nodes {
		if w, fine := rr.match.scalar(n, h.Name); fine {
			rr.use(w, &h.Values, checkHeaderValue(h.Name, w.text), w.text)
		}
	}
	return h, len(h.Values) > 0
}

// checkMatchHeader checks a canonical header name. Those that are refused are
// not in a request's headers, or are what Headgate reads and rewrites itself.
func checkMatchHeader(name string) string {
	const set = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	switch {
	case name == "" || len(name) > 128 || strings.Trim(name, set) != "":
		return quote(name) + " is no header name: use letters, digits and hyphens, such as X-Plan"
	case name == "Host":
		return "header Host: write it under `host`"
	case name == "Content-Length" || name == "Transfer-Encoding" || name == "Connection" || name == "Trailer":
		return "header " + name + " is the connection's own: a rule cannot match it"
	case name == "X-Forwarded-For" || name == "Forwarded" || name == "X-Real-Ip":
		return "header " + name + " names addresses: declare the proxies under `http.proxies` and count `per: client`"
	}
	return ""
}

func checkHeaderValue(name, value string) string {
	switch {
	case len(value) > longestValue:
		return fmt.Sprintf("header %s: a value of %d bytes, the most is %d", name, len(value), longestValue)
	case strings.Contains(strings.TrimSuffix(value, "*"), "*"):
		return fmt.Sprintf("header %s: %s has a * in its middle: one at the end stands for any rest", name, quote(value))
	}
	return ""
}

// httpText writes what only matches of the HTTP gate have.
func (m Match) httpText(f *flow) {
	f.words("method", m.Methods)
	f.words("path", m.Paths)
	f.words("host", m.Hosts)
	headers := flow{}
	for _, h := range m.Headers {
		headers.words(scalarText(h.Name), h.Values)
	}
	if len(m.Headers) > 0 {
		f.raw("headers", headers.String())
	}
	f.words("identity", texts(m.Identities))
	f.words("plan", m.Plans)
}

// matchesRequests reports whether m asks for anything that only HTTP requests
// have.
func (m Match) matchesRequests() bool {
	return len(m.Methods)+len(m.Paths)+len(m.Hosts)+len(m.Headers)+len(m.Identities)+len(m.Plans) > 0
}

// requests warns about matches and overrides that no request can meet.
func (w *warnings) requests(c *Config, r Rule) {
	ids, file := r.Match.Identities, c.HTTP.KeyFile != ""
	switch {
	case len(r.Match.Plans) > 0 && !file:
		w.addf("rule %q does nothing: it matches plans, and no http.identities.key.file says who has which", r.Name)
	case slices.Equal(ids, []Identity{IdentityVerified}) && !file:
		w.addf("rule %q does nothing: without http.identities.key.file no key is verified", r.Name)
	case slices.Equal(ids, []Identity{IdentityClaimed}) && file:
		w.addf("rule %q does nothing: with http.identities.key.file a key is verified or counts as none", r.Name)
	}
	for _, o := range r.Overrides {
		switch {
		case (o.Owner != "" || o.Tenant != "" || o.Plan != "") && !file:
			w.addf("rule %q: the override for %s does nothing: no http.identities.key.file says whose a key is", r.Name, o.inWords())
		case o.User != "" && !c.HTTP.Users.On():
			w.addf("rule %q: the override for %s does nothing: no http.identities.user says who that is", r.Name, o.inWords())
		case o.Key != "" && c.HTTP.KeyHeader == "" && !c.HTTP.KeyBearer && c.HTTP.KeyQuery == "":
			w.addf("rule %q: the override for %s does nothing: no http.identities.key says where keys are", r.Name, o.inWords())
		}
	}
}
