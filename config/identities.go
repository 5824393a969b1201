package config

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// ClientFrom is the header in which declared proxies name the client.
type ClientFrom string

const (
	FromXForwardedFor ClientFrom = "x-forwarded-for"
	FromForwarded     ClientFrom = "forwarded" // RFC 7239
)

// Users says how a request's user is known. The zero Users knows none.
type Users struct {
	Header     string     // canonical name of a header that declared proxies set; or
	Claim      string     // the claim of a JWT (RFC 7519) that names the user
	KeyFile    string     // path as written: PEM or a secret; or
	JWKSFile   string     // path as written: RFC 7517
	Issuer     string     // `iss` must be it; empty: any
	Audience   string     // `aud` must hold it; empty: any
	Algorithms []string   // the only ones; empty: what each key's kind implies
	Keys       []TokenKey // what the file holds
}

// On reports whether users are known at all.
func (u *Users) On() bool { return u.Header != "" || u.Claim != "" }

// identities reads `http.identities`.
func (o *object) identities(h *HTTP) {
	ids := o.child("identities", identitiesLevel)
	if ids == nil {
		return
	}
	if !ids.has("key") && !ids.has("user") {
		ids.need("key", "say where the API key is, or who the `user` is, or remove `identities`")
		return
	}
	if k := ids.child("key", keyLevel); k != nil {
		k.apiKey(h)
	}
	if u := ids.child("user", userLevel); u != nil {
		h.Users = u.users()
		if h.Users.Header != "" && strings.EqualFold(h.Users.Header, h.KeyHeader) {
			u.errorf(u.at("header"), "header %s carries the API key already: take another for the user", h.KeyHeader)
		}
		if h.Users.Header != "" && len(h.Proxies) == 0 {
			u.errorf(u.at("header"), "header %s counts only where a declared proxy sets it: name that in http.proxies", h.Users.Header)
		}
	}
}

// apiKey reads where the API key of a request is. It may have several places,
// of which a request uses one.
func (o *object) apiKey(h *HTTP) {
	if o.has("header") || !o.has("bearer") && !o.has("query") {
		h.KeyHeader = o.keyHeader()
	}
	h.KeyBearer = o.flag("bearer")
	if w, ok := o.word("query"); ok {
		h.KeyQuery = w.text
		if len(w.text) > 128 || strings.Trim(w.text, headerSet+"_.") != "" {
			o.errorf(w.node, "%s is no parameter name: use letters, digits, `_`, `.` and `-`, such as api_key", quote(w.text))
		}
	}
	if o.has("bearer") && !h.KeyBearer && h.KeyHeader == "" && h.KeyQuery == "" {
		o.errorf(o.at("bearer"), "no place is left for the key: say `bearer: true`, or name a `header`")
	}
	if w, ok := o.word("file"); ok {
		h.KeyFile = w.text
	}
}

const headerSet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

// unusableHeaders cannot carry an identity: they are the connection's or the
// protocol's own, or name addresses.
var unusableHeaders = []string{
	"Connection", "Content-Length", "Content-Type", "Cookie", "Forwarded", "Host", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip",
}

func (o *object) keyHeader() string {
	if !o.need("header", "say which header carries the API key, such as X-Api-Key, or say `bearer: true`") {
		return ""
	}
	name, w := o.headerName()
	if name == "Authorization" {
		o.errorf(w.node, "to read keys from Authorization write `bearer: true` instead of `header`")
	}
	return name
}

// headerName reads `header` of an identity.
func (o *object) headerName() (string, word) {
	w, ok := o.word("header")
	if !ok {
		return "", w
	}
	name := textproto.CanonicalMIMEHeaderKey(w.text)
	switch {
	case len(name) > 128 || strings.Trim(name, headerSet) != "":
		o.errorf(w.node, "%s is no header name: use letters, digits and hyphens, such as X-Api-Key", quote(w.text))
	case slices.Contains(unusableHeaders, name):
		o.errorf(w.node, "header %s cannot carry an API key or user: use one of its own, such as X-Api-Key", name)
	}
	return name, w
}

