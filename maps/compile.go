package maps

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// Sizes and meanings that bpf/types.h fixes.
const (
	setLimits  = 6
	ruleLimits = 4 // the rest is kept for rules with an end
	maxLimits  = 4096
	maxSets    = 4096

	setNone  = 0
	setVital = 1

	servicesTCP   = 0
	servicesUDP   = 65536
	servicesProto = 2 * 65536
	services      = 2*65536 + 256
	classes       = 32
	classManaged  = 0x8000

	limitWatch = 1 << 0
	limitBytes = 1 << 1
	setExact   = 1 << 0

	// clockPackets is how many packets the cached clock serves a CPU.
	clockPackets = 32

	// overflowFactor is how much faster than a source's own bucket the one is
	// that sources share when the table has no slot for them.
	overflowFactor = 10

	// frameBytes is an ordinary full frame, for limits in bytes.
	frameBytes = 1514
)

// The caps of vital traffic.
const (
	vitalPerSource = 200    // packets/s
	vitalTotal     = 10_000 // packets/s
)

// tables are the contents of one generation.
type tables struct {
	class  [services]uint16 // in units of one class, not of an entry
	sets   []bpfLimitSet
	limits []bpfLimit
	names  []string // of limits, "" for the built-in ones
}

// identity is what a rule's debt belongs to: while it stays, figures, match
// and mode may change and the debt is kept.
func identity(r config.Rule) string {
	per := make([]string, len(r.Per))
	for i, p := range r.Per {
		per[i] = string(p)
	}
	return strings.Join([]string{r.Name, strings.Join(per, "+"), string(r.Algorithm), string(r.Rate.Unit)}, "|")
}

// compile turns the network gate's rules into tables. ids gives each limit
// its id and counters; salt its tag's salt; cpus is the number online.
func compile(rules []config.Rule, m config.Management, ids func(identity string) (bpfLimitId, error), salt func(id uint32) uint64, cpus int) (*tables, error) {
	t := &tables{}
	if err := t.addVital(ids, salt); err != nil {
		return nil, err
	}
	t.sets = []bpfLimitSet{setNone: {}, setVital: {N: 2, Limits: [setLimits]uint32{0, 1}}}
	var active []activeRule
	for _, r := range rules {
		if r.Gate != config.GateNetwork {
			continue
		}
		index, err := t.addRule(r, ids, salt)
		if err != nil {
			return nil, err
		}
		spans, err := spansOf(r)
		if err != nil {
			return nil, err
		}
		active = append(active, activeRule{index, exact(r, cpus), spans})
	}
	if err := t.fillClasses(active); err != nil {
		return nil, err
	}
	for _, p := range m.Ports {
		base := servicesTCP
		if p.Protocol == "udp" {
			base = servicesUDP
		}
		t.class[base+int(p.Number)] |= classManaged
	}
	return t, nil
}

func (t *tables) addVital(ids func(string) (bpfLimitId, error), salt func(uint32) uint64) error {
	for _, v := range []struct {
		name   string
		id     uint32
		per    bpfLimitPer
		amount int64
	}{
		{"(vital source)", limitVitalSource, bpfLimitPerPER_SOURCE, vitalPerSource},
		{"(vital total)", limitVitalTotal, bpfLimitPerPER_TOTAL, vitalTotal},
	} {
		id, err := ids(v.name)
		if err != nil {
			return err
		}
		id.Id = v.id
		l, err := newLimit(config.Rate{Amount: v.amount, Interval: 1e9, Unit: config.Count}, v.amount, id, salt)
		if err != nil {
			return err
		}
		l.Per = uint8(v.per)
		t.limits = append(t.limits, l)
		t.names = append(t.names, "")
	}
	return nil
}

func (t *tables) addRule(r config.Rule, ids func(string) (bpfLimitId, error), salt func(uint32) uint64) (int, error) {
	if len(t.limits) == maxLimits {
		return 0, fmt.Errorf("rule %s: more than %d network rules", r.Name, maxLimits)
	}
	id, err := ids(identity(r))
	if err != nil {
		return 0, fmt.Errorf("rule %s: %w", r.Name, err)
	}
	l, err := newLimit(r.Rate, r.Burst, id, salt)
	if err != nil {
		return 0, fmt.Errorf("rule %s: %w", r.Name, err)
	}
	switch {
	case slices.Equal(r.Per, []config.Per{config.PerSource}):
		l.Per = uint8(bpfLimitPerPER_SOURCE)
	case slices.Equal(r.Per, []config.Per{config.PerTotal}):
		l.Per = uint8(bpfLimitPerPER_TOTAL)
	default:
		return 0, fmt.Errorf("rule %s: the network gate limits per source or per total, not per %v", r.Name, r.Per)
	}
	if r.Mode == config.Watch {
		l.Flags |= limitWatch
	}
	t.limits = append(t.limits, l)
	t.names = append(t.names, r.Name)
	return len(t.limits) - 1, nil
}

