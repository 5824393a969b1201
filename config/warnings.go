package config

import (
	"fmt"
	"net"
	"net/netip"
)

// Warnings says what in c is legal and yet probably not what its author wants,
// one line each, in the order of the file. `check` prints them, and so does the
// daemon when it starts.
func Warnings(c *Config) []string {
	var w warnings
	if c.Mode == Watch {
		w.addf("mode: watch: every rule only counts what it would refuse")
	}
	w.network(c)
	w.prefixes(c)
	w.http(c)
	if len(c.Rules) == 0 {
		w.addf("no rules: everything that is not blocked passes")
	}
	for _, r := range c.Rules {
		w.rule(c, r)
	}
	w.lists(c)
	w.admin(c.Admin.Listen)
	return w
}

// mostExact is about how many requests of one key a second a fleet can decide
// with a call to Redis each.
const mostExact = 10_000

type warnings []string

func (w *warnings) addf(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

func (w *warnings) network(c *Config) {
	if len(c.Network.Interfaces) == 0 && len(c.HTTP.Listeners) == 0 {
		w.addf("no interface and no listener: both gates are off; add network.interfaces or http.listen")
	}
	if len(c.Network.Interfaces) == 0 {
		if len(c.Block) > 0 && len(c.HTTP.Listeners) > 0 {
			w.addf("block: the network gate is off (no network.interfaces), so blocks hold at the http gate only")
		}
		return
	}
	if len(c.Network.Management.Sources) == 0 {
		w.addf("network.management is empty: a rule or block can lock you out; name the sources you manage this host from")
	}
	for _, p := range c.Network.Management.Sources {
		if p.Bits() == 0 {
			w.addf("network.management.sources has %s: anyone passes all rules and blocks on these ports", p)
		}
	}
}

func (w *warnings) prefixes(c *Config) {
	for _, b := range c.Block {
		if b.Bits() == 0 {
			w.addf("block %s drops all traffic of its family but management, allowed and vital", b)
			continue
		}
		for _, m := range c.Network.Management.Sources {
			if covers(b, m) {
				w.addf("block %s covers management source %s: only its management ports will pass", b, m)
			}
		}
		for _, p := range c.HTTP.Proxies {
			if covers(b, p) {
				w.addf("block %s covers proxy %s: all of its clients are cut off", b, p)
			}
		}
	}
	for _, a := range c.Allow {
		if a.Bits() == 0 {
			w.addf("allow %s lets all of its family pass: no rule and no block has an effect on it", a)
		}
	}
}

func (w *warnings) http(c *Config) {
	if c.HTTP.keyed() && c.HTTP.KeyFile == "" {
		w.addf("http.identities.key has no file: keys are only claimed, so a client may hold 8 of them and shares its own bucket beyond")
	}
	w.users(c)
	if c.HTTP.KeyFile != "" && c.HTTP.Keys.Len() == 0 {
		w.addf("key file %s holds no key: every request counts as one without", c.HTTP.KeyFile)
	}
	w.answers(c.HTTP)
	for _, p := range c.HTTP.Proxies {
		if p.Bits() == 0 {
			w.addf("http.proxies has %s: any client may name its own address, and so escape its limits", p)
		}
	}
}

// users warns about tokens that are believed too easily, or cost too much.
func (w *warnings) users(c *Config) {
	u := c.HTTP.Users
	if c.HTTP.ClientFrom == FromForwarded && len(c.HTTP.Proxies) == 0 {
		w.addf("http.client_from does nothing: nobody may name the client, add http.proxies")
	}
	if u.Claim == "" {
		return
	}
	if u.Audience == "" {
		w.addf("http.identities.user has no audience: a token that was made for another service counts here")
	}
	asks, bounds := false, false
	for _, r := range c.Rules {
		asks = asks || r.Gate == GateHTTP && counts(r, PerUser)
		bounds = bounds || r.Gate == GateHTTP && r.Mode == Enforce && len(r.lacks()) == 0
	}
	if asks && !bounds {
		w.addf("no rule per client stands before the rules per user: each made-up token costs a signature check, add one")
	}
}

// rule warns about one rule.
func (w *warnings) rule(c *Config, r Rule) {
	switch {
	case r.Gate == GateNetwork && len(c.Network.Interfaces) == 0:
		w.addf("rule %q does nothing: the network gate is off, add network.interfaces", r.Name)
	case r.Gate == GateHTTP && len(c.HTTP.Listeners) == 0:
		w.addf("rule %q does nothing: the http gate is off, add http.listen and http.upstream", r.Name)
	}
	if c.Fleet != nil && r.ScopeIn(c.Fleet) == ScopeExact && r.Rate.perSecond() > mostExact {
		w.addf("rule %q asks Redis for each request, and that carries about %d a second and key: use `scope: fleet`, with a rate or quota", r.Name, mostExact)
	}
	for _, fault := range c.HTTP.identified(r) {
		w.addf("%s", fault)
	}
	if counts(r, PerTenant) && counts(r, PerKey) {
		w.addf("rule %q has a bucket for each key, since a key has one tenant: to hold both, write a rule per key and one per tenant", r.Name)
	}
	w.requests(c, r)
	if r.Algorithm == TokenBucket {
		w.burst(r)
	}
	if r.Gate == GateNetwork {
		w.packets(c, r)
	}
}

// burst warns about bursts that refuse ordinary clients: a page with its forty
// assets, or a second's worth of packets in one interrupt.
func (w *warnings) burst(r Rule) {
	second := r.Rate.perSecond()
	switch {
	case r.Rate.Unit == Bytes && r.Burst < leastByteBurst:
		w.addf("rule %q: burst %s is less than %s: frames that large, as segmentation offload makes them, never pass",
			r.Name, amountText(r.Burst, Bytes), amountText(leastByteBurst, Bytes))
	case !r.catchAll():
	case r.Burst == 1:
		w.addf("rule %q: burst 1 on all traffic refuses any two that come together, such as a page and its images; raise it", r.Name)
	case r.Burst < second:
		w.addf("rule %q: burst %s on all traffic is less than one second of %s and refuses ordinary bursts; raise it to %s",
			r.Name, amountText(r.Burst, r.Rate.Unit), r.Rate, amountText(second, r.Rate.Unit))
	}
}

// catchAll reports whether r applies to all that its gate sees.
func (r Rule) catchAll() bool {
	m := r.Match
	if len(m.Paths) == 1 && m.Paths[0] == "/**" {
		m.Paths = nil
	}
	return !m.matchesPackets() && !m.matchesRequests()
}

func (w *warnings) admin(listen string) {
	host, _, err := net.SplitHostPort(listen)
	if listen == "" || err != nil || host == "localhost" {
		return
	}
	if a, err := netip.ParseAddr(host); err != nil || !a.IsLoopback() {
		w.addf("admin.listen %s is open to the network: metrics name your rules and interfaces", listen)
	}
}

// covers reports whether a holds all of b.
func covers(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }
