package l7

import (
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/config"
)

// fits reports whether the rule applies to a request that the index found it
// for: whether headers, identity and plan match too.
func (m *matcher) fits(p *policy, r *http.Request, a *asker) bool {
	for i := range m.headers {
		if !matchHeader(r.Header[m.headers[i].Name], m.headers[i].Values) {
			return false
		}
	}
	if len(m.plans) > 0 && (a.identity != verified || !slices.Contains(m.plans, a.plan)) {
		return false
	}
	return len(m.claims) == 0 || m.fitsClaim(p, a)
}

// fitsClaim looks for the user last: that may cost a signature check.
func (m *matcher) fitsClaim(p *policy, a *asker) bool {
	switch {
	case a.identity == claimed && slices.Contains(m.claims, config.IdentityClaimed):
		return true
	case a.identity == verified && slices.Contains(m.claims, config.IdentityVerified):
		return true
	}
	user, none := slices.Contains(m.claims, config.IdentityUser), slices.Contains(m.claims, config.IdentityNone)
	if !user && (!none || a.identity != anonymous) {
		return false
	}
	if !a.learned {
		p.learnUser(a)
	}
	return user && a.user != "" || none && a.user == "" && a.identity == anonymous
}

// asksUser reports whether the match may depend on who the user is.
func (m *matcher) asksUser() bool {
	return slices.Contains(m.claims, config.IdentityUser) || slices.Contains(m.claims, config.IdentityNone)
}

// matchHeader reports whether one of a header's lines has one of the values,
// or begins with one that ends in *. Case counts for nothing, since many
// servers read media types and the like so: a rule that matches too much
// refuses more, one that matches too little is escaped.
func matchHeader(lines, values []string) bool {
	for _, line := range lines {
		for _, v := range values {
			start, open := strings.CutSuffix(v, "*")
			if !open && strings.EqualFold(line, v) || open && len(line) >= len(start) && strings.EqualFold(line[:len(start)], start) {
				return true
			}
		}
	}
	return false
}
