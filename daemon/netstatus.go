package daemon

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/maps"
)

// status asks the kernel what is attached and counted. The counters are by
// rule name.
func (n *network) status() (NetworkStatus, map[string]maps.Counters, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	st := NetworkStatus{Interfaces: []Interface{}, Detached: n.detached}
	if n.now == nil || len(n.now.cfg.Network.Interfaces) == 0 {
		return st, nil, nil
	}
	st.On = true
	if n.gate == nil {
		for _, iface := range n.now.cfg.Network.Interfaces {
			st.Interfaces = append(st.Interfaces, Interface{Name: iface, AttachMode: "none", Warning: detachedWhy, Fault: detachedWhy})
		}
		return st, nil, nil
	}
	st.Opened = n.gate.Opened()
	if st.MapRepairs = n.audited.repaired; st.MapRepairs > 0 {
		st.MapsRepaired = stamp(n.audited.last)
	}
	for _, s := range n.attached.States() {
		i := Interface{Name: s.Interface, AttachMode: s.AttachMode, ProgramID: s.ProgramID, Pin: s.Pin, Warning: s.Warning, Fault: s.Fault}
		st.Interfaces = append(st.Interfaces, i)
		if i.Fault == "" && i.Warning != "" {
			st.Warnings = append(st.Warnings, fmt.Sprintf("interface %s: %s", i.Name, i.Warning))
		}
	}
	st.Faults = n.attached.Faults()
	st.Repairs, st.Repaired = n.attached.Repairs()
	counters, err := n.count(&st)
	return st, counters, err
}

// notFiltered says of each interface, or item of the config, why nothing is
// attached.
func (n *network) notFiltered() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.attached.NotFiltered()
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (n *network) count(st *NetworkStatus) (map[string]maps.Counters, error) {
	reasons, err := n.gate.Reasons()
	if err != nil {
		return nil, err
	}
	for _, r := range reasons {
		st.Reasons = append(st.Reasons, Reason(r))
	}
	table, err := n.gate.Table()
	if err != nil {
		return nil, err
	}
	t := Table(table)
	st.Table = &t
	room4, room6 := n.gate.Room()
	four, six := Room(room4), Room(room6)
	st.IPv4, st.IPv6 = &four, &six
	st.Warnings = slices.Concat(st.Warnings, four.warn("IPv4"), six.warn("IPv6"))
	return n.gate.RuleCounters()
}

// warn says when little room is left: a block that finds none is refused.
func (r Room) warn(family string) []string {
	const percent = 80
	if r.Held*100 < r.Bound*percent {
		return nil
	}
	return []string{fmt.Sprintf("the network gate holds %d %s prefixes of at most %d: join neighbours to wider ones, or shorten a list", r.Held, family, r.Bound)}
}
