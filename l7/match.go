package l7

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/config"
)

// matcher says which requests a rule applies to. Empty parts match all.
type matcher struct {
	methods []string // this one and the next two are what index looks at
	hosts   []string
	paths   []pattern

	more    bool // headers, claims or plans are named
	headers []config.HeaderMatch
	claims  []config.Identity
	plans   []string
}

// pattern is a path in normal form, cut at its slashes.
type pattern struct {
	literal  string // the whole path where no segment is a template
	segments []string
	subtree  bool // and all that lies below
	template bool
}

func newMatcher(m config.Match) (matcher, error) {
	t := matcher{methods: slices.Clone(m.Methods), headers: m.Headers, claims: m.Identities, plans: m.Plans}
	t.more = len(t.headers)+len(t.claims)+len(t.plans) > 0
	if slices.Contains(t.methods, "GET") && !slices.Contains(t.methods, "HEAD") {
		t.methods = append(t.methods, "HEAD")
	}
	for _, h := range m.Hosts {
		if below, ok := strings.CutPrefix(h, "*"); ok && !strings.HasPrefix(below, ".") {
			return matcher{}, fmt.Errorf("host %q: a wildcard is one *. at the start", h)
		}
		t.hosts = append(t.hosts, strings.TrimSuffix(strings.ToLower(h), "."))
	}
	for _, path := range m.Paths {
		p, err := newPattern(path)
		if err != nil {
			return matcher{}, err
		}
		t.paths = append(t.paths, p)
	}
	return t, nil
}

func newPattern(path string) (pattern, error) {
	base, subtree := strings.CutSuffix(path, "/**")
	if !strings.HasPrefix(path, "/") || strings.Contains(base, "*") {
		return pattern{}, fmt.Errorf("path %q: begin with / and use ** only as the last segment", path)
	}
	p := pattern{subtree: subtree, literal: reading(0).normal(base)}
	if p.literal != "/" {
		p.segments = strings.Split(p.literal[1:], "/")
	}
	p.template = slices.ContainsFunc(p.segments, isTemplate)
	return p, nil
}

func isTemplate(segment string) bool {
	return strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "}")
}

func (p *pattern) match(path string) bool {
	switch {
	case p.template:
		return p.matchSegments(path)
	case !p.subtree:
		return path == p.literal
	case p.literal == "/":
		return true
	}
	return strings.HasPrefix(path, p.literal) && (len(path) == len(p.literal) || path[len(p.literal)] == '/')
}

func (p *pattern) matchSegments(path string) bool {
	rest, more := strings.TrimPrefix(path, "/"), path != "/"
	for _, want := range p.segments {
		if !more {
			return false
		}
		var got string
		got, rest, more = strings.Cut(rest, "/")
		if got != want && (got == "" || !isTemplate(want)) {
			return false
		}
	}
	return !more || p.subtree
}

// hostOf returns the host of a request in normal form: lower case, without
// port, brackets and final dot.
func hostOf(host string) string {
	if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') {
		host = host[:colon]
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
