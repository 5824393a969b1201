package config

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
)

// mostSteps bounds the search for a crowd, which grows with the rules that
// combine many fields: some tenths of a second. A set beyond it is left to the
// network gate, which counts again when it compiles the rules.
const mostSteps = 1 << 23

// meeting is a packet, and the rules that it meets.
type meeting struct {
	rules      []int
	at         [lines]*point // nil: any place
	bits       int           // of its addresses
	interfaces []string      // by place on that line
}

// clique is a place on a line with the boxes that hold it. Boxes that ask for
// nothing on other lines are only counted: on this line they are met or not,
// whatever the others say.
type clique struct {
	at    point
	alone int
	multi []int32
}

// axis is one line with its cliques: those that no other clique of the line
// holds, for a packet in a smaller one meets no more.
type axis struct {
	cliques []clique
	of      map[int32][]int32 // the cliques of each box of several lines
	best    *clique           // with the most boxes of this line alone
	asked   map[int32]bool    // boxes of several lines that ask here
}

// path is a choice of places on the lines so far: the boxes of several lines
// that it leaves alive, and how many of one line it meets.
type path struct {
	alive []int32
	alone int
	at    [lines]*point
}

// busiest returns the packet that most boxes hold, if more than mostLimits do;
// without rules if not, or if steps run out.
//
// Boxes of one line alone are counted line by line, because any place on one
// line goes with any place on another. Only those of several lines are
// followed from line to line, and of paths that leave the same boxes alive the
// one that has met most stands for all.
func busiest(boxes []box, steps *int) meeting {
	multi, everywhere := kinds(boxes)
	var axes [lines]axis
	rest := [lines + 1]int{}
	for line := lines - 1; line >= 0; line-- {
		axes[line] = newAxis(boxes, line, steps)
		rest[line] = rest[line+1]
		if best := axes[line].best; best != nil {
			rest[line] += best.alone
		}
	}
	paths := []path{{alive: multi, alone: everywhere}}
	for line := range lines {
		paths = axes[line].follow(paths, line, rest[line+1], steps)
		if *steps < 0 {
			return meeting{}
		}
	}
	if len(paths) == 0 {
		return meeting{}
	}
	most := slices.MaxFunc(paths, func(a, b path) int {
		return cmp.Compare(a.alone+len(a.alive), b.alone+len(b.alive))
	})
	m := meeting{at: most.at}
	for _, b := range boxes {
		if b.holds(m.at) {
			m.rules = append(m.rules, b.rule)
		}
	}
	return m
}

// kinds returns the boxes of several lines, and how many are of none.
func kinds(boxes []box) (multi []int32, everywhere int) {
	for i := range boxes {
		switch boxes[i].asks() {
		case 0:
			everywhere++
		case 1:
		default:
			multi = append(multi, int32(i))
		}
	}
	return multi, everywhere
}

// asks returns on how many lines b asks for something.
func (b *box) asks() (n int) {
	for _, s := range b.spans {
		if len(s) > 0 {
			n++
		}
	}
	return n
}

// holds reports whether a packet of these places meets b.
func (b *box) holds(at [lines]*point) bool {
	for line, spans := range b.spans {
		if len(spans) > 0 && (at[line] == nil || !slices.ContainsFunc(spans, func(s stretch) bool {
			return s.first.compare(*at[line]) <= 0 && at[line].compare(s.last) <= 0
		})) {
			return false
		}
	}
	return true
}

// edge is where a stretch begins or ends.
type edge struct {
	at   point
	ends bool
	box  int32
}

// newAxis sweeps over one line.
func newAxis(boxes []box, line int, steps *int) axis {
	a := axis{of: map[int32][]int32{}, asked: map[int32]bool{}}
	var edges []edge
	for i := range boxes {
		for _, s := range boxes[i].spans[line] {
			edges = append(edges, edge{s.first, false, int32(i)}, edge{s.last, true, int32(i)})
		}
		a.asked[int32(i)] = len(boxes[i].spans[line]) > 0
	}
	slices.SortFunc(edges, func(a, b edge) int {
		switch {
		case a.at != b.at:
			return a.at.compare(b.at)
		case a.ends == b.ends:
			return int(a.box - b.box)
		case a.ends:
			return 1
		}
		return -1
	})
	now := clique{}
	grown := false
	for _, e := range edges {
		if e.ends && grown && *steps >= 0 {
			a.keep(now, steps)
		}
		grown = !e.ends
		now.at = e.at
		now.change(e, boxes[e.box].asks() > 1)
	}
	return a
}

// change lets a box in, or out where its stretch ends.
func (c *clique) change(e edge, several bool) {
	switch {
	case !several && e.ends:
		c.alone--
	case !several:
		c.alone++
	default:
		i, _ := slices.BinarySearch(c.multi, e.box)
		if e.ends {
			c.multi = slices.Delete(c.multi, i, i+1)
		} else {
			c.multi = slices.Insert(c.multi, i, e.box)
		}
	}
}

// keep writes down a clique that is as large as it becomes.
func (a *axis) keep(c clique, steps *int) {
	*steps -= len(c.multi) + 1
	c.multi = slices.Clone(c.multi)
	if a.best == nil || c.alone > a.best.alone {
		a.best = &c
	}
	if len(c.multi) == 0 {
		return
	}
	for _, b := range c.multi {
		a.of[b] = append(a.of[b], int32(len(a.cliques)))
	}
	a.cliques = append(a.cliques, c)
}

// follow takes each path to each place of the line that makes a difference to
// it. more is what the lines behind can add; a path that cannot become a crowd
// with that is given up.
func (a *axis) follow(paths []path, line, more int, steps *int) []path {
	known := map[string]int{}
	var next []path
	reach := func(p path) {
		*steps -= len(p.alive) + 1
		if p.alone+len(p.alive)+more <= mostLimits || *steps < 0 {
			return
		}
		key := make([]byte, 0, 4*len(p.alive))
		for _, b := range p.alive {
			key = binary.LittleEndian.AppendUint32(key, uint32(b))
		}
		i, ok := known[string(key)]
		switch {
		case !ok:
			known[string(key)] = len(next)
			next = append(next, p)
		case p.alone > next[i].alone:
			next[i] = p
		}
	}
	for _, p := range paths {
		var free []int32 // alive whatever the place
		met := map[int32][]int32{}
		for _, b := range p.alive {
			if !a.asked[b] {
				free = append(free, b)
			}
			for _, c := range a.of[b] {
				met[c] = append(met[c], b)
			}
			*steps -= len(a.of[b])
		}
		// Where no box of several lines counts, the place with most of this line.
		apart := path{alive: free, alone: p.alone, at: p.at}
		if a.best != nil {
			apart.alone += a.best.alone
			apart.at[line] = &a.best.at
		}
		reach(apart)
		for _, c := range slices.Sorted(maps.Keys(met)) {
			there := path{alive: slices.Concat(free, met[c]), alone: p.alone + a.cliques[c].alone, at: p.at}
			there.at[line] = &a.cliques[c].at
			slices.Sort(there.alive)
			reach(there)
		}
	}
	return next
}
