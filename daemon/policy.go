package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/maps"
)

// policy is what is in force: the config and what was added from the command
// line, joined. It is made anew for each change and never altered.
type policy struct {
	cfg    *config.Config
	rules  []liveRule // in force, the file's first
	aside  []liveRule // added from the command line and not in force, with the cause
	blocks []Entry
	allows []Entry

	unheard   []*notice      // said to all hosts, and not in force on this one
	overrides []liveOverride // added from the command line, those in force and those aside; the latest first

	manyBlocks bulks // what files brought in at once, beside blocks
	manyAllows bulks
	named      map[string][]netip.Prefix // what the config's lists hold; rules name them
	hosts      int                       // of the fleet, as last heard
}

type liveRule struct {
	config.Rule
	origin Origin
	end    time.Time // zero: never
	aside  string
}

// merge joins cfg and what was added. A rule of the file wins over an added
// one of the same name, which is how a rule moves from the command line into
// the file. An added rule that does not go with the rest is set aside: a daemon
// that would not start for it would leave nobody to ask for its removal.
func merge(cfg *config.Config, added state, named map[string][]netip.Prefix) (*policy, error) {
	p := newPolicy(cfg, added, named)
	if err := config.CheckRules(p.configRules("")); err != nil {
		return nil, &ConfigError{err}
	}
	var sound []liveRule
	for _, a := range added.Rules {
		if r := p.read(a); r.aside != "" {
			p.aside = append(p.aside, r)
		} else {
			sound = append(sound, r)
		}
	}
	p.admit(sound)
	p.hear(added.said)
	p.override(slices.Concat(said(added.said), added.Overrides))
	return p, nil
}

// admit puts rules in force in their order, each that goes with those before it;
// the others it sets aside. Rules that do not go together do so with no further
// one either, so all are tried at once first, then halves: a thousand rules of
// which all go cost one check.
func (p *policy) admit(rules []liveRule) {
	if len(rules) == 0 {
		return
	}
	before := p.rules
	p.rules = slices.Concat(before, rules)
	err := config.CheckRules(p.configRules(""))
	if err == nil {
		return
	}
	p.rules = before
	if len(rules) == 1 {
		rules[0].aside = err.Error()
		p.aside = append(p.aside, rules[0])
		return
	}
	half := len(rules) / 2
	p.admit(rules[:half])
	p.admit(rules[half:])
}

// loses says which rule that is in force now would be set aside in next.
func (p *policy) loses(next *policy) error {
	for _, r := range next.aside {
		if p.has(r.Name) && !next.has(r.Name) {
			return fmt.Errorf("rule %s, added from the command line, does not go with it: %s (headgate rule rm %s)", r.Name, r.aside, r.Name)
		}
	}
	return nil
}

func newPolicy(cfg *config.Config, added state, named map[string][]netip.Prefix) *policy {
	p := &policy{
		cfg: cfg, named: named, hosts: added.Posted.Hosts,
		blocks:     entries(cfg.Block, added.Blocks),
		allows:     entries(cfg.Allow, added.Allows),
		manyBlocks: append(ofLists(cfg.BlockLists, named), added.BlockImports...),
		manyAllows: append(ofLists(cfg.AllowLists, named), added.AllowImports...),
	}
	for _, r := range cfg.Rules {
		p.rules = append(p.rules, liveRule{Rule: r, origin: Origin{From: FromConfig}})
	}
	return p
}

// read reads one added rule, which is to be set aside when the file has one of
// its name or when it no longer reads.
func (p *policy) read(a addedRule) liveRule {
	r, err := config.ParseRule("rule "+a.Name, []byte(a.Text))
	live := liveRule{Rule: r, origin: a.Origin, end: a.End}
	switch {
	case err != nil:
		live.Rule = config.Rule{Name: a.Name, Text: a.Text}
		live.aside = "it does not read: " + err.Error()
	case slices.ContainsFunc(p.cfg.Rules, func(r config.Rule) bool { return r.Name == a.Name }):
		live.aside = "the config has a rule of this name"
	case p.has(a.Name):
		live.aside = "this host has a rule of this name"
	}
	if live.aside == "" && p.cfg.Mode == config.Watch {
		live.Mode = config.Watch
	}
	return live
}

func (p *policy) has(name string) bool {
	return slices.ContainsFunc(p.rules, func(r liveRule) bool { return r.Name == name })
}

// find returns the rule of that name, the one in force first.
func (p *policy) find(name string) (liveRule, bool) {
	for _, r := range slices.Concat(p.rules, p.aside) {
		if r.Name == name {
			return r, true
		}
	}
	return liveRule{}, false
}

