package config

import (
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Upstream is where the requests that it matches are relayed to: to the first
// upstream of a listener that matches.
type Upstream struct {
	Hosts   []string // as in Match; empty: all
	Paths   []string // as in Match; empty: all
	URLs    []string // http, https or h2c, without a path; at least one, of one scheme
	Balance Balance
	Check   *HealthCheck // nil: only what becomes of requests tells how they fare
}

// Balance is how an upstream's URL is chosen among those that are up.
type Balance string

const (
	RoundRobin    Balance = "round-robin"
	LeastRequests Balance = "least-requests" // the one with the fewest in flight
)

// HealthCheck is a request that an upstream answers 2xx or 3xx while it is well.
type HealthCheck struct {
	Path     string        // with or without a query
	Interval time.Duration // 1s to 1h
}

const mostUpstreams = 1000 // of a listener, and URLs of an upstream

// upstreams reads the list of upstreams.
func (o *object) upstreams() (all []Upstream) {
	if o.has("upstream") && o.has("upstreams") {
		o.errorf(o.keys["upstream"], "`upstream` is the short form of `upstreams`: remove one")
	}
	nodes := o.objects("upstreams")
	if list, ok := o.values["upstreams"].(*ast.SequenceNode); ok && (len(nodes) == 0 || len(nodes) > mostUpstreams) {
		o.errorf(list, "`upstreams` has %d items: from 1 to %d", len(nodes), mostUpstreams)
		return nil
	}
	for i, n := range nodes {
		item := o.object(n, upstreamLevel)
		if item == nil {
			continue
		}
		u := item.upstreamItem()
		all = append(all, u)
		if len(u.Hosts) == 0 && len(u.Paths) == 0 && i < len(nodes)-1 && !item.has("match") {
			o.errorf(n, "an upstream without `match` takes every request, so those after it get none: put it last")
		}
	}
	return all
}

func (o *object) upstreamItem() (u Upstream) {
	if m := o.child("match", upstreamMatchLevel); m != nil {
		rr := &ruleReader{object: m}
		for _, w := range m.words("path") {
			rr.use(w, &u.Paths, checkPath(w.text), w.text)
		}
		for _, w := range m.words("host") {
			host := strings.ToLower(w.text)
			rr.use(w, &u.Hosts, checkHost(host), host)
		}
	}
	if o.need("url", "say where requests go, such as http://127.0.0.1:9000, or a list of such") {
		u.URLs = o.urls()
	}
	if w, ok := o.word("balance"); ok {
		u.Balance = Balance(w.text)
		if u.Balance != RoundRobin && u.Balance != LeastRequests {
			o.errorf(w.node, "%s", oneOf("balance", w.text, []string{string(RoundRobin), string(LeastRequests)}))
		}
	}
	if c := o.child("check", checkLevel); c != nil {
		u.Check = c.healthCheck()
	}
	return u
}

func (o *object) urls() (urls []string) {
	words := o.words("url")
	if len(words) > mostUpstreams {
		o.errorf(o.at("url"), "%d URLs: at most %d", len(words), mostUpstreams)
		return nil
	}
	rr := &ruleReader{object: o}
	for _, w := range words {
		u, err := parseUpstream(w.text)
		if err != nil {
			rr.errorf(w.node, "%s", err)
			continue
		}
		if len(urls) > 0 && scheme(u) != scheme(urls[0]) {
			o.errorf(w.node, "%s and %s differ in their scheme: one upstream has one", quote(urls[0]), quote(u))
		}
		rr.use(w, &urls, "", u)
	}
	return urls
}

func scheme(url string) string {
	s, _, _ := strings.Cut(url, "://")
	return s
}

func (o *object) healthCheck() *HealthCheck {
	c := &HealthCheck{}
	if o.need("path", "name what is asked for, such as /healthz") {
		if w, ok := o.word("path"); ok {
			c.Path = w.text
			if !strings.HasPrefix(w.text, "/") || len(w.text) > longestPath || strings.ContainsAny(w.text, " #") || !isASCII(w.text) {
				o.errorf(w.node, "path %s: write what is asked for, such as /healthz", quote(w.text))
			}
		}
	}
	if w, ok := o.word("interval"); ok {
		d, err := ParseDuration(w.text)
		switch {
		case err != nil:
			o.errorf(w.node, "interval %s", err)
		case d < time.Second || d > time.Hour:
			o.errorf(w.node, "interval %s: from 1s to 1h", quote(w.text))
		}
		c.Interval = d
	}
	return c
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c < 0x20 || c > 0x7e }) < 0
}

// Targets returns the URLs that l relays to.
func (l Listener) Targets() (all []string) {
	if l.Upstream != "" {
		all = append(all, l.Upstream)
	}
	for _, u := range l.Upstreams {
		all = append(all, u.URLs...)
	}
	return all
}
