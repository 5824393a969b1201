package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/config"
)

// OverrideRequest asks for other figures for some of a rule's clients, or puts
// them in the place of those that were given to the same before.
type OverrideRequest struct {
	Rule  string `json:"rule"`
	Whom         // all that is given must fit
	Rate  string `json:"rate,omitempty"` // of the rule's kind: a rate, with its burst, a limit or a quota
	Burst string `json:"burst,omitempty"`
	Limit string `json:"limit,omitempty"`
	Quota string `json:"quota,omitempty"`
	Until string `json:"until,omitempty"` // a date, its last day, or a moment; empty: for ever
	Why   string `json:"why,omitempty"`
	Force bool   `json:"force,omitempty"` // also where it stops the asker's own session

	AllHosts bool `json:"all_hosts,omitempty"` // of the fleet, and not on this one alone
}

// Whom says whom an override is for.
type Whom struct {
	Owner  string   `json:"owner,omitempty"`
	Tenant string   `json:"tenant,omitempty"`
	Plan   string   `json:"plan,omitempty"`
	User   string   `json:"user,omitempty"`
	Key    string   `json:"key,omitempty"` // how the key's SHA-256 begins
	From   []string `json:"from,omitempty"`
}

// Override is one that was added from the command line.
type Override struct {
	Rule   string    `json:"rule"`
	Whom   string    `json:"whom"` // as the configuration writes it
	Text   string    `json:"text"` // the same, with figures
	End    time.Time `json:"end,omitzero"`
	EndsIn int64     `json:"ends_in,omitempty"` // seconds, rounded up; 0: never
	Aside  string    `json:"aside,omitempty"`   // why it is not in force
	Origin
}

// Overrides is the answer to GET /v1/overrides.
type Overrides struct {
	Overrides []Override `json:"overrides"`
}

// OverrideReply is what came of adding or removing one.
type OverrideReply struct {
	Override Override `json:"override"`
	Was      string   `json:"was,omitempty"` // text of the one it replaced
	RuleText string   `json:"rule_text"`     // of the rule, as it is now
	Warnings []string `json:"warnings,omitempty"`

	Fleet *FleetReply `json:"fleet,omitempty"` // of a change for all hosts
}

// addedOverride is kept as text and read again at each start. Its end is a time
// of the wall clock, whatever that does: a contract ends on a day.
type addedOverride struct {
	Rule string    `json:"rule"`
	Whom string    `json:"whom"`
	Text string    `json:"text"`
	End  time.Time `json:"end,omitzero"`
	Origin
}

// override returns the index of the override of a rule for whom, or -1.
func (s state) override(rule, whom string) int {
	return slices.IndexFunc(s.Overrides, func(o addedOverride) bool { return o.Rule == rule && o.Whom == whom })
}

// withOverride returns s with o added, or in the place of the one for the same.
func (s state) withOverride(o addedOverride) state {
	s.Overrides = slices.Clone(s.Overrides)
	if i := s.override(o.Rule, o.Whom); i >= 0 {
		s.Overrides[i] = o
		return s
	}
	s.Overrides = append(s.Overrides, o)
	return s
}

func (s state) withoutOverride(rule, whom string) state {
	s.Overrides = slices.DeleteFunc(slices.Clone(s.Overrides), func(o addedOverride) bool { return o.Rule == rule && o.Whom == whom })
	return s
}

// liveOverride is one as it stands in a policy.
type liveOverride struct {
	addedOverride
	aside string // why it is not in force
}

// override gives the rules of p what was added to them; what does not go with
// its rule is set aside. The one that was added last comes first.
func (p *policy) override(added []addedOverride) {
	more := map[string][]config.Override{}
	for _, a := range slices.Backward(added) {
		live := liveOverride{addedOverride: a}
		if r, ok := p.find(a.Rule); !ok || r.aside != "" {
			live.aside = "there is no such rule in force"
		} else if o, err := r.ParseOverride("override", []byte(a.Text)); err != nil {
			live.aside = "it does not go with the rule: " + oneLine(err)
		} else {
			more[a.Rule] = append(more[a.Rule], o)
		}
		p.overrides = append(p.overrides, live)
	}
	for i, r := range p.rules {
		p.rules[i].Rule = r.WithOverrides(more[r.Name])
	}
}

