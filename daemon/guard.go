package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/config"
)

// guard is whom a change must not lock out: whoever asks for it, and the
// gateways that the host's default routes go by when it is asked.
type guard struct {
	peer     netip.Addr     // where the asker sits; may be invalid
	over     netip.AddrPort // the end of his session on this host, where known
	gateways []netip.Addr
}

const (
	sshPort = 22

	// slowestPackets and slowestBytes a second are what a session over SSH needs
	// to be of use: keys, echoes and their acknowledgements. Below them it stalls.
	slowestPackets = 20
	slowestBytes   = 16_000

	// A bucket for more neighbours than these share is one that strangers empty.
	neighbours4 = 24
	neighbours6 = 48
)

// guardFor is the guard for a change that who asks for.
func (d *daemon) guardFor(who Origin) guard {
	gateways, err := d.gateways()
	if err != nil {
		d.log.Warn("look up the default gateway: a change may cut it off", "err", err)
	}
	return guard{peer: who.Peer.Unmap().WithZone(""), over: who.Over, gateways: gateways}
}

// endangers says whom a block of pre would lock out: whoever asks for it, the
// management sources, a proxy through which all clients come, or the default
// gateway. What is allowed or managed anyway is not at risk from its own entry
// alone, but a block over it is far more often a slip than a plan.
func (p *policy) endangers(pre netip.Prefix, g guard) error {
	if g.peer.IsValid() && pre.Contains(g.peer) {
		return fmt.Errorf("%s holds %s, from where you are connected", pre, g.peer)
	}
	for _, m := range p.cfg.Network.Management.Sources {
		if m.Overlaps(pre) {
			return fmt.Errorf("%s overlaps the management source %s", pre, m)
		}
	}
	for _, x := range p.cfg.HTTP.Proxies {
		if x.Overlaps(pre) {
			return fmt.Errorf("%s overlaps the proxy %s, which brings its clients' requests", pre, x)
		}
	}
	for _, a := range g.gateways {
		if pre.Contains(a) {
			return fmt.Errorf("%s holds %s, the default gateway", pre, a)
		}
	}
	return nil
}

// starves says how r, a rule of p, would stop the asker's session, or returns
// nil. Management passes before all rules, and what is allowed passes them too:
// only a session that is neither can be stopped. Then it is stopped by a bucket
// that strangers empty, or by one too slow to type in.
func (p *policy) starves(r config.Rule, g guard) error {
	port := g.over.Port()
	if port == 0 {
		port = sshPort
	}
	if !g.peer.IsValid() || r.Gate != config.GateNetwork || r.Mode == config.Watch ||
		p.spares(g.peer, port) || !p.meets(r, g, port) {
		return nil
	}
	what := fmt.Sprintf("your session from %s to port %d", g.peer, port)
	cure := fmt.Sprintf("spare it: network.management: {sources: [%s], ports: [tcp/%d]}, or headgate allow %s", g.peer, port, g.peer)
	if shared(r, g.peer) {
		return fmt.Errorf("%s would share the bucket of rule %s with strangers, who can empty it (%s)", what, r.Name, cure)
	}
	rate := r.Rate
	for _, o := range r.Overrides {
		if p.holds(o.From, g.peer) {
			rate = o.Rate
			break
		}
	}
	least := float64(slowestPackets)
	if rate.Unit == config.Bytes {
		least = slowestBytes
	}
	if float64(rate.Amount)/rate.Interval.Seconds() < least {
		return fmt.Errorf("rule %s would slow %s to a standstill (%s)", r.Name, what, cure)
	}
	return nil
}

// spares reports whether packets of a session pass before rules are asked.
func (p *policy) spares(peer netip.Addr, port uint16) bool {
	m := p.cfg.Network.Management
	managed := slices.ContainsFunc(m.Sources, func(s netip.Prefix) bool { return s.Contains(peer) }) &&
		slices.Contains(m.Ports, config.Port{Protocol: "tcp", Number: port})
	return managed || len(allows.covering(p, netip.PrefixFrom(peer, peer.BitLen()))) > 0
}

// meets reports whether the packets of an SSH session may match r. What is not
// known of it, such as its VLAN, may be what the rule asks for. A rule for
// packets that open a connection leaves those that are open alone.
func (p *policy) meets(r config.Rule, g guard, port uint16) bool {
	m := r.Match
	from := len(m.From.Prefixes)+len(m.From.Lists) == 0 || p.holds(m.From, g.peer)
	to := len(m.To.Prefixes)+len(m.To.Lists) == 0 || !g.over.IsValid() || p.holds(m.To, g.over.Addr().Unmap())
	opens := m.Flags != nil && m.Flags.Set&2 != 0 && m.Flags.Clear&16 != 0
	toPort := len(m.Ports) == 0 || slices.ContainsFunc(m.Ports, func(r config.PortRange) bool { return r.First <= port && port <= r.Last })
	return from && to && toPort && !opens && !p.holds(m.Except, g.peer) &&
		(m.Protocol == "" || m.Protocol == "tcp" || m.Protocol == "6")
}

// holds reports whether a, with the lists that it names, holds the address.
func (p *policy) holds(a config.Addresses, address netip.Addr) bool {
	in := func(pre netip.Prefix) bool { return pre.Contains(address) }
	return slices.ContainsFunc(a.Prefixes, in) ||
		slices.ContainsFunc(a.Lists, func(name string) bool { return slices.ContainsFunc(p.named[name], in) })
}

// shared reports whether strangers count in the same bucket of r as peer does.
func shared(r config.Rule, peer netip.Addr) bool {
	bits, least := r.SourceBits6, uint8(neighbours6)
	if peer.Is4() {
		bits, least = r.SourceBits4, neighbours4
	}
	return !slices.Contains(r.Per, config.PerSource) || bits != 0 && bits < least
}

// dangers is what the config of p itself does to those that g guards, one line
// each: its blocks, which it may have had for long, and its rules.
func (p *policy) dangers(g guard) (lines []string) {
	for _, e := range p.blocks {
		if e.From != FromConfig {
			continue
		}
		if err := p.endangers(e.Prefix, g); err != nil {
			lines = append(lines, "block: "+err.Error())
		}
	}
	for _, r := range p.rules {
		if err := p.starves(r.Rule, g); err != nil {
			lines = append(lines, err.Error())
		}
	}
	return lines
}

// shuts reports whether p drops what comes from address. Management does not
// count: it is for some ports alone.
func (p *policy) shuts(address netip.Addr) bool {
	if !address.IsValid() {
		return false
	}
	one := netip.PrefixFrom(address, address.BitLen())
	return len(blocks.covering(p, one)) > 0 && len(allows.covering(p, one)) == 0
}
