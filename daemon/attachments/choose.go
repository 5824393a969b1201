package attachments

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/config"
)

// pick is one interface that network.interfaces stands for, or an item of it
// that stands for none.
type pick struct {
	nic             // the zero nic: there is none, and name is the item
	explicit bool   // named, not matched
	fault    string // why it is not to be attached
	note     string // what its owner should know all the same
	fatal    bool   // the fault is in the config, not in what there is
}

// choose says which interfaces the items of network.interfaces stand for among
// s, in their order. held are the indices of those that are attached.
//
// A packet must be judged once. Of two interfaces that both see it, a bond and
// its member or a VLAN device and its parent, one is attached: the one that is
// named before one that a pattern matches, then the one that is attached
// already, then the bond before its members and the parent before what rides
// on it. left says of each interface that only patterns stand for why it is left
// out.
func choose(items []string, s Surroundings, held map[int]bool) (picks []pick, left []string) {
	picks = expand(items, s, held)
	order := make([]int, len(picks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return s.rank(picks[a], held) - s.rank(picks[b], held) })
	var taken []nic
	for _, i := range order {
		p := &picks[i]
		if p.index == 0 || p.fault != "" {
			continue
		}
		rival, found := s.rival(p.nic, taken)
		if !found {
			taken = append(taken, p.nic)
			continue
		}
		p.fault = s.relation(p.nic, rival) + ", and both are named: a packet would be judged twice; name one of them in network.interfaces"
		p.fatal = p.explicit && explicitly(picks, rival.index)
		if !p.fatal {
			left = append(left, fmt.Sprintf("%s is left out: %s, and a packet would be judged twice", p.name, s.relation(p.nic, rival)))
		}
	}
	picks = slices.DeleteFunc(picks, func(p pick) bool { return p.index != 0 && p.fault != "" && !p.fatal })
	for i := range picks {
		picks[i].note = s.lonely(picks[i], taken)
	}
	return picks, left
}

// expand finds what each item stands for.
func expand(items []string, s Surroundings, held map[int]bool) []pick {
	var picks []pick
	add := func(n nic, explicit bool) {
		i := slices.IndexFunc(picks, func(p pick) bool { return p.index == n.index })
		if i < 0 {
			picks = append(picks, pick{nic: n, explicit: explicit})
			return
		}
		picks[i].explicit = picks[i].explicit || explicit
	}
	for _, item := range items {
		before := len(picks)
		found := false
		for _, n := range s.nics {
			if s.standsFor(item, n, held) {
				found = true
				add(n, item == n.name)
			}
		}
		slices.SortStableFunc(picks[before:], func(a, b pick) int { return strings.Compare(a.name, b.name) })
		if !found {
			picks = append(picks, pick{nic: nic{name: item}, fault: s.missing(item)})
		}
	}
	return picks
}

// standsFor reports whether an item stands for n. While there is no default
// route at all, as during a change of address, auto keeps what is attached.
func (s Surroundings) standsFor(item string, n nic, held map[int]bool) bool {
	if item != config.AutoInterfaces {
		return config.MatchesInterface(item, n.name)
	}
	if len(s.routes) == 0 {
		return held[n.index]
	}
	return slices.ContainsFunc(s.routes, func(r defaultHop) bool { return r.index == n.index })
}

// missing words that an item stands for nothing.
func (s Surroundings) missing(item string) string {
	switch {
	case item == config.AutoInterfaces:
		return "there is no default route: waiting for one"
	case config.IsPattern(item):
		return fmt.Sprintf("no interface matches: waiting for one (there is %s)", s.names())
	}
	return fmt.Sprintf("no such interface: waiting for it (there is %s)", s.names())
}

func (s Surroundings) names() string {
	names := make([]string, len(s.nics))
	for i, n := range s.nics {
		names[i] = n.name
	}
	slices.Sort(names)
	const shown = 12
	if more := len(names) - shown; more > 0 {
		names = append(names[:shown:shown], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

func explicitly(picks []pick, index int) bool {
	return slices.ContainsFunc(picks, func(p pick) bool { return p.index == index && p.explicit })
}

// rank orders who is attached where two would see the same packet; the lowest
// first.
func (s Surroundings) rank(p pick, held map[int]bool) int {
	const named, attached, member = 1000, 500, 100
	r := 0
	if !p.explicit {
		r += named
	}
	if !held[p.index] {
		r += attached
	}
	if m, ok := s.byIndex(p.master); ok && isBond(m.kind) {
		return r + member
	}
	if isBond(p.kind) {
		return r
	}
	return r + min(len(s.below(p.nic)), member-1)
}

// rival finds among taken one that sees packets of n too.
func (s Surroundings) rival(n nic, taken []nic) (nic, bool) {
	for _, t := range taken {
		if slices.Contains(s.below(n), t.index) || slices.Contains(s.below(t), n.index) {
			return t, true
		}
	}
	return nic{}, false
}

// below returns the indices of all interfaces whose frames come in by n too:
// the parent that it rides on, its members, and theirs.
func (s Surroundings) below(n nic) []int {
	var all []int
	todo := []nic{n}
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		for _, x := range s.nics {
			under := x.index == at.parent || x.master == at.index && slices.Contains(unions, at.kind)
			if under && x.index != n.index && !slices.Contains(all, x.index) {
				all, todo = append(all, x.index), append(todo, x)
			}
		}
	}
	return all
}

// relation says how n and other, one of which is below the other, hang together.
func (s Surroundings) relation(n, other nic) string {
	switch {
	case n.master == other.index:
		return fmt.Sprintf("%s is a member of %s %s", n.name, other.kind, other.name)
	case other.master == n.index:
		return fmt.Sprintf("%s %s has %s as a member", n.kind, n.name, other.name)
	case slices.Contains(s.below(n), other.index):
		return fmt.Sprintf("%s rides on %s", n.name, other.name)
	}
	return fmt.Sprintf("%s rides on %s", other.name, n.name)
}

// lonely says what a member of a bond leaves out when other members are not
// attached.
func (s Surroundings) lonely(p pick, taken []nic) string {
	m, ok := s.byIndex(p.master)
	if !ok || p.index == 0 || p.fault != "" || !isBond(m.kind) {
		return ""
	}
	for _, x := range s.nics {
		if x.master == m.index && !slices.ContainsFunc(taken, func(t nic) bool { return t.index == x.index }) {
			return fmt.Sprintf("%s is a member of %s %s, whose packets also come in by %s unfiltered: name %s instead", p.name, m.kind, m.name, x.name, m.name)
		}
	}
	return ""
}
