package maps

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// Sizes and meanings that bpf/types.h fixes.
const (
	setLimits  = 6
	ruleLimits = 4 // the rest is kept for rules with an end
	maxLimits  = 16384
	maxSets    = 65536
	maxCells   = 1 << 22
	classGroup = 32

	setVital = 0

	keySource      = 1 << 0
	keyDestination = 1 << 1
	limitWatch     = 1 << 0
	limitBytes     = 1 << 1
	setExact       = 1 << 0

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
	plan         bpfPlan
	classes      []uint16 // by place
	crossings    []uint16 // by cell
	sets         []bpfLimitSet
	limits       []bpfLimit
	extras       []bpfExtra // by limit.extra; the first is none
	names        []string   // of limits, "" for the built-in ones
	sources      *prefixClasses
	destinations *prefixClasses
	interfaces   map[uint32]uint16 // by index
}

// piece is one limit as packets meet it: a rule, or one of its overrides,
// which shares the rule's buckets and counters. Where a rule's interfaces are
// several ways, each has a piece.
type piece struct {
	rule     *config.Rule
	override int // index in rule.Overrides; -1: the rule's own figures
	limit    int // index in tables.limits
	exact    bool
	way      way            // of the packets that it is for
	asks     []bpfDimension // dimensions in which it asks for something
}

// compiler is what a compilation needs from outside.
type compiler struct {
	ids    func(identity string) (bpfLimitId, error)
	salt   func(kind bpfSlotKind, id uint32) uint64
	cpus   int
	lists  map[string][]netip.Prefix
	inlets func(iface string) ([]Inlet, error)
}

// identity is what a rule's debt belongs to: while it stays, figures, match
// and mode may change and the debt is kept.
func identity(r *config.Rule) string {
	per := make([]string, len(r.Per))
	for i, p := range r.Per {
		per[i] = string(p)
		if p == config.PerSource && (sourceBits4(r) != 32 || sourceBits6(r) != 64) {
			per[i] += fmt.Sprintf("/%d,%d", sourceBits4(r), sourceBits6(r))
		}
	}
	return strings.Join([]string{r.Name, strings.Join(per, "+"), string(r.Algorithm), string(r.Rate.Unit)}, "|")
}

// ruleOfIdentity is the rule's name in an identity; false for built-in limits.
func ruleOfIdentity(identity string) (string, bool) {
	name, _, found := strings.Cut(identity, "|")
	return name, found
}

func sourceBits4(r *config.Rule) uint8 {
	if r.SourceBits4 == 0 {
		return 32
	}
	return r.SourceBits4
}

func sourceBits6(r *config.Rule) uint8 {
	if r.SourceBits6 == 0 {
		return 64
	}
	return r.SourceBits6
}

// compile turns the network gate's rules into tables.
func (c *compiler) compile(rules []config.Rule, m config.Management) (*tables, error) {
	t := &tables{classes: make([]uint16, places), interfaces: map[uint32]uint16{}, extras: make([]bpfExtra, 1)}
	t.plan.BlockSalt = c.salt(bpfSlotKindSLOT_BLOCK, 0)
	if err := c.addVital(t); err != nil {
		return nil, err
	}
	t.sets = []bpfLimitSet{setVital: {N: 2, Limits: [setLimits]uint32{0, 1}}}
	var pieces []piece
	for i := range rules {
		if rules[i].Gate != config.GateNetwork {
			continue
		}
		more, err := c.addRule(t, &rules[i])
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", rules[i].Name, err)
		}
		pieces = append(pieces, more...)
	}
	dims, err := c.dimensions(t, pieces)
	if err != nil {
		return nil, err
	}
	if err := t.cross(pieces, dims); err != nil {
		return nil, err
	}
	for _, p := range m.Ports {
		place := placeTCP
		if p.Protocol == "udp" {
			place = placeUDP
		}
		t.classes[place+int(p.Number)] |= classManaged
	}
	return t, nil
}

