package daemon

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/config"
)

// difference says what next does otherwise than old, in the order rules,
// blocks, allows, lists, interfaces, settings. What has merely moved in the file
// is no difference: order means nothing there.
func difference(old, next *config.Config) []Change {
	out := []Change{}
	add := func(what string, was, is []item) { out = append(out, compare(what, was, is)...) }
	add("rule", rulesOf(old), rulesOf(next))
	add("block", prefixNames(old.Block, old.BlockLists), prefixNames(next.Block, next.BlockLists))
	add("allow", prefixNames(old.Allow, old.AllowLists), prefixNames(next.Allow, next.AllowLists))
	add("list", listsIn(old), listsIn(next))
	add("interface", plainNames(old.Network.Interfaces), plainNames(next.Network.Interfaces))
	add("setting", settings(old), settings(next))
	return out
}

// item is something of a config by its name, with what it says.
type item struct{ name, text string }

// compare lists what was removed, added and changed between two sets of names,
// by name.
func compare(what string, old, next []item) []Change {
	was := map[string]string{}
	for _, x := range old {
		was[x.name] = x.text
	}
	var out []Change
	seen := map[string]bool{}
	for _, x := range next {
		before, had := was[x.name]
		switch {
		case seen[x.name]:
		case !had:
			out = append(out, Change{Op: "+", What: what, Name: x.name, Text: x.text})
		case before != x.text:
			out = append(out, Change{Op: "~", What: what, Name: x.name, Text: x.text, Was: before})
		}
		seen[x.name] = true
	}
	for _, x := range old {
		if !seen[x.name] {
			out = append(out, Change{Op: "-", What: what, Name: x.name, Was: x.text})
			seen[x.name] = true
		}
	}
	slices.SortStableFunc(out, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func rulesOf(c *config.Config) (out []item) {
	for _, r := range c.Rules {
		text := r.Text
		if c.Mode == config.Watch {
			text += " (watch, as all are)"
		}
		out = append(out, item{r.Name, text})
	}
	return out
}

func prefixNames(prefixes []netip.Prefix, lists []string) (out []item) {
	for _, p := range prefixes {
		out = append(out, item{name: short4(p)})
	}
	for _, l := range lists {
		out = append(out, item{name: "list " + l})
	}
	return out
}

func plainNames(names []string) (out []item) {
	for _, n := range names {
		out = append(out, item{name: n})
	}
	return out
}

func listsIn(c *config.Config) (out []item) {
	for _, l := range c.Lists {
		text := firstOf(l.File, l.URL)
		if l.URL != "" {
			text += " every " + Span(int64(l.Interval/time.Second))
		}
		if l.SHA256 != "" {
			text += " sha256 " + short(l.SHA256)
		}
		out = append(out, item{l.Name, text})
	}
	return out
}

// spelled are settings whose key in the file is not that of the field.
var spelled = map[string]string{
	"http.key_header":       "http.identities.key.header",
	"http.key_bearer":       "http.identities.key.bearer",
	"http.key_query":        "http.identities.key.query",
	"http.key_file":         "http.identities.key.file",
	"http.users.header":     "http.identities.user.header",
	"http.users.claim":      "http.identities.user.jwt",
	"http.users.key_file":   "http.identities.user.key_file",
	"http.users.jwks_file":  "http.identities.user.jwks_file",
	"http.users.issuer":     "http.identities.user.issuer",
	"http.users.audience":   "http.identities.user.audience",
	"http.users.algorithms": "http.identities.user.algorithms",
	"http.client_bits":      "http.ipv6_prefix",
}

// settings are all that is left of c, by key. What a key file holds is secret:
// only that it differs is told.
func settings(c *config.Config) (out []item) {
	rest := *c
	rest.Rules, rest.Allow, rest.Block, rest.Lists, rest.AllowLists, rest.BlockLists = nil, nil, nil, nil, nil, nil
	rest.Network.Interfaces, rest.HTTP.Keys, rest.HTTP.Users.Keys, rest.HTTP.Certificates = nil, nil, nil, nil
	if b := &rest.HTTP.Answers.Body; b.Text != "" {
		b.Text = fmt.Sprintf("%d bytes, fingerprint %.12x", len(b.Text), sha256.Sum256([]byte(b.Text)))
	}
	out = flatten("", reflect.ValueOf(rest), nil)
	if n := c.HTTP.Keys.Len(); n > 0 {
		out = append(out, item{"keys in " + c.HTTP.KeyFile, fmt.Sprintf("%d keys, fingerprint %.6x", n, c.HTTP.Keys.Fingerprint())})
	}
	if n := len(c.HTTP.Users.Keys); n > 0 {
		out = append(out, item{"keys in " + c.HTTP.Users.KeyFile + c.HTTP.Users.JWKSFile, fmt.Sprintf("%d keys, fingerprint %s", n, tokenPrint(c.HTTP.Users.Keys))})
	}
	for _, pair := range c.HTTP.Certificates {
		sum := sha256.Sum256(pair.Cert)
		out = append(out, item{"certificate in " + pair.CertFile, fmt.Sprintf("ends %s, fingerprint %s", pair.Ends.Format(time.DateOnly), short(hex.EncodeToString(sum[:])))})
	}
	return out
}

// flatten names each field of a struct by its path, as the file nests it. What
// is empty is left out.
func flatten(path string, v reflect.Value, out []item) []item {
	if v.Kind() == reflect.Struct && v.Type().PkgPath() != "net/netip" {
		for i := range v.NumField() {
			name := snake(v.Type().Field(i).Name)
			if path != "" {
				name = path + "." + name
			}
			out = flatten(name, v.Field(i), out)
		}
		return out
	}
	if v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 {
		return out
	}
	return append(out, item{firstOf(spelled[path], path), fmt.Sprint(v.Interface())})
}

// tokenPrint tells two sets of keys of tokens apart and gives none away.
func tokenPrint(keys []config.TokenKey) string {
	sum := sha256.New()
	for _, k := range keys {
		fmt.Fprintf(sum, "%q %s %x %x\n", k.ID, k.Algorithm, k.Public, k.Secret)
	}
	return short(hex.EncodeToString(sum.Sum(nil)))
}

// snake writes the name of a field as the file does: AttachMode is attach_mode.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && unicode.IsLower(rune(name[i-1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
