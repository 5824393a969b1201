package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// mostLimits is how many rules may meet on one packet: the data path reads
// that many buckets and no more.
const mostLimits = 4

// CheckRules checks what shows only in a whole set of rules: names used twice,
// and more than 4 limits of the network gate that meet on one packet. The
// error joins one error a fault. For the rules of a file Parse has done it.
func CheckRules(rules []Rule) error {
	all := make([]placed, len(rules))
	for i, r := range rules {
		all[i] = placed{Rule: r, ok: true}
	}
	var errs []error
	for _, f := range faults(all) {
		errs = append(errs, errors.New(f.msg))
	}
	return errors.Join(errs...)
}

// checkSet reports the same faults at their places.
func (r *reader) checkSet(all []placed) {
	for _, f := range faults(all) {
		r.errorf(all[f.rule].node, "%s", f.msg)
	}
}

// fault is what is wrong with the rule at an index.
type fault struct {
	rule int
	msg  string
}

func faults(all []placed) []fault {
	var found []fault
	first := map[string]int{}
	for i, p := range all {
		if p.Name == "" {
			continue
		}
		j, twice := first[p.Name]
		if !twice {
			first[p.Name] = i
			continue
		}
		where := ""
		if pos := position(all[j].node); pos != nil {
			where = fmt.Sprintf(", first in line %d", pos.Line)
		}
		found = append(found, fault{i, fmt.Sprintf("rule %s: the name is used twice%s: rename one", quote(p.Name), where)})
	}
	return append(found, crowds(all)...)
}

// crowds reports, for each protocol, the packet on which most limits meet, if
// they are too many.
func crowds(all []placed) []fault {
	byProtocol := map[string][]int{"": nil}
	for i, p := range all {
		if p.ok && p.Gate == GateNetwork {
			byProtocol[p.Match.Protocol] = append(byProtocol[p.Match.Protocol], i)
		}
	}
	if everywhere := byProtocol[""]; len(everywhere) > mostLimits {
		// Every packet meets these; naming each protocol too would repeat it.
		return []fault{crowd(all, everywhere, "any packet")}
	}
	var found []fault
	for _, protocol := range slices.Sorted(maps.Keys(byProtocol)) {
		if protocol == "" {
			continue
		}
		meet := append(slices.Clone(byProtocol[""]), byProtocol[protocol]...)
		slices.Sort(meet)
		port, most := busiestPort(all, meet)
		if len(most) <= mostLimits {
			continue
		}
		packet := "a packet of " + protocol
		if port != 0 {
			packet = fmt.Sprintf("a %s packet to port %d", protocol, port)
		}
		found = append(found, crowd(all, most, packet))
	}
	return found
}

// busiestPort returns the port at which most of the rules meet, 0 if none of
// them has ports, and these rules in order.
func busiestPort(all []placed, rules []int) (port uint16, most []int) {
	type edge struct{ at, change int }
	var edges []edge
	for _, i := range rules {
		for _, p := range merged(all[i].Match.Ports) {
			edges = append(edges, edge{int(p.First), 1}, edge{int(p.Last) + 1, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at-b.at, a.change-b.change) })
	depth, deepest := 0, 0
	for _, e := range edges {
		if depth += e.change; depth > deepest {
			deepest, port = depth, uint16(e.at)
		}
	}
	for _, i := range rules {
		if m := all[i].Match; len(m.Ports) == 0 || slices.ContainsFunc(m.Ports, func(p PortRange) bool {
			return p.First <= port && port <= p.Last
		}) {
			most = append(most, i)
		}
	}
	return port, most
}

// merged returns ranges sorted, with those that overlap made one: a rule meets
// a packet once.
func merged(ports []PortRange) []PortRange {
	sorted := slices.SortedFunc(slices.Values(ports), func(a, b PortRange) int { return int(a.First) - int(b.First) })
	var out []PortRange
	for _, p := range sorted {
		if n := len(out); n > 0 && p.First <= out[n-1].Last {
			out[n-1].Last = max(out[n-1].Last, p.Last)
			continue
		}
		out = append(out, p)
	}
	return out
}

// crowd words the fault, at the last of the rules: the one that was too many.
func crowd(all []placed, rules []int, packet string) fault {
	const shown = 8
	names := make([]string, 0, shown)
	for _, i := range rules[:min(len(rules), shown)] {
		names = append(names, all[i].Name)
	}
	if more := len(rules) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fault{rules[len(rules)-1], fmt.Sprintf("%d limits meet on %s, the most is %d: remove or narrow one of %s",
		len(rules), packet, mostLimits, list(names))}
}
