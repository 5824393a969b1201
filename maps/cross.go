package maps

import (
	"fmt"
	"slices"
	"strings"
)

// crossState is one state of the crossing: which pieces of several dimensions
// still match, and the packet that meets the most limits on the way there.
type crossState struct {
	alive []int32
	worst [2]*meeting // of IPv4, of IPv6; nil: no packet gets here
}

// meeting is a packet that meets limits: its class in each dimension so far.
type meeting struct {
	limits  int
	classes []int
}

// cross writes the sets of every dimension, and the tables that lead from
// dimension to dimension for pieces that ask in several. A set of rules that
// could meet in more than ruleLimits limits on one packet is refused.
func (t *tables) cross(pieces []piece, dims []dimension) error {
	states := []crossState{{worst: [2]*meeting{{}, {}}}}
	for i := range pieces {
		if len(pieces[i].asks) > 1 {
			states[0].alive = append(states[0].alive, int32(i))
		}
	}
	next := uint32(0) // the first free cell
	for _, d := range dims {
		alone, err := t.addSets(pieces, d)
		if err != nil {
			return err
		}
		width := len(d.members)
		if !crosses(pieces, d) {
			stay(states, d, alone)
			continue
		}
		if uint64(next)+uint64(len(states))*uint64(width) > maxCells {
			return fmt.Errorf("the rules combine too many prefixes, ports and other fields with each other: %d × %d; split fewer rules by several fields", len(states), width)
		}
		t.plan.Crossed |= 1 << d.id
		t.plan.Cells[d.id], t.plan.Width[d.id] = next, uint32(width)
		states = t.step(pieces, states, d, alone)
		next = uint32(len(t.crossings))
		if len(states) > maxSets {
			return fmt.Errorf("the rules combine into more than %d kinds of packet: split fewer rules by several fields", maxSets)
		}
	}
	return t.finish(pieces, dims, states)
}

// crosses tells whether a piece of several dimensions asks in d.
func crosses(pieces []piece, d dimension) bool {
	return slices.ContainsFunc(pieces, func(p piece) bool { return len(p.asks) > 1 && slices.Contains(p.asks, d.id) })
}

// addSets writes the sets of a dimension's classes: the pieces that ask in it
// alone. It returns how many these are by class.
func (t *tables) addSets(pieces []piece, d dimension) ([]int, error) {
	if len(t.sets)+len(d.members) > maxSets {
		return nil, fmt.Errorf("the rules tell more than %d kinds of packet apart: use fewer prefixes or port ranges", maxSets)
	}
	t.plan.Sets[d.id] = uint32(len(t.sets))
	alone := make([]int, len(d.members))
	for class, members := range d.members {
		single := slices.DeleteFunc(slices.Clone(members), func(i int32) bool { return len(pieces[i].asks) > 1 })
		alone[class] = len(single)
		t.sets = append(t.sets, t.set(pieces, single))
	}
	return alone, nil
}

// stay goes on to the next dimension where this one decides nothing but its
// own sets.
func stay(states []crossState, d dimension, alone []int) {
	for i := range states {
		for f := range states[i].worst {
			before := states[i].worst[f]
			if before == nil {
				continue
			}
			var best *meeting
			for class, n := range alone {
				if d.family(class)[f] {
					best = better(best, before, n, class)
				}
			}
			states[i].worst[f] = best
		}
	}
}

// step builds one crossing: every state with every class leads to the state of
// the pieces that both leave alive.
func (t *tables) step(pieces []piece, states []crossState, d dimension, alone []int) []crossState {
	in := newInterner()
	var next []crossState
	for _, s := range states {
		var rest []int32 // alive whatever the class
		for _, i := range s.alive {
			if !slices.Contains(pieces[i].asks, d.id) {
				rest = append(rest, i)
			}
		}
		for class, members := range d.members {
			alive := rest
			if both := intersect(s.alive, members); len(both) > 0 {
				alive = slices.Concat(rest, both)
				slices.Sort(alive)
			}
			n := in.number(alive)
			if n == len(next) {
				next = append(next, crossState{alive: in.lists[n]})
			}
			for f := range s.worst {
				if before := s.worst[f]; before != nil && d.family(class)[f] {
					next[n].worst[f] = better(next[n].worst[f], before, alone[class], class)
				}
			}
			t.crossings = append(t.crossings, uint16(n))
		}
	}
	return next
}

// better is the meeting with more limits: best, or before with n more.
func better(best, before *meeting, n, class int) *meeting {
	if best != nil && best.limits >= before.limits+n {
		return best
	}
	return &meeting{limits: before.limits + n, classes: append(slices.Clone(before.classes), class)}
}

// intersect is what two rising lists share.
func intersect(a, b []int32) (both []int32) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			both = append(both, a[0])
			a, b = a[1:], b[1:]
		}
	}
	return both
}

// finish writes the sets of the last states.
func (t *tables) finish(pieces []piece, dims []dimension, states []crossState) error {
	if len(t.sets)+len(states) > maxSets {
		return fmt.Errorf("the rules combine into more than %d kinds of packet: split fewer rules by several fields", maxSets)
	}
	t.plan.CrossedSets = uint32(len(t.sets))
	for _, s := range states {
		for f := range s.worst {
			if w := s.worst[f]; w != nil && w.limits+len(s.alive) > ruleLimits {
				return tooMany(pieces, dims, s.alive, w)
			}
		}
		t.sets = append(t.sets, t.set(pieces, s.alive))
	}
	return nil
}

// tooMany names the rules and a packet that meets them all.
func tooMany(pieces []piece, dims []dimension, alive []int32, w *meeting) error {
	members := slices.Clone(alive)
	var packet []string
	for i, d := range dims {
		for _, m := range d.members[w.classes[i]] {
			if len(pieces[m].asks) == 1 {
				members = append(members, m)
			}
		}
		if words := d.say(w.classes[i]); words != "" {
			packet = append(packet, words)
		}
	}
	slices.Sort(members)
	return fmt.Errorf("more than %d rules meet on a packet %s: %s; narrow or merge them", ruleLimits, strings.Join(packet, ", "), ruleNames(pieces, members))
}
