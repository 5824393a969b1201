package daemon

import (
	"maps"
	"slices"

	"github.com/headgate/headgate/daemon/attachments"
	gate "github.com/headgate/headgate/maps"
)

// inlets are, by name, where packets of interfaces come in that are there now.
type inlets map[string][]gate.Inlet

// inletsFor returns those of all interfaces that rules of p name.
func inletsFor(p *policy, s attachments.Surroundings) inlets {
	all := inlets{}
	for _, r := range p.networkRules() {
		for _, name := range r.Match.Interfaces {
			if in := s.Inlets(name); len(in) > 0 {
				all[name] = in
			}
		}
	}
	return all
}

// inletsOf answers the gate while it compiles rules.
func (n *network) inletsOf(name string) ([]gate.Inlet, error) { return n.inlets[name], nil }

// followInlets loads the rules again when packets of an interface that they name
// come in otherwise than before: it has another index, or a bond has other
// members. A failure is tried again at the next change.
func (n *network) followInlets(s attachments.Surroundings) error {
	if n.ruled == nil {
		return nil
	}
	if maps.EqualFunc(n.inlets, inletsFor(n.ruled, s), slices.Equal) {
		return nil
	}
	return n.loadRulesAt(n.ruled, s)
}