// oneLine is err without positions, which mean nothing where no file was read.
func oneLine(err error) string {
	var list config.Errors
	if !errors.As(err, &list) {
		return err.Error()
	}
	var lines []string
	for _, e := range list {
		lines = append(lines, e.Msg)
	}
	return strings.Join(lines, "; ")
}

// parse reads q as an override of r.
func (q OverrideRequest) parse(r config.Rule) (config.Override, error) {
	fields := map[string]any{}
	for key, v := range map[string]string{
		"owner": q.Owner, "tenant": q.Tenant, "plan": q.Plan, "user": q.User, "key": q.Key,
		"rate": q.Rate, "burst": q.Burst, "limit": q.Limit, "quota": q.Quota, "until": q.Until, "why": q.Why,
	} {
		if v != "" {
			fields[key] = v
		}
	}
	if len(q.From) > 0 {
		fields["from"] = q.From
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return config.Override{}, err
	}
	o, err := r.ParseOverride("override", data)
	if err != nil {
		return o, badInput("%s", oneLine(err))
	}
	return o, nil
}

func (d *daemon) addOverride(ctx context.Context, q OverrideRequest, who Origin) (OverrideReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkText("reason", q.Why); err != nil {
		return OverrideReply{}, err
	}
	r, ok := d.policy.find(q.Rule)
	if !ok || r.aside != "" {
		return OverrideReply{}, notThere("no rule %q in force (see: headgate rule ls)", q.Rule)
	}
	o, err := q.parse(r.Rule)
	if err != nil {
		return OverrideReply{}, err
	}
	if ended(o.Until, d.now()) {
		return OverrideReply{}, badInput("until %s is over already", q.Until)
	}
	who.Why = q.Why
	a := addedOverride{Rule: r.Name, Whom: o.Whom(), Text: o.Text(r.Rule), End: o.Until, Origin: who}
	before := d.added.live(d.now())
	next := before
	if q.AllHosts {
		next, err = d.said(before, saying{Override: &a, Force: q.Force}, a.End)
	} else {
		next = before.withOverride(a)
	}
	if err != nil {
		return OverrideReply{}, err
	}
	err = d.commit(ctx, next, func(p *policy) error {
		now, _ := p.find(r.Name)
		if err := p.starves(now.Rule, d.guardFor(who)); err != nil && !q.Force {
			return refuse("override not added: %v (or add --force if you mean it)", err)
		}
		return nil
	})
	if err != nil {
		return OverrideReply{}, err
	}
	reply := OverrideReply{Override: d.wireOverride(liveOverride{addedOverride: a})}
	if i := before.override(a.Rule, a.Whom); i >= 0 {
		reply.Was = before.Overrides[i].Text
	}
	now, _ := d.policy.find(r.Name)
	reply.RuleText = now.Text
	if slices.ContainsFunc(r.Overrides, func(o config.Override) bool { return o.Whom() == a.Whom }) && reply.Was == "" {
		reply.Warnings = append(reply.Warnings, "it stands before the rule's own override for the same until it is removed")
	}
	d.note(change{what: "override add", subject: a.Rule, detail: a.Text + onAll(q.AllHosts), who: who, patch: patchOf(before, d.added)})
	return reply, nil
}

func (d *daemon) removeOverride(ctx context.Context, rule string, w Whom, all bool, who Origin) (OverrideReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	whom, err := w.words()
	if err != nil {
		return OverrideReply{}, err
	}
	if all {
		return d.unsayOverride(ctx, rule, whom, who)
	}
	i := d.added.override(rule, whom)
	if i < 0 {
		if n := d.added.saidOverride(rule, whom); n != nil {
			return OverrideReply{}, refuse("the override of %s for %s is on all hosts of the fleet: add --all-hosts", rule, whom)
		}
		r, _ := d.policy.find(rule)
		if slices.ContainsFunc(r.Overrides, func(o config.Override) bool { return o.Whom() == whom }) {
			return OverrideReply{}, refuse("the override of %s for %s is the rule's own: change the rule", rule, whom)
		}
		return OverrideReply{}, notThere("no override of %s for %s (see: headgate override ls)", rule, whom)
	}
	gone, before := d.added.Overrides[i], d.added.live(d.now())
	if err := d.commit(ctx, before.withoutOverride(rule, whom), nothing); err != nil {
		return OverrideReply{}, err
	}
	d.note(change{what: "override rm", subject: rule, detail: gone.Text, who: who, patch: patchOf(before, d.added)})
	now, _ := d.policy.find(rule)
	return OverrideReply{Override: d.wireOverride(liveOverride{addedOverride: gone}), RuleText: now.Text}, nil
}