func newLimit(rate config.Rate, burst int64, id bpfLimitId, salt func(uint32) uint64) (bpfLimit, error) {
	inBytes := rate.Unit == config.Bytes
	f, err := limit.NewFigures(rate.Amount, rate.Interval, burst, inBytes)
	if err != nil {
		return bpfLimit{}, err
	}
	l := bpfLimit{
		Salt: salt(id.Id), Mult: f.Mult, Burst: f.Burst, Shift: f.Shift,
		// the same tolerance in time at a tenth of the cost
		OverflowMult: max(f.Mult/overflowFactor, 1), OverflowBurst: f.Burst, OverflowShift: f.Shift,
		Id: id.Id, Counter: id.Counter, Bits4: 32, Bits6: 64,
	}
	if inBytes {
		l.Flags |= limitBytes
	}
	return l, nil
}

// exact tells whether the cached clock is too coarse for the rule's burst.
func exact(r config.Rule, cpus int) bool {
	packets := r.Burst
	if r.Rate.Unit == config.Bytes {
		packets /= frameBytes
	}
	return packets < int64(clockPackets*cpus)
}

type activeRule struct {
	limit int
	exact bool
	spans []span
}

// span is the services first to last, both included.
type span struct{ first, last int }

// spansOf returns the services that a rule matches. A rule with ports does
// not match packets whose port is unknown.
func spansOf(r config.Rule) ([]span, error) {
	if r.Match.Protocol == "" {
		return []span{{0, services - 1}}, nil
	}
	number, err := protocolNumber(r.Match.Protocol)
	if err != nil {
		return nil, fmt.Errorf("rule %s: %w", r.Name, err)
	}
	ports := map[int]int{6: servicesTCP, 17: servicesUDP}
	base, hasPorts := ports[number]
	if len(r.Match.Ports) == 0 {
		all := []span{{servicesProto + number, servicesProto + number}}
		if hasPorts {
			all = append(all, span{base, base + 65535})
		}
		return all, nil
	}
	if !hasPorts {
		return nil, fmt.Errorf("rule %s: ports need protocol tcp or udp", r.Name)
	}
	var spans []span
	for _, p := range r.Match.Ports {
		spans = append(spans, span{base + int(p.First), base + int(p.Last)})
	}
	return spans, nil
}

// protocols are the IP protocols with a name in the configuration (IANA,
// Assigned Internet Protocol Numbers).
var protocols = map[string]int{
	"icmp": 1, "tcp": 6, "udp": 17, "gre": 47, "esp": 50, "ah": 51, "icmpv6": 58, "sctp": 132,
}

func protocolNumber(name string) (int, error) {
	if n, ok := protocols[name]; ok {
		return n, nil
	}
	n, err := strconv.Atoi(name)
	if err != nil || n < 0 || n > 255 {
		return 0, fmt.Errorf("protocol %q: take a name (tcp, udp, icmp, icmpv6, sctp, gre, esp, ah) or a number from 0 to 255", name)
	}
	return n, nil
}

// fillClasses gives every service the set of the rules that match it; equal
// sets are one.
func (t *tables) fillClasses(rules []activeRule) error {
	edges := []int{0, services}
	for _, r := range rules {
		for _, s := range r.spans {
			edges = append(edges, s.first, s.last+1)
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	known := map[string]uint16{"[]": setNone}
	for i := 0; i+1 < len(edges); i++ {
		set, err := t.setAt(edges[i], rules)
		if err != nil {
			return err
		}
		key := fmt.Sprint(set.Limits[:set.N])
		class, ok := known[key]
		if !ok {
			if len(t.sets) == maxSets {
				return fmt.Errorf("the rules meet in more than %d different sets: use fewer port ranges", maxSets)
			}
			class = uint16(len(t.sets))
			t.sets = append(t.sets, set)
			known[key] = class
		}
		for s := edges[i]; s < edges[i+1]; s++ {
			t.class[s] = class
		}
	}
	return nil
}

// setAt is the set of the rules that match one service.
func (t *tables) setAt(service int, rules []activeRule) (bpfLimitSet, error) {
	var set bpfLimitSet
	var names []string
	for _, r := range rules {
		in := func(s span) bool { return s.first <= service && service <= s.last }
		if !slices.ContainsFunc(r.spans, in) {
			continue
		}
		names = append(names, t.names[r.limit])
		if len(names) > ruleLimits {
			return set, fmt.Errorf("more than %d rules meet on %s: %s; narrow or merge them", ruleLimits, serviceName(service), strings.Join(names, ", "))
		}
		set.Limits[set.N] = uint32(r.limit)
		set.N++
		if r.exact {
			set.Flags |= setExact
		}
	}
	return set, nil
}

func serviceName(service int) string {
	switch {
	case service < servicesUDP:
		return fmt.Sprintf("a packet to tcp/%d", service)
	case service < servicesProto:
		return fmt.Sprintf("a packet to udp/%d", service-servicesUDP)
	}
	return fmt.Sprintf("a packet of IP protocol %d", service-servicesProto)
}

// ruleOfIdentity is the rule's name in an identity; false for built-in limits.
func ruleOfIdentity(identity string) (string, bool) {
	name, _, found := strings.Cut(identity, "|")
	return name, found
}
