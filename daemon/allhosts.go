package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/fleet"
	"github.com/headgate/headgate/l7"
)

// FleetReply says how far a change for all hosts has come.
type FleetReply struct {
	Hosts   int      `json:"hosts"`             // alive, this one included
	Have    int      `json:"have"`              // of them, those where it is in force
	Lacking []string `json:"lacking,omitempty"` // the others
	Error   string   `json:"error,omitempty"`   // why it is not posted: it holds here, and is posted when it can be
}

// said returns st with s said to all hosts until end, not yet posted. Of two ends
// of one block or allow the later counts, as on one host. The caller holds d.mu.
func (d *daemon) said(st state, s saying, end time.Time) (state, error) {
	if d.board == nil {
		return st, refuse("this host is in no fleet: add `fleet` to the config, or leave --all-hosts out (see docs/fleet.md)")
	}
	o := s.origin()
	o.UID, o.Peer, o.Over, o.Host = nil, netip.Addr{}, netip.AddrPort{}, d.board.host
	old := st.Posted.find(s.id(d.board.seal))
	if old != nil && !old.Gone && !ended(old.Ends, d.now()) && s.Rule == nil && s.Override == nil &&
		endsAfter(Entry{End: old.Ends}, Entry{End: end}) {
		end = old.Ends
	}
	n, err := draft(d.board.seal, s, end, old)
	if err != nil {
		return st, err
	}
	st.Posted = st.Posted.with(n)
	return st, nil
}

// unsaid returns st with those notices taken down on all hosts.
func (st state) unsaid(all []*notice) state {
	for _, n := range all {
		st.Posted = st.Posted.with(n.takenDown())
	}
	return st
}

// What tell waits for: the answer of Redis, and then for other hosts.
const (
	postWait  = time.Second
	hostsWait = time.Second
	hostAlive = 3 * time.Second // a host that was heard of so lately counts
)

// tell posts what is drafted and says how far it has come after a moment. The
// caller does not hold d.mu.
func (d *daemon) tell(ctx context.Context) *FleetReply {
	b := d.board
	post, cancel := context.WithTimeout(ctx, postWait)
	defer cancel()
	if err := b.Sync(post); err != nil {
		return &FleetReply{Hosts: 1, Have: 1, Error: fleet.Why(err)}
	}
	wait, cancel := context.WithTimeout(ctx, hostsWait)
	defer cancel()
	posted := b.Cursor()
	reply := &FleetReply{Hosts: 1, Have: 1}
	for {
		all, err := b.Hosts(wait, posted)
		if err == nil {
			reply = reach(all.Hosts, b.life, posted)
		}
		if wait.Err() != nil || err == nil && len(reply.Lacking) == 0 {
			return reply
		}
		pause(wait, 10*time.Millisecond)
	}
}

// reach counts who of all has what was posted. Hosts with another secret are of
// another fleet.
func reach(all []fleet.HostSeen, own string, posted int64) *FleetReply {
	r := &FleetReply{}
	for _, h := range all {
		if h.Other || h.Life != own && h.Ago > hostAlive {
			continue
		}
		r.Hosts++
		if h.Life == own || h.Revision >= posted {
			r.Have++
		} else {
			r.Lacking = append(r.Lacking, h.Name)
		}
	}
	slices.Sort(r.Lacking)
	return r
}

// forAllHosts reports whether r, which removes something, means all hosts.
func forAllHosts(r *http.Request) bool { return r.URL.Query().Get("all_hosts") == "true" }

// takeNoticesBack returns next without what a change said to all hosts.
func (d *daemon) takeNoticesBack(next state, p *patch) (state, error) {
	if len(p.Notices) > 0 && d.board == nil {
		return next, errors.New("it was for all hosts, and this host is in no fleet any more")
	}
	var err error
	for _, n := range p.Notices {
		if n.Was != nil {
			n.Was.open(d.board.seal) // for who guards against lock-out
		}
		if next, err = n.takeBack(next, d.board.seal, d.now()); err != nil {
			return next, err
		}
	}
	return next, nil
}

