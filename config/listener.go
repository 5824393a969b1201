package config

import (
	"net"
	"net/netip"
	"net/url"

	"github.com/goccy/go-yaml/ast"
)

// listeners reads the short form (`listen`) or the list. An upstream on `http`
// holds for all that have none of their own.
func (o *object) listeners() []Listener {
	upstream, upstreams := o.upstream(), o.upstreams()
	if o.has("listen") && o.has("listeners") {
		o.errorf(o.keys["listen"], "`listen` is the short form of `listeners`: remove one")
	}
	var all []Listener
	if w, ok := o.word("listen"); ok {
		o.listenOn(&all, w, Listener{Address: w.text, Door: "proxy", Upstream: upstream, TLS: o.tls(), Upstreams: upstreams}, o)
	}
	for _, n := range o.objects("listeners") {
		l := o.object(n, listenerLevel)
		if l == nil {
			continue
		}
		own := Listener{Door: l.door(), Upstream: upstream, Dialect: l.dialect(), ProxyProtocol: l.flag("proxy_protocol"), TLS: l.tls(), Upstreams: upstreams}
		if l.has("upstream") || l.has("upstreams") {
			own.Upstream, own.Upstreams = l.upstream(), l.upstreams()
		}
		if !l.need("address", "say where it listens, such as \":8080\"") {
			continue
		}
		if w, ok := l.word("address"); ok {
			own.Address = w.text
			o.listenOn(&all, w, own, l)
		}
	}
	if o.has("tls") && !o.has("listen") {
		o.errorf(o.keys["tls"], "`tls` goes with `listen`: an item of `listeners` has its own")
	}
	for _, key := range upstreamKeys {
		if o.has(key) && !o.has("listen") && !o.has("listeners") {
			o.errorf(o.keys[key], "`%s` without a listener does nothing: add `listen`, such as \":8080\"", key)
		}
	}
	return all
}

// listenOn adds l, which from wrote at w, after checking it against the others.
func (o *object) listenOn(all *[]Listener, w word, l Listener, from *object) {
	if err := checkAddress(w.text); err != nil {
		o.errorf(w.node, "%s", err)
		return
	}
	for _, other := range *all {
		if collide(other.Address, l.Address) {
			o.errorf(w.node, "%s is listened on by %s already: remove one or change its port", quote(l.Address), quote(other.Address))
		}
	}
	if len(l.Targets()) == 0 && !from.meansUpstream() && !o.meansUpstream() {
		o.errorf(w.node, "the listener has no upstream: add `upstream`, such as http://127.0.0.1:9000")
	}
	for _, target := range l.Targets() {
		if asksItself(l.Address, target) {
			o.errorf(from.upstreamAt(o), "upstream %s is the listener itself: name the server behind it", quote(target))
		}
	}
	*all = append(*all, l)
}

func (o *object) upstream() string {
	w, ok := o.word("upstream")
	if !ok {
		return ""
	}
	u, err := parseUpstream(w.text)
	if err != nil {
		o.errorf(w.node, "%s", err)
	}
	return u
}

// upstreamAt returns where the upstream of a listener was written: with it, or
// on outer.
func (o *object) upstreamAt(outer *object) ast.Node {
	for _, key := range upstreamKeys {
		if o.has(key) {
			return o.at(key)
		}
	}
	if outer.has("upstream") {
		return outer.at("upstream")
	}
	return outer.at("upstreams")
}

var upstreamKeys = []string{"upstream", "upstreams"}

// meansUpstream reports whether o has an upstream, or one that is written
// wrongly.
func (o *object) meansUpstream() bool {
	for _, key := range upstreamKeys {
		if o.has(key) || o.meant[key] {
			return true
		}
	}
	return false
}

func (o *object) door() string {
	w, ok := o.word("door")
	if ok && w.text != "proxy" {
		o.errorf(w.node, "%s", oneOf("door", w.text, []string{"proxy"}))
	}
	return w.text
}

// collide reports whether two addresses to listen on are certain to be one.
func collide(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	return portA == portB && portA != "0" && (hostA == hostB || isAny(hostA) || isAny(hostB))
}

func isAny(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.IsUnspecified()
}

// asksItself reports whether the upstream is the listener on a loopback
// address: every request would go round until no port is free.
func asksItself(address, upstream string) bool {
	u, err := url.Parse(upstream)
	if err != nil {
		return false
	}
	host, port, _ := net.SplitHostPort(address)
	up, err := netip.ParseAddr(u.Hostname())
	loopback := u.Hostname() == "localhost" || err == nil && (up.IsLoopback() || up.IsUnspecified())
	return u.Port() == port && port != "0" && (host == u.Hostname() || isAny(host) && loopback)
}