func (c *compiler) addVital(t *tables) error {
	for _, v := range []struct {
		name   string
		id     uint32
		per    uint8
		amount int64
	}{
		{"(vital source)", limitVitalSource, keySource, vitalPerSource},
		{"(vital total)", limitVitalTotal, 0, vitalTotal},
	} {
		id, err := c.ids(v.name)
		if err != nil {
			return err
		}
		id.Id = v.id
		l, err := c.newLimit(config.Rate{Amount: v.amount, Interval: time.Second, Unit: config.Count}, v.amount, id)
		if err != nil {
			return err
		}
		l.Per = v.per
		t.limits = append(t.limits, l)
		t.names = append(t.names, "")
	}
	return nil
}

// addRule makes a rule's limits: one of its own figures and one an override,
// all with one id, one bucket key and one counter.
func (c *compiler) addRule(t *tables, r *config.Rule) ([]piece, error) {
	id, err := c.ids(identity(r))
	if err != nil {
		return nil, err
	}
	extra, err := c.addExtra(t, r, id)
	if err != nil {
		return nil, err
	}
	ways, err := c.ways(r)
	if err != nil {
		return nil, err
	}
	var pieces []piece
	for i := -1; i < len(r.Overrides); i++ {
		if len(t.limits) == maxLimits {
			return nil, fmt.Errorf("the network gate has room for %d limits", maxLimits)
		}
		rate, burst := r.Rate, r.Burst
		if i >= 0 {
			rate, burst = r.Overrides[i].Rate, r.Overrides[i].Burst
		}
		l, err := c.newLimit(rate, burst, id)
		if err != nil {
			return nil, err
		}
		if l.Per, err = perBits(r.Per); err != nil {
			return nil, err
		}
		l.Bits4, l.Bits6 = sourceBits4(r), sourceBits6(r)
		l.Extra = extra
		if r.Mode == config.Watch {
			l.Flags |= limitWatch
		}
		for _, w := range ways {
			p := piece{rule: r, override: i, limit: len(t.limits), exact: c.exact(rate, burst), way: w}
			p.asks = p.dimensions()
			pieces = append(pieces, p)
		}
		t.limits = append(t.limits, l)
		t.names = append(t.names, r.Name)
	}
	return pieces, nil
}

func perBits(per []config.Per) (bits uint8, err error) {
	for _, p := range per {
		switch p {
		case config.PerSource:
			bits |= keySource
		case config.PerDestination:
			bits |= keyDestination
		case config.PerTotal:
		default:
			return 0, fmt.Errorf("the network gate limits per source, destination or total, not per %s", p)
		}
	}
	return bits, nil
}

func (c *compiler) newLimit(rate config.Rate, burst int64, id bpfLimitId) (bpfLimit, error) {
	inBytes := rate.Unit == config.Bytes
	f, err := limit.NewFigures(rate.Amount, rate.Interval, burst, inBytes)
	if err != nil {
		return bpfLimit{}, err
	}
	l := bpfLimit{
		Salt: c.salt(bpfSlotKindSLOT_RULE, id.Id), Mult: f.Mult, Burst: f.Burst, Shift: f.Shift,
		// the same tolerance in time at a tenth of the cost
		OverflowMult: max(f.Mult/overflowFactor, 1), OverflowBurst: f.Burst, OverflowShift: f.Shift,
		Id: id.Id, Counter: id.Counter, Bits4: 32, Bits6: 64,
	}
	if inBytes {
		l.Flags |= limitBytes
	}
	return l, nil
}

// exact tells whether the cached clock is too coarse for a burst.
func (c *compiler) exact(rate config.Rate, burst int64) bool {
	if rate.Unit == config.Bytes {
		burst /= frameBytes
	}
	return burst < int64(clockPackets*c.cpus)
}

// set is the set of some pieces.
func (t *tables) set(pieces []piece, members []int32) bpfLimitSet {
	var set bpfLimitSet
	for _, m := range members {
		if int(set.N) == setLimits {
			break // refused by cross, which names the rules
		}
		set.Limits[set.N] = uint32(pieces[m].limit)
		set.N++
		if pieces[m].exact {
			set.Flags |= setExact
		}
	}
	return set
}

func ruleNames(pieces []piece, members []int32) string {
	var names []string
	for _, m := range members {
		if name := pieces[m].rule.Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