// words is w as config.Override.Whom has it.
func (w Whom) words() (string, error) {
	o := config.Override{Owner: w.Owner, Tenant: w.Tenant, Plan: w.Plan, User: w.User, Key: strings.ToLower(w.Key)}
	for _, s := range w.From {
		p, err := config.ParsePrefix(s)
		if err != nil {
			return "", badInput("%v", err)
		}
		o.From.Prefixes = append(o.From.Prefixes, p)
	}
	if o.Whom() == "" {
		return "", badInput("say whose override: owner, tenant, plan, user, key or from")
	}
	return o.Whom(), nil
}

func (d *daemon) wireOverride(o liveOverride) Override {
	e := remaining(Entry{End: o.End}, d.now())
	return Override{Rule: o.Rule, Whom: o.Whom, Text: o.Text, End: e.End, EndsIn: e.EndsIn, Aside: o.aside, Origin: o.Origin}
}

func (d *daemon) overrides() Overrides {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := Overrides{Overrides: []Override{}}
	for _, o := range d.policy.overrides {
		if !ended(o.End, d.now()) {
			all.Overrides = append(all.Overrides, d.wireOverride(o))
		}
	}
	return all
}

func (d *daemon) handleOverrides(m *http.ServeMux) {
	m.Handle("GET /v1/overrides", answerWith(d.log, func(*http.Request) (any, error) { return d.overrides(), nil }))
	m.Handle("POST /v1/overrides", answerWith(d.log, func(r *http.Request) (any, error) {
		var q OverrideRequest
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		reply, err := d.addOverride(r.Context(), q, who(r, d.now()))
		if err == nil && q.AllHosts {
			reply.Fleet = d.tell(r.Context())
		}
		return reply, err
	}))
	m.Handle("DELETE /v1/overrides", answerWith(d.log, func(r *http.Request) (any, error) {
		q := r.URL.Query()
		w := Whom{Owner: q.Get("owner"), Tenant: q.Get("tenant"), Plan: q.Get("plan"), User: q.Get("user"), Key: q.Get("key"), From: q["from"]}
		reply, err := d.removeOverride(r.Context(), q.Get("rule"), w, forAllHosts(r), who(r, d.now()))
		if err == nil && forAllHosts(r) {
			reply.Fleet = d.tell(r.Context())
		}
		return reply, err
	}))
}

// overridePatch is the part of one override in a change; nil where there was,
// or is, none.
type overridePatch struct {
	Was *addedOverride `json:"was,omitempty"`
	Is  *addedOverride `json:"is,omitempty"`
}

func overridePatches(a, b state) (out []overridePatch) {
	for _, o := range a.Overrides {
		if i := b.override(o.Rule, o.Whom); i < 0 {
			out = append(out, overridePatch{Was: &o})
		} else if is := b.Overrides[i]; is.Text != o.Text || !is.At.Equal(o.At) {
			out = append(out, overridePatch{Was: &o, Is: &is})
		}
	}
	for _, o := range b.Overrides {
		if a.override(o.Rule, o.Whom) < 0 {
			out = append(out, overridePatch{Is: &o})
		}
	}
	return out
}

func (p overridePatch) takeBack(s state) (state, error) {
	of := p.Is
	if of == nil {
		of = p.Was
	}
	i := s.override(of.Rule, of.Whom)
	switch {
	case p.Is == nil && i >= 0, p.Is != nil && (i < 0 || s.Overrides[i].Text != p.Is.Text || !s.Overrides[i].At.Equal(p.Is.At)):
		return s, fmt.Errorf("the override of %s for %s is no longer as that change left it: it ended, or was changed since", of.Rule, of.Whom)
	case p.Was == nil:
		return s.withoutOverride(of.Rule, of.Whom), nil
	}
	return s.withOverride(*p.Was), nil
}
