package daemon

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon/attachments"
	"github.com/headgate/headgate/daemon/preflight"
)

// hiddenTag is a rule that asks for a VLAN at an interface where the tag does
// not reach the network gate.
type hiddenTag struct {
	rule liveRule
	*preflight.Hidden
}

func (h hiddenTag) String() string { return fmt.Sprintf("rule %s: %s", h.rule.Name, h.Hidden.Error()) }

// hiddenTags finds them among the rules of p, where interfaces are attached. look
// asks about an interface.
func hiddenTags(p *policy, s attachments.Surroundings, interfaces []string, look func(string) *preflight.Hidden) []hiddenTag {
	var found []hiddenTag
	asked := map[string]*preflight.Hidden{}
	for _, r := range p.rules {
		if r.Gate != config.GateNetwork {
			continue
		}
		for _, name := range interfaces {
			if !s.NeedsTag(&r.Match, name) {
				continue
			}
			h, known := asked[name]
			if !known {
				h = look(name)
				asked[name] = h
			}
			if h != nil {
				found = append(found, hiddenTag{r, h})
			}
		}
	}
	return found
}

// lookForTags is hiddenTags of the interfaces that there are.
func (d *daemon) lookForTags(p *policy) []hiddenTag {
	if !slices.ContainsFunc(p.rules, func(r liveRule) bool { return len(r.Match.VLANs)+len(r.Match.Interfaces) > 0 }) {
		return nil
	}
	s, err := attachments.Survey()
	if err != nil {
		return nil
	}
	choices, _, err := attachments.Choose(p.cfg)
	if err != nil {
		return nil
	}
	var names []string
	for _, c := range choices {
		names = append(names, c.Interface)
	}
	return hiddenTags(p, s, names, func(name string) *preflight.Hidden {
		f, err := preflight.Look(name)
		if err != nil {
			return nil
		}
		return f.HidesTags()
	})
}

// refuseHidden refuses a rule that is not in force yet and would never match,
// as a network card takes the tags out. Of what is in force already, and of
// what a start finds, warnings tell: no filter at all is worse.
func (d *daemon) refuseHidden(next *policy) error {
	for _, h := range d.lookForTags(next) {
		old, had := d.policy.find(h.rule.Name)
		if h.Sure && !(had && old.Text == h.rule.Text) {
			return refuse("%s", h)
		}
	}
	return nil
}

// tagWarnings tells of rules in force that may not see the tags that they ask
// for.
func (d *daemon) tagWarnings(p *policy) []string {
	var out []string
	for _, h := range d.lookForTags(p) {
		out = append(out, h.String())
	}
	return out
}
