package config

import (
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
	steps := mostSteps
	if f, found := crowdOf(all, byProtocol[""], "", &steps); found {
		// Every protocol meets these; naming each too would repeat it.
		return []fault{f}
	}
	var found []fault
	for _, protocol := range slices.Sorted(maps.Keys(byProtocol)) {
		if protocol == "" {
			continue
		}
		meet := append(slices.Clone(byProtocol[""]), byProtocol[protocol]...)
		slices.Sort(meet)
		if f, ok := crowdOf(all, meet, protocol, &steps); ok {
			found = append(found, f)
		}
	}
	return found
}

// crowdOf finds the packet of one protocol on which most of the rules meet, in
// the family that is worse, and reports them if they are too many.
func crowdOf(all []placed, rules []int, protocol string, steps *int) (fault, bool) {
	if len(rules) <= mostLimits {
		return fault{}, false
	}
	var worst meeting
	names := interfaceNames(all, rules)
	for _, bits := range []int{addressBits4, addressBits6} {
		var boxes []box
		for _, i := range rules {
			if b, some := boxOf(&all[i].Match, bits); some {
				b.rule = i
				for _, name := range all[i].Match.Interfaces {
					n, _ := slices.BinarySearch(names, name)
					b.spans[lineInterface] = append(b.spans[lineInterface], numberSpans([]int{n})...)
				}
				b.spans[lineInterface] = merged(b.spans[lineInterface])
				boxes = append(boxes, b)
			}
		}
		if m := busiest(boxes, steps); len(m.rules) > len(worst.rules) {
			worst = m
			worst.bits, worst.interfaces = bits, names
		}
	}
	if len(worst.rules) <= mostLimits {
		return fault{}, false
	}
	return crowd(all, worst.rules, worst.packet(all, protocol)), true
}

// interfaceNames are the names that the rules use, sorted.
func interfaceNames(all []placed, rules []int) []string {
	var names []string
	for _, i := range rules {
		names = append(names, all[i].Match.Interfaces...)
	}
	slices.Sort(names)
	return slices.Compact(names)
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
