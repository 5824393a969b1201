package l7

import (
	"fmt"
	"slices"
	"strings"
)

// index finds the rules that match host, method and path of a request without
// looking at every rule: what it costs grows with the length of the path and
// with how many match, not with how many there are. It is never changed once
// made.
type index struct {
	anyHost *node            // rules that name no host
	hosts   map[string]*node // by host
	below   map[string]*node // by what follows the * of "*.example.com"
	longest int              // key of below
	methods []string         // that rules name: bit i+1 of a set stands for the i-th
}

const (
	mostMethods  = 63        // that rules name; the registry of RFC 9110, 16.1 has fewer
	otherMethods = 1         // bit of all that no rule names
	allMethods   = 1<<64 - 1 // of a rule that names none
)

// node is a place in a tree of paths, cut at their slashes.
type node struct {
	names    []string // of children, as long as they are few
	children []*node
	byName   map[string]*node // instead, once they are many
	any      *node            // a template: one segment, whatever it is
	exact    []entry          // of rules whose path ends here
	subtree  []entry          // of rules that hold here and everywhere below
}

// fewChildren are found faster one by one than by their hash.
const fewChildren = 6

// entry is one rule in the tree.
type entry struct {
	rule    int32
	methods uint64
}

// newIndex makes an index of rules; what it finds are positions in them. More
// than 63 methods are an error.
func newIndex(rules []rule) (*index, error) {
	x := &index{anyHost: new(node), hosts: map[string]*node{}, below: map[string]*node{}}
	for i := range rules {
		m := &rules[i].match
		e := entry{rule: int32(i), methods: x.name(m.methods)}
		for _, tree := range x.trees(m.hosts) {
			tree.add(m.paths, e)
		}
	}
	if n := len(x.methods); n > mostMethods {
		return nil, fmt.Errorf("the rules name %d methods: the most is %d", n, mostMethods)
	}
	return x, nil
}

// name returns the set of a rule's methods.
func (x *index) name(methods []string) (set uint64) {
	if len(methods) == 0 {
		return allMethods
	}
	for _, m := range methods {
		if !slices.Contains(x.methods, m) {
			x.methods = append(x.methods, m)
		}
		set |= x.bit(m)
	}
	return set
}

func (x *index) bit(method string) uint64 {
	if i := slices.Index(x.methods, method); i >= 0 {
		return 2 << i
	}
	return otherMethods
}

// trees returns where a rule for these hosts belongs.
func (x *index) trees(hosts []string) []*node {
	if len(hosts) == 0 {
		return []*node{x.anyHost}
	}
	trees := make([]*node, 0, len(hosts))
	for _, h := range hosts {
		from := x.hosts
		if suffix, ok := strings.CutPrefix(h, "*"); ok {
			h, from, x.longest = suffix, x.below, max(x.longest, len(suffix))
		}
		if from[h] == nil {
			from[h] = new(node)
		}
		trees = append(trees, from[h])
	}
	return trees
}

func (n *node) add(paths []pattern, e entry) {
	if len(paths) == 0 {
		n.subtree = append(n.subtree, e)
		return
	}
	for i := range paths {
		at := n
		for _, s := range paths[i].segments {
			at = at.grow(s)
		}
		if paths[i].subtree {
			at.subtree = append(at.subtree, e)
		} else {
			at.exact = append(at.exact, e)
		}
	}
}

// grow returns the child for a segment of a pattern, made if there was none.
func (n *node) grow(segment string) *node {
	if isTemplate(segment) {
		if n.any == nil {
			n.any = new(node)
		}
		return n.any
	}
	if c := n.child(segment); c != nil {
		return c
	}
	c := new(node)
	switch {
	case n.byName != nil:
		n.byName[segment] = c
	case len(n.names) < fewChildren:
		n.names, n.children = append(n.names, segment), append(n.children, c)
	default:
		n.byName = map[string]*node{segment: c}
		for i, name := range n.names {
			n.byName[name] = n.children[i]
		}
		n.names, n.children = nil, nil
	}
	return c
}

func (n *node) child(segment string) *node {
	if n.byName != nil {
		return n.byName[segment]
	}
	for i, name := range n.names {
		if name == segment {
			return n.children[i]
		}
	}
	return nil
}

// find appends to found the rules for a request with any of these readings of
// its path, each once and in their order. host is in normal form.
func (x *index) find(method, host string, paths []string, found []int32) []int32 {
	bit := x.bit(method)
	found = x.anyHost.findAll(paths, bit, found)
	if len(x.hosts) > 0 {
		found = x.hosts[host].findAll(paths, bit, found)
	}
	// A host may be as long as the header allows; only its end is of interest.
	for i := max(1, len(host)-x.longest); i < len(host); i++ {
		if host[i] == '.' {
			found = x.below[host[i:]].findAll(paths, bit, found)
		}
	}
	if !slices.IsSorted(found) {
		slices.Sort(found)
	}
	return slices.Compact(found)
}

func (n *node) findAll(paths []string, method uint64, found []int32) []int32 {
	if n == nil {
		return found
	}
	for _, p := range paths {
		found = n.walk(p[1:], method, found)
	}
	return found
}

// walk follows rest, a path in normal form without its first slash, down every
// branch that it fits. It comes to each node at most once.
func (n *node) walk(rest string, method uint64, found []int32) []int32 {
	for {
		found = choose(n.subtree, method, found)
		if rest == "" {
			return choose(n.exact, method, found)
		}
		segment := rest
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			segment, rest = rest[:i], rest[i+1:]
		} else {
			rest = ""
		}
		if n.any != nil {
			found = n.any.walk(rest, method, found)
		}
		if n = n.child(segment); n == nil {
			return found
		}
	}
}

func choose(from []entry, method uint64, found []int32) []int32 {
	for _, e := range from {
		if e.methods&method != 0 {
			found = append(found, e.rule)
		}
	}
	return found
}