// configRules returns the rules of one gate; of both for the empty gate.
func (p *policy) configRules(g config.Gate) []config.Rule {
	var out []config.Rule
	for _, r := range p.rules {
		if g == "" || r.Gate == g {
			out = append(out, r.Rule)
		}
	}
	return out
}

// entries joins prefixes of the file, which never end, and added ones.
func entries(file []netip.Prefix, added []Entry) []Entry {
	out := make([]Entry, 0, len(file)+len(added))
	for _, p := range file {
		out = append(out, Entry{Prefix: p, Origin: Origin{From: FromConfig}})
	}
	out = append(out, added...)
	sortEntries(out)
	return out
}

// ends returns for each prefix its latest end, the zero time for none.
func ends(list []Entry) map[netip.Prefix]time.Time {
	latest := make(map[netip.Prefix]Entry, len(list))
	for _, e := range list {
		if old, ok := latest[e.Prefix]; !ok || endsAfter(e, old) {
			latest[e.Prefix] = e
		}
	}
	out := make(map[netip.Prefix]time.Time, len(latest))
	for p, e := range latest {
		out[p] = e.End
	}
	return out
}

// ofLists returns what the named lists hold.
func ofLists(names []string, named map[string][]netip.Prefix) bulks {
	var out bulks
	for _, name := range names {
		out = append(out, &bulk{Origin: Origin{From: FromList, By: name}, prefixes: named[name]})
	}
	return out
}

// prefixes returns each prefix of list once, in order.
func prefixes(list []Entry) []netip.Prefix {
	var out []netip.Prefix
	for _, e := range list {
		if len(out) == 0 || out[len(out)-1] != e.Prefix {
			out = append(out, e.Prefix)
		}
	}
	return out
}

// lists is the policy as the network gate takes it.
func (p *policy) lists() maps.Lists {
	return maps.Lists{
		Management: p.cfg.Network.Management.Sources,
		Allow:      append(prefixes(p.allows), p.manyAllows.prefixes()...),
		Block:      p.blockEnds(),
	}
}

// blockEnds returns for each blocked prefix its latest end.
func (p *policy) blockEnds() map[netip.Prefix]time.Time {
	all := ends(p.blocks)
	for _, b := range p.manyBlocks {
		for _, pre := range b.left() {
			if end, ok := all[pre]; !ok || endsAfter(Entry{End: b.End}, Entry{End: end}) {
				all[pre] = b.End
			}
		}
	}
	return all
}

// http is the policy as the HTTP gate takes it.
func (p *policy) http() l7.Policy {
	return l7.Policy{
		HTTP:  p.cfg.HTTP,
		Fleet: p.fleet(),
		Rules: p.configRules(config.GateHTTP),
		Allow: append(prefixes(p.allows), p.manyAllows.prefixes()...),
		Block: append(prefixes(p.blocks), p.manyBlocks.prefixes()...),
	}
}

// fleet is the config's, with as many hosts as are known.
func (p *policy) fleet() *config.Fleet {
	if p.cfg.Fleet == nil {
		return nil
	}
	f := *p.cfg.Fleet
	f.Hosts = max(f.Hosts, p.hosts)
	return &f
}

// warnings says what is probably not meant.
func (p *policy) warnings() []string {
	out := config.Warnings(p.cfg)
	for _, r := range p.rules {
		if w := p.idle(r.Rule); w != "" && r.origin.From == FromCommand {
			out = append(out, w)
		}
	}
	for _, r := range p.aside {
		out = append(out, fmt.Sprintf("rule %s, added from the command line, is not in force: %s", r.Name, r.aside))
	}
	for _, n := range p.unheard {
		what, subject, _ := n.says.words()
		out = append(out, fmt.Sprintf("%s, said to all hosts, is not in force on this one: %s", strings.TrimSpace(firstOf(what, "something")+" "+subject), n.Aside))
	}
	for _, o := range p.overrides {
		if o.aside != "" {
			out = append(out, fmt.Sprintf("the override of rule %s for %s is not in force: %s", o.Rule, o.Whom, o.aside))
		}
	}
	return out
}

// idle says why r does nothing, if its gate is off.
func (p *policy) idle(r config.Rule) string {
	switch {
	case r.Gate == config.GateNetwork && len(p.cfg.Network.Interfaces) == 0:
		return fmt.Sprintf("rule %s does nothing: the network gate is off (name network.interfaces)", r.Name)
	case r.Gate == config.GateHTTP && len(p.cfg.HTTP.Listeners) == 0:
		return fmt.Sprintf("rule %s does nothing: the HTTP gate is off (name http.listen and http.upstream)", r.Name)
	}
	return ""
}

// identity is what a rule's buckets belong to; a change of it starts them full.
func identity(r config.Rule) string {
	return fmt.Sprint(r.Gate, r.Per, r.SourceBits4, r.SourceBits6, r.Algorithm, r.Rate.Unit)
}