// users reads `http.identities.user`.
func (o *object) users() (u Users) {
	if o.has("header") == o.has("jwt") {
		if o.has("jwt") {
			o.errorf(o.keys["header"], "a user is known by `header` or by `jwt`: remove one")
		} else {
			o.need("jwt", "name the claim that holds the user, such as `jwt: sub`, or a `header` that your proxy sets")
		}
		return u
	}
	if o.has("header") {
		name, w := o.headerName()
		if name == "Authorization" {
			o.errorf(w.node, "Authorization is set by the client itself: verify its token with `jwt: sub`")
		}
		for _, key := range []string{"key_file", "jwks_file", "issuer", "audience", "algorithms"} {
			if o.has(key) {
				o.errorf(o.keys[key], "`%s` is about tokens: it needs `jwt`", key)
			}
		}
		u.Header = name
		return u
	}
	u.Claim = o.text("jwt", 128)
	u.Issuer, u.Audience = o.text("issuer", 512), o.text("audience", 512)
	for _, w := range o.words("algorithms") {
		if fault := checkAlgorithm(w.text); fault != "" {
			o.errorf(w.node, "%s", fault)
			continue
		}
		u.Algorithms = append(u.Algorithms, w.text)
	}
	u.KeyFile, u.JWKSFile = o.text("key_file", 4096), o.text("jwks_file", 4096)
	switch {
	case o.has("key_file") && o.has("jwks_file"):
		o.errorf(o.keys["key_file"], "keys come from `key_file` or from `jwks_file`: remove one")
	case !o.has("key_file"):
		o.need("jwks_file", "name the file with the issuer's public keys, or a `key_file` with one in PEM")
	}
	return u
}

// proxyProtocol checks that someone may begin a connection with it.
func (o *object) proxyProtocol(h *HTTP) {
	for _, l := range h.Listeners {
		if l.ProxyProtocol && len(h.Proxies) == 0 {
			o.errorf(o.at("listeners"), "listener %s has `proxy_protocol`, which only declared proxies may speak: name them in http.proxies", quote(l.Address))
		}
	}
}

// text reads a word of most bytes at most.
func (o *object) text(key string, most int) string {
	w, ok := o.word(key)
	if ok && len(w.text) > most {
		o.errorf(w.node, "%s of %d bytes: the most is %d", key, len(w.text), most)
	}
	return w.text
}

// clientFrom reads the header that names the client.
func (o *object) clientFrom() ClientFrom {
	w, _ := o.word("client_from")
	switch from := ClientFrom(w.text); from {
	case FromXForwardedFor, FromForwarded:
		return from
	}
	o.errorf(w.node, "%s", oneOf("client_from", w.text, []string{string(FromXForwardedFor), string(FromForwarded)}))
	return FromXForwardedFor
}

// flag reads true or false.
func (o *object) flag(key string) bool {
	w, ok := o.word(key)
	if ok && w.text != "true" && w.text != "false" {
		o.errorf(w.node, "%s", oneOf(key, w.text, []string{"true", "false"}))
	}
	return w.text == "true"
}

// loadUsers reads the keys of tokens; a fault stands where the file is named.
func (o *object) loadUsers(u *Users) {
	file := u.KeyFile + u.JWKSFile
	if file == "" || u.KeyFile != "" && u.JWKSFile != "" {
		return
	}
	at := o.inner("identities", "user", "key_file")
	if u.JWKSFile != "" {
		at = o.inner("identities", "user", "jwks_file")
	}
	data, err := o.read(beside(o.file, file), largestTokenKeys)
	if err != nil {
		o.errorf(at, "read keys of tokens: %s", err)
		return
	}
	if u.Keys, err = tokenKeys(*u, data); err != nil {
		o.errorf(at, "%s: %s", file, err)
	}
}

// inner returns the node that lies under keys, or the last on the way there.
func (o *object) inner(first string, more ...string) ast.Node {
	n := o.values[first]
	for _, key := range more {
		m, ok := n.(*ast.MappingNode)
		if !ok {
			return n
		}
		for _, p := range m.Values {
			if p.Key.GetToken().Value == key {
				n = p.Value
				break
			}
		}
	}
	return n
}

// identified reports each part of a rule's `per` that no request can have.
func (h *HTTP) identified(r Rule) (faults []string) {
	name := quote(r.Name)
	if counts(r, PerKey) && !h.keyed() {
		faults = append(faults, fmt.Sprintf("rule %s counts per key, but nothing says where keys are: add `http: {identities: {key: {header: X-Api-Key}}}`", name))
	}
	if counts(r, PerTenant) && h.KeyFile == "" {
		faults = append(faults, fmt.Sprintf("rule %s counts per tenant, but no key file says whose tenant a key is: add `http: {identities: {key: {header: X-Api-Key, file: keys.yaml}}}`", name))
	}
	if counts(r, PerUser) && !h.Users.On() {
		faults = append(faults, fmt.Sprintf("rule %s counts per user, but nothing says who the user is: add `http: {identities: {user: {jwt: sub, jwks_file: jwks.json}}}`", name))
	}
	return faults
}

// keyed reports whether a request may carry an API key.
func (h *HTTP) keyed() bool { return h.KeyHeader != "" || h.KeyBearer || h.KeyQuery != "" }
