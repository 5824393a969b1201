package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/maps"
)

// snapshot is one look at everything, for status and for metrics.
func (d *daemon) snapshot(ctx context.Context) Status {
	// Asked outside of the lock: a slow child must not hold up a block.
	http, requests := d.http.status(ctx)
	network, packets, err := d.network.status()
	board := d.boardStatus(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	st := Status{
		Version: d.version,
		PID:     os.Getpid(),
		Started: d.started.Round(0).UTC(),
		Config:  d.configStatus(),
		Network: network,
		HTTP:    http,
		Rules:   d.countedRules(packets, requests, http.held),
		Blocks:  len(prefixes(d.policy.blocks)) + d.policy.manyBlocks.size(),
		Allows:  len(prefixes(d.policy.allows)) + d.policy.manyAllows.size(),
	}
	if st.Network.PinsEnd = pinsEnd(d.policy.cfg); st.Network.PinsEnd != "" {
		st.Network.Warnings = append(st.Network.Warnings, st.Network.PinsEnd)
	}
	st.HTTP.Certificates = certificateStatus(d.policy.cfg.HTTP.Certificates, d.now())
	st.Lists = d.listStatus()
	st.Trial, st.Board = d.trialStatus(), board
	st.Faults = faults(network, err, http)
	st.Config.Warnings = append(st.Config.Warnings, d.troubles()...)
	if http.Hidden != "" {
		st.Config.Warnings = append(st.Config.Warnings, http.Hidden+": "+HiddenCure)
	}
	for _, l := range st.Lists {
		if l.Read.IsZero() {
			st.Faults = append(st.Faults, fmt.Sprintf("list %s is empty: %s", l.Name, l.Error))
		}
	}
	st.Ready = len(st.Faults) == 0
	return st
}

func (d *daemon) configStatus() ConfigStatus {
	c := ConfigStatus{
		Path:       d.path,
		Generation: d.conf.generation,
		Hash:       d.conf.hash,
		Loaded:     d.conf.loaded.Round(0).UTC(),
		OK:         d.conf.err == nil && d.conf.keysErr == nil,
		Warnings:   append(d.policy.warnings(), d.tagWarnings(d.policy)...),
	}
	if err := cmp.Or(d.conf.err, d.conf.keysErr); err != nil {
		c.Error = err.Error()
	}
	return c
}

// faults says why traffic is not filtered as the config says.
func faults(n NetworkStatus, err error, h HTTPStatus) []string {
	var out []string
	if err != nil {
		out = append(out, "the network gate cannot be read: "+err.Error())
	}
	if n.Opened {
		out = append(out, openedFault)
	}
	for _, i := range n.Interfaces {
		switch {
		case i.ProgramID == 0:
			out = append(out, fmt.Sprintf("interface %s is not attached: %s", i.Name, firstOf(i.Fault, i.Warning)))
		case i.Fault != "":
			out = append(out, fmt.Sprintf("interface %s: %s", i.Name, i.Fault))
		}
	}
	out = append(out, n.Faults...)
	if h.On && !h.Up {
		why := h.Error
		if why == "" {
			why = "its process is not up yet"
		}
		out = append(out, "the HTTP gate is down: "+why)
	}
	return out
}

// openedFault is what status says while the gate is open by `panic`.
const openedFault = "THE NETWORK GATE IS OPEN TO EVERYTHING by `headgate panic`: nothing is dropped (headgate panic --off closes it)"

// troubles are what goes wrong beside the filtering. The caller holds d.mu.
func (d *daemon) troubles() (out []string) {
	if err := d.history.failing(); err != nil {
		out = append(out, fmt.Sprintf("history is not written: %v (make room in %s)", err, d.policy.cfg.State.Dir))
	}
	out = append(out, certificateWarnings(d.policy.cfg.HTTP.Certificates, d.now())...)
	if d.stateErr != nil {
		out = append(out, d.stateErr.Error())
	}
	return out
}

// countedRules returns the rules in force with their counters, then those set
// aside. The caller holds d.mu.
func (d *daemon) countedRules(packets map[string]maps.Counters, requests map[string]l7.Counters, held map[string]limit.Held) []Rule {
	out := []Rule{}
	for _, r := range d.policy.rules {
		w := d.wireRule(r)
		if r.Gate == config.GateNetwork {
			c := packets[r.Name]
			w.Packets = &Verdicts{c.PassedPackets, c.RefusedPackets, c.WatchedPackets}
			w.Bytes = &Verdicts{c.PassedBytes, c.RefusedBytes, c.WatchedBytes}
		} else {
			c := requests[r.Name]
			w.Requests, w.Over = &Verdicts{c.Passed, c.Refused, c.Watched}, c.Over
			if h, ok := held[r.Name]; ok {
				w.Held = &h
			}
		}
		out = append(out, w)
	}
	for _, r := range d.policy.aside {
		out = append(out, d.wireRule(r))
	}
	d.hits.see(out, d.now())
	d.hits.fill(out)
	return out
}

func (d *daemon) wireRule(r liveRule) Rule {
	w := Rule{
		Name: r.Name, Gate: string(r.Gate), Mode: string(r.Mode), Text: r.Text,
		Aside: r.aside, Origin: r.origin,
	}
	if !r.end.IsZero() {
		e := remaining(Entry{End: r.end}, d.now())
		w.End, w.EndsIn = e.End, e.EndsIn
	}
	if r.Gate != "" {
		w.WorstCase = config.WorstCase(r.Rule)
		w.Counted = d.counted(&r.Rule)
	}
	return w
}

func (d *daemon) rules(ctx context.Context) Rules {
	return Rules{Rules: d.snapshot(ctx).Rules}
}

func (d *daemon) entries(k kind) Entries {
	d.mu.Lock()
	p, now := d.policy, d.now()
	d.mu.Unlock()
	all := append(slices.Clip(k.live(p)), k.many(p).entries()...)
	sortEntries(all)
	return Entries{Entries: withRemaining(liveEntries(all, now), now)}
}
