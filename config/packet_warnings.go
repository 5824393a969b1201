package config

import "slices"

// packets warns about what only rules of the network gate have.
func (w *warnings) packets(c *Config, r Rule) {
	if r.meetsNothing() {
		w.addf("rule %q does nothing: no packet has what it asks for: look at from, to, except and protocol", r.Name)
	}
	if r.Then != nil && r.Mode == Watch && c.Mode != Watch {
		w.addf("rule %q: then does nothing while the rule only watches", r.Name)
	}
	for i, o := range r.Overrides {
		if r.hides(i) {
			w.addf("rule %q: the override from %s does nothing: one before it covers all of it", r.Name, o.From)
		}
	}
}

// meetsNothing reports whether no packet can meet r, whatever lists hold.
func (r Rule) meetsNothing() bool {
	m := everyList(r.Match)
	for _, bits := range []int{addressBits4, addressBits6} {
		other := map[string]int{"icmp": addressBits6, "icmpv6": addressBits4}[m.Protocol]
		if _, some := boxOf(&m, bits); some && bits != other {
			return false
		}
	}
	return true
}

// hides reports whether the overrides before i cover all of it.
func (r Rule) hides(i int) bool {
	own := r.Overrides[i].From
	before := Addresses{}
	for _, o := range r.Overrides[:i] {
		before.Prefixes = append(before.Prefixes, o.From.Prefixes...)
		before.Lists = append(before.Lists, o.From.Lists...)
	}
	for _, name := range own.Lists {
		if !slices.Contains(before.Lists, name) {
			return false
		}
	}
	for _, bits := range []int{addressBits4, addressBits6} {
		if len(without(prefixSpans(own.Prefixes, bits), prefixSpans(before.Prefixes, bits))) > 0 {
			return false
		}
	}
	return true
}

// everyList returns m as it is when its lists hold as much as helps it.
func everyList(m Match) Match {
	if len(m.From.Lists) > 0 {
		m.From = Addresses{}
	}
	if len(m.To.Lists) > 0 {
		m.To = Addresses{}
	}
	m.Except.Lists = nil
	return m
}

// lists warns about lists that nothing names, and about rules that go together
// only as long as their lists do not overlap.
func (w *warnings) lists(c *Config) {
	used := slices.Concat(c.AllowLists, c.BlockLists)
	crowded := make([]placed, len(c.Rules))
	for i, r := range c.Rules {
		used = append(used, r.Lists()...)
		r.Match = everyList(r.Match)
		crowded[i] = placed{Rule: r, ok: true}
	}
	for _, l := range c.Lists {
		if !slices.Contains(used, l.Name) {
			w.addf("list %q is named nowhere: name it in block, allow or a rule", l.Name)
		}
	}
	if len(c.Lists) == 0 {
		return
	}
	for _, f := range crowds(crowded) {
		w.addf("should lists overlap, the rules are refused: %s", f.msg)
	}
}
