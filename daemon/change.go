package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/config"
)

// refusal is an error with the status code that it is answered with. Nothing
// was changed.
type refusal struct {
	code int
	msg  string
}

func (r *refusal) Error() string { return r.msg }

func refuse(format string, args ...any) error {
	return &refusal{http.StatusConflict, fmt.Sprintf(format, args...)}
}

func badInput(format string, args ...any) error {
	return &refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

func notThere(format string, args ...any) error {
	return &refusal{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

// commit makes next what was added from the command line: written first, so
// that what is in force is never more than what a restart finds, then put in
// force, and taken back from the file if that fails. check may refuse what it
// came to. The caller holds d.mu.
func (d *daemon) commit(ctx context.Context, next state, check func(*policy) error) error {
	now := d.now()
	next = next.live(now)
	p, err := merge(d.policy.cfg, next, named(d.kept))
	if err != nil {
		return err
	}
	if err := errors.Join(d.policy.loses(p), check(p)); err != nil {
		return err
	}
	if err := d.store.save(next, now); err != nil {
		return err
	}
	if err := d.enforce(ctx, p); err != nil {
		if back := d.store.save(d.added, now); back != nil {
			err = fmt.Errorf("%w; going back failed too: %w", err, back)
		}
		return err
	}
	d.added = next
	d.poke()
	return nil
}

// enforce puts p, made of the same config, in force at both gates or at none.
func (d *daemon) enforce(ctx context.Context, p *policy) error {
	few, many := d.policy.changes(p)
	// A block in the middle of an incident need not compile all rules.
	put := d.change
	if !d.policy.sameRules(p) {
		put = d.update
	}
	if err := put(ctx, p, few); err != nil {
		return err
	}
	d.policy = p
	d.fill(many)
	return nil
}

// change puts p in force, which differs in few prefixes only.
func (d *daemon) change(ctx context.Context, p *policy, few []netip.Prefix) error {
	err := d.give(ctx, p, few)
	if err == nil {
		return nil
	}
	if back := d.network.change(d.policy, few); back != nil {
		err = fmt.Errorf("%w; going back failed too: %w", err, back)
	}
	return err
}

// update puts p in force, whose rules differ.
func (d *daemon) update(ctx context.Context, p *policy, few []netip.Prefix) error {
	if err := d.network.update(p, few); err != nil {
		return err
	}
	err := d.http.apply(ctx, p.http())
	if err == nil {
		return nil
	}
	if back := d.network.update(d.policy, few); back != nil {
		err = fmt.Errorf("%w; going back failed too: %w", err, back)
	}
	return err
}

// kind is one of the two lists of prefixes.
type kind struct {
	name, done, remove string // block, blocked, unblock
	added              func(*state) *[]Entry
	imports            func(*state) *bulks
	live               func(*policy) []Entry
	many               func(*policy) bulks
}

var (
	blocks = kind{
		"block", "blocked", "unblock",
		func(s *state) *[]Entry { return &s.Blocks }, func(s *state) *bulks { return &s.BlockImports },
		func(p *policy) []Entry { return p.blocks }, func(p *policy) bulks { return p.manyBlocks },
	}
	allows = kind{
		"allow", "allowed", "disallow",
		func(s *state) *[]Entry { return &s.Allows }, func(s *state) *bulks { return &s.AllowImports },
		func(p *policy) []Entry { return p.allows }, func(p *policy) bulks { return p.manyAllows },
	}
)

// addEntry blocks or allows a prefix.
func (d *daemon) addEntry(ctx context.Context, k kind, q EntryRequest, who Origin) (EntryReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	who = who.at(q.Peer)
	e, err := newEntry(q, who, now)
	if err != nil {
		return EntryReply{}, err
	}
	if k.name == blocks.name && !q.Force {
		if err := d.policy.endangers(e.Prefix, d.guardFor(who)); err != nil {
			return EntryReply{}, refuse("not blocked: %v (add --force if you mean it)", err)
		}
	}
	before := d.added.live(now)
	next := before
	if q.AllHosts {
		next, err = d.said(next, k.saying(e, q.Force), e.End)
	} else {
		list := k.added(&next)
		*list = withEntry(*list, e)
	}
	if err != nil {
		return EntryReply{}, err
	}
	if err := d.commit(ctx, next, nothing); err != nil {
		return EntryReply{}, err
	}
	who.Why = q.Reason
	d.note(change{what: k.name, subject: short4(e.Prefix), detail: until(e, now) + onAll(q.AllHosts), who: who, patch: patchOf(before, d.added)})
	reply := EntryReply{Entry: remaining(latest(k.at(d.policy, e.Prefix), e.Prefix), now)}
	if endsAfter(reply.Entry, e) {
		reply.Warnings = append(reply.Warnings, fmt.Sprintf("%s is %s for longer already: to shorten it, %s it first", e.Prefix, k.done, k.remove))
	}
	if over := allows.covering(d.policy, e.Prefix); k.name == blocks.name && len(over) > 0 {
		reply.Warnings = append(reply.Warnings, fmt.Sprintf("%s is allowed by %s, and allow wins", e.Prefix, over[0].Prefix))
	}
	return reply, nil
}

// at returns the entries of exactly pre, also those that were imported.
func (k kind) at(p *policy, pre netip.Prefix) []Entry {
	return append(slices.Clip(at(k.live(p), pre)), k.many(p).at(pre)...)
}

// covering returns the entries whose prefix contains all of pre, the widest
// first.
func (k kind) covering(p *policy, pre netip.Prefix) []Entry {
	out := append(covering(k.live(p), pre), k.many(p).covering(pre)...)
	sortEntries(out)
	return out
}

func nothing(*policy) error { return nil }

// longestEntry bounds how long anything from the command line may last.
const longestEntry = 100 * 365 * 24 * time.Hour

func newEntry(q EntryRequest, who Origin, now time.Time) (Entry, error) {
	e := Entry{Prefix: q.Prefix, Reason: q.Reason, Origin: who}
	if err := checkPrefix(q.Prefix); err != nil {
		return e, err
	}
	if err := checkText("reason", q.Reason); err != nil {
		return e, err
	}
	if q.Ever == (q.For != 0) {
		return e, badInput("say for how many seconds, or forever, and not both")
	}
	if !q.Ever {
		if q.For < 1 || q.For > int64(longestEntry/time.Second) {
			return e, badInput("a time of %d s is not between 1 s and 100 years (forever has no end)", q.For)
		}
		e.End = now.Add(time.Duration(q.For) * time.Second)
	}
	return e, nil
}

// checkPrefix refuses what a gate cannot hold; the CLI has already told the
// user what is wrong in his spelling.
func checkPrefix(p netip.Prefix) error {
	if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
		return badInput("%q is no prefix such as 203.0.113.0/24 with its host bits clear", p)
	}
	return nil
}

// checkText keeps what is printed on other people's terminals to one line.
func checkText(what, s string) error {
	const most = 256
	if len(s) > most {
		return badInput("%s is longer than %d bytes", what, most)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }) {
		return badInput("%s has characters that do not print", what)
	}
	return nil
}

// removeEntry takes away the entries of exactly p that were added from the
// command line, and tells what covers p still: a block of a wider prefix is
// never touched.
func (d *daemon) removeEntry(ctx context.Context, k kind, q EntryRemoval, who Origin) (EntryReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := q.Prefix
	if err := checkPrefix(p); err != nil {
		return EntryReply{}, err
	}
	before := d.added.live(d.now())
	next, removed := before.without(k, q, d.now())
	if len(removed) == 0 {
		return EntryReply{}, d.notListed(k, q)
	}
	err := d.commit(ctx, next, func(next *policy) error {
		if peer := who.Peer.Unmap(); !q.Force && next.shuts(peer) && !d.policy.shuts(peer) {
			return refuse("not changed: without %s you are blocked yourself, at %s (unblock that first, or add --force if you mean it)", p, peer)
		}
		return nil
	})
	if err != nil {
		return EntryReply{}, err
	}
	d.note(change{what: k.remove, subject: short4(p), detail: told(removed) + onAll(q.AllHosts), who: who, patch: patchOf(before, d.added)})
	return EntryReply{
		Entry:   remaining(latest(removed, p), d.now()),
		Removed: len(removed),
		Covered: withRemaining(k.covering(d.policy, p), d.now()),
	}, nil
}

// without returns s without the entries that q means, and those.
func (s state) without(k kind, q EntryRemoval, now time.Time) (next state, removed []Entry) {
	if q.AllHosts {
		said := s.Posted.entries(k, q.Prefix, q.Reason, now)
		for _, n := range said {
			removed = append(removed, n.asEntry(k))
		}
		return s.unsaid(said), removed
	}
	list, many := k.added(&s), k.imports(&s)
	kept, removed := withoutEntries(*list, q.Prefix, q.Reason)
	keptMany, removedMany := many.withoutPrefix(q.Prefix, q.Reason)
	*list, *many = kept, keptMany
	return s, append(removed, removedMany...)
}

// onAll is what a record says of a change for all hosts.
func onAll(all bool) string {
	if all {
		return " on all hosts"
	}
	return ""
}

// notListed says why there was nothing to remove, and what would help.
func (d *daemon) notListed(k kind, q EntryRemoval) error {
	p, reason := q.Prefix, q.Reason
	cover := k.covering(d.policy, p)
	if q.AllHosts {
		if d.board == nil {
			return refuse("this host is in no fleet: leave --all-hosts out")
		}
		if slices.ContainsFunc(cover, func(e Entry) bool { return e.Prefix == p && e.From == FromCommand }) {
			return refuse("%s is %s on this host alone: headgate %s %s", p, k.done, k.remove, short4(p))
		}
		if len(cover) == 0 {
			return notThere("%s is not %s on all hosts", p, k.done)
		}
	}
	if len(cover) == 0 {
		return notThere("%s is not %s", p, k.done)
	}
	by := cover[0]
	for _, e := range cover {
		if e.Prefix == p && e.From == FromConfig {
			return refuse("%s is %s by the config: remove it from %s in %s", p, k.done, k.name, d.path)
		}
		if e.Prefix == p && e.From == FromFleet && !q.AllHosts {
			return refuse("%s is %s on all hosts of the fleet: headgate %s %s --all-hosts", p, k.done, k.remove, short4(p))
		}
		if e.Prefix == p && e.From == FromList {
			return refuse("%s is %s by the list %s: remove it there", p, k.done, e.By)
		}
		if e.Prefix == p && reason != nil {
			return notThere("%s is not %s with reason %q (see: headgate %ss)", p, k.done, *reason, k.name)
		}
		if endsAfter(e, by) {
			by = e
		}
	}
	if k.name == allows.name {
		return refuse("%s has no allow of its own: still covered by %s %s (headgate disallow %s)", p, by.Prefix, until(by, d.now()), by.Prefix)
	}
	return refuse("%s has no block of its own: still covered by %s %s. To let it through: headgate allow %s. To lift the whole range: headgate unblock %s",
		p, by.Prefix, until(by, d.now()), short4(p), by.Prefix)
}

// short4 writes a single address without its length.
func short4(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// until says when e ends, in words.
func until(e Entry, now time.Time) string {
	if e.End.IsZero() {
		return "for ever"
	}
	return "for another " + Span(remaining(e, now).EndsIn)
}

// told says in a few words what was removed.
func told(removed []Entry) string {
	if len(removed) == 1 {
		return removed[0].Reason
	}
	return fmt.Sprintf("%d entries", len(removed))
}

// latest returns the entry of exactly p that ends last.
func latest(list []Entry, p netip.Prefix) Entry {
	var out Entry
	for _, e := range list {
		if e.Prefix == p && (!out.Prefix.IsValid() || endsAfter(e, out)) {
			out = e
		}
	}
	return out
}

// remaining fills in how long e lasts from now, rounded up to seconds.
func remaining(e Entry, now time.Time) Entry {
	if !e.End.IsZero() {
		e.EndsIn = max(1, int64((e.End.Sub(now)+time.Second-1)/time.Second))
		e.End = e.End.Round(0).UTC().Truncate(time.Second)
	}
	return e
}

func withRemaining(list []Entry, now time.Time) []Entry {
	out := make([]Entry, len(list))
	for i, e := range list {
		out[i] = remaining(e, now)
	}
	return out
}

// addRule adds a rule, or replaces the added one of its name.
func (d *daemon) addRule(ctx context.Context, q RuleRequest, who Origin) (RuleReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	end, err := d.ruleEnd(q)
	if err != nil {
		return RuleReply{}, err
	}
	r, err := config.ParseRule("rule", []byte(q.Rule))
	if err != nil {
		return RuleReply{}, badInput("%v", err)
	}
	if err := config.CheckNames(d.policy.cfg, r); err != nil {
		return RuleReply{}, badInput("%v", err)
	}
	old, had := d.policy.find(r.Name)
	if had && old.origin.From == FromConfig {
		return RuleReply{}, refuse("rule %s is in the config: change it in %s, the daemon reloads by itself", r.Name, d.path)
	}
	if had && old.aside == "" && (old.origin.From == FromFleet) != q.AllHosts {
		where := map[bool]string{true: "on all hosts of the fleet", false: "on this host alone"}[!q.AllHosts]
		return RuleReply{}, refuse("rule %s was added %s: remove it first (headgate rule rm %s%s)", r.Name, where, r.Name, flagAll(!q.AllHosts))
	}
	who.Why = q.Why
	before := d.added.live(d.now())
	next, a := before, addedRule{Name: r.Name, Text: r.Text, End: end, Origin: who}
	if q.AllHosts {
		next, err = d.said(before, saying{Rule: &a, Force: q.Force}, end)
	} else {
		next = before.withRule(a)
	}
	if err != nil {
		return RuleReply{}, err
	}
	err = d.commit(ctx, next, func(p *policy) error {
		added, _ := p.find(r.Name)
		if added.aside != "" {
			return refuse("rule %s not added: %s", r.Name, added.aside)
		}
		if err := p.starves(added.Rule, d.guardFor(who)); err != nil && !q.Force {
			return refuse("rule not added: %v (or add --force if you mean it)", err)
		}
		return d.refuseHidden(p)
	})
	if err != nil {
		return RuleReply{}, err
	}
	now, _ := d.policy.find(r.Name)
	reply := RuleReply{Rule: d.wireRule(now)}
	if p := patchOf(before, d.added); p != nil {
		d.note(change{what: "rule add", subject: r.Name, detail: r.Text + onAll(q.AllHosts), who: who, patch: p})
	}
	if had {
		reply.Was, reply.Fresh = old.Text, identity(old.Rule) != identity(now.Rule)
	}
	if w := d.policy.idle(now.Rule); w != "" {
		reply.Warnings = append(reply.Warnings, w)
	}
	for _, h := range d.lookForTags(d.policy) {
		if h.rule.Name == now.Name {
			reply.Warnings = append(reply.Warnings, h.String())
		}
	}
	return reply, nil
}

// removeRule removes a rule that was added from the command line.
func (d *daemon) removeRule(ctx context.Context, name string, all bool, who Origin) (RuleReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if all {
		return d.unsayRule(ctx, name, who)
	}
	i := d.added.rule(name)
	if i < 0 {
		if r, ok := d.policy.find(name); ok && r.origin.From == FromFleet {
			return RuleReply{}, refuse("rule %s is on all hosts of the fleet: headgate rule rm %s --all-hosts", name, name)
		} else if ok {
			return RuleReply{}, refuse("rule %s is in the config: remove it from %s, the daemon reloads by itself", name, d.path)
		}
		return RuleReply{}, notThere("no rule %q (see: headgate rule ls)", name)
	}
	gone := liveRule{Rule: config.Rule{Name: name, Text: d.added.Rules[i].Text}, origin: d.added.Rules[i].Origin}
	if r, ok := d.policy.find(name); ok && r.origin.From == FromCommand {
		gone = r
	}
	before := d.added.live(d.now())
	if err := d.commit(ctx, before.withoutRule(name), nothing); err != nil {
		return RuleReply{}, err
	}
	d.note(change{what: "rule rm", subject: name, detail: gone.Text, who: who, patch: patchOf(before, d.added)})
	return RuleReply{Rule: d.wireRule(gone)}, nil
}

// ruleEnd checks what is asked for beside the rule itself, and returns its end.
func (d *daemon) ruleEnd(q RuleRequest) (time.Time, error) {
	if err := checkText("why", q.Why); err != nil || q.For == 0 {
		return time.Time{}, err
	}
	if q.For < 1 || q.For > int64(longestEntry/time.Second) {
		return time.Time{}, badInput("a time of %d s is not between 1 s and 100 years (without it a rule has no end)", q.For)
	}
	return d.now().Add(time.Duration(q.For) * time.Second), nil
}