// unsayRule removes a rule on all hosts. The caller holds d.mu.
func (d *daemon) unsayRule(ctx context.Context, name string, who Origin) (RuleReply, error) {
	before := d.added.live(d.now())
	for _, n := range before.said {
		if n.says.Rule == nil || n.says.Rule.Name != name {
			continue
		}
		gone, _ := d.policy.find(name)
		if err := d.commit(ctx, before.unsaid([]*notice{n}), nothing); err != nil {
			return RuleReply{}, err
		}
		d.note(change{what: "rule rm", subject: name, detail: n.says.Rule.Text + onAll(true), who: who, patch: patchOf(before, d.added)})
		return RuleReply{Rule: d.wireRule(gone)}, nil
	}
	if r, ok := d.policy.find(name); ok && r.origin.From == FromCommand {
		return RuleReply{}, refuse("rule %s is on this host alone: headgate rule rm %s", name, name)
	}
	return RuleReply{}, notThere("no rule %q was added for all hosts (see: headgate rule ls)", name)
}

// saidOverride returns the notice of an override, or nil.
func (s state) saidOverride(rule, whom string) *notice {
	for _, n := range s.said {
		if o := n.says.Override; o != nil && o.Rule == rule && o.Whom == whom {
			return n
		}
	}
	return nil
}

// unsayOverride removes an override on all hosts. The caller holds d.mu.
func (d *daemon) unsayOverride(ctx context.Context, rule, whom string, who Origin) (OverrideReply, error) {
	before := d.added.live(d.now())
	n := before.saidOverride(rule, whom)
	if n == nil {
		return OverrideReply{}, notThere("no override of %s for %s was added for all hosts (see: headgate override ls)", rule, whom)
	}
	gone := *n.says.Override
	if err := d.commit(ctx, before.unsaid([]*notice{n}), nothing); err != nil {
		return OverrideReply{}, err
	}
	d.note(change{what: "override rm", subject: rule, detail: gone.Text + onAll(true), who: who, patch: patchOf(before, d.added)})
	now, _ := d.policy.find(rule)
	return OverrideReply{Override: d.wireOverride(liveOverride{addedOverride: gone}), RuleText: now.Text}, nil
}

// flagAll is the flag that a command needs.
func flagAll(all bool) string {
	if all {
		return " --all-hosts"
	}
	return ""
}

// counted says in words where r is counted, if this host is in a fleet.
func (d *daemon) counted(r *config.Rule) string {
	f := d.policy.cfg.Fleet
	if f == nil {
		return ""
	}
	hosts := max(1, f.Hosts, d.added.Posted.Hosts)
	switch r.ScopeIn(f) {
	case config.ScopeFleet:
		return fmt.Sprintf("over all hosts: with %d of them at most %d more in any window than the worst case, which is repaid before anyone is admitted again, and one host's share of that for each that is killed",
			hosts, l7.Overshoot(r, f, hosts))
	case config.ScopeExact:
		return "over all hosts, exactly: Redis decides each request"
	}
	return "on each host"
}

// countHosts keeps how many hosts the fleet has, for a start without Redis, until
// ctx ends.
func (d *daemon) countHosts(ctx context.Context) error {
	const every = 10 * time.Second
	for b := d.board; b != nil && ctx.Err() == nil; pause(ctx, every) {
		b.look(ctx, d.now())
		b.mu.Lock()
		alive := reach(b.hosts, b.life, 0).Hosts
		up := b.err == nil
		b.mu.Unlock()
		d.mu.Lock()
		if up && alive > 0 && alive != d.added.Posted.Hosts {
			next := d.added
			next.Posted.Hosts = alive
			if err := d.store.save(next, d.now()); err == nil {
				d.added = next
			}
		}
		d.mu.Unlock()
	}
	return nil
}
