package maps

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// prefixClasses are the classes of addresses: that of the longest prefix that
// covers one, else 0.
type prefixClasses struct {
	table bart.Table[uint16]
}

// of is the class of all addresses in p that no longer prefix covers.
func (c *prefixClasses) of(p netip.Prefix) uint16 {
	class, _ := c.table.LookupPrefix(p)
	return class
}

// has tells whether p itself has a class.
func (c *prefixClasses) has(p netip.Prefix) bool {
	_, ok := c.table.Get(p)
	return ok
}

// term says that addresses in a prefix meet (or, for except, miss) one of the
// conditions of a piece.
type term struct {
	piece     int32
	condition uint8 // a bit of conditions
	except    bool
}

// terms are the conditions of all pieces by prefix.
type terms struct {
	at   bart.Table[[]term]
	need []uint8 // by piece: the conditions that must all be met
	asks []bool  // by piece
}

func (ts *terms) add(prefixes []netip.Prefix, t term) {
	for _, p := range prefixes {
		p = p.Masked()
		at, _ := ts.at.Get(p)
		ts.at.Insert(p, append(slices.Clip(at), t))
	}
}

// sourceTerms: a piece matches sources in From and not in Except; an override
// those of them that are in its From and in none before it; the rule's own
// figures those that are in no override.
func (c *compiler) sourceTerms(ts *terms, i int32, p *piece) error {
	m := &p.rule.Match
	from, err := c.resolve(m.From)
	if err != nil {
		return err
	}
	if len(m.From.Prefixes)+len(m.From.Lists) > 0 {
		ts.need[i] |= 1
	}
	ts.add(from, term{piece: i, condition: 1})
	except, err := c.resolve(m.Except)
	if err != nil {
		return err
	}
	ts.add(except, term{piece: i, except: true})
	for n, o := range p.rule.Overrides {
		if p.override >= 0 && n > p.override {
			break
		}
		over, err := c.resolve(o.From)
		if err != nil {
			return err
		}
		if n == p.override {
			ts.need[i] |= 2
			ts.add(over, term{piece: i, condition: 2})
		} else {
			ts.add(over, term{piece: i, except: true})
		}
	}
	return nil
}

func (c *compiler) destinationTerms(ts *terms, i int32, p *piece) error {
	to, err := c.resolve(p.rule.Match.To)
	if err != nil {
		return err
	}
	ts.need[i] = 1
	ts.add(to, term{piece: i, condition: 1})
	return nil
}

// prefixDimension gives every prefix that some piece names its class.
func (c *compiler) prefixDimension(id bpfDimension, pieces []piece, fill func(*terms, int32, *piece) error) (dimension, *prefixClasses, error) {
	ts := &terms{need: make([]uint8, len(pieces)), asks: make([]bool, len(pieces))}
	var always []int32 // ask, but match where nothing is said
	for i := range pieces {
		if !slices.Contains(pieces[i].asks, id) {
			continue
		}
		ts.asks[i] = true
		if err := fill(ts, int32(i), &pieces[i]); err != nil {
			return dimension{}, nil, err
		}
		if ts.need[i] == 0 {
			always = append(always, int32(i))
		}
	}
	in := newInterner()
	in.number(always)
	classes := &prefixClasses{}
	examples := map[int]netip.Addr{}
	families := map[int][2]bool{0: ts.outside()}
	for p := range ts.at.All() {
		class := in.number(ts.members(p, always))
		classes.table.Insert(p, uint16(class))
		example, ok := ts.sample(p)
		if !ok {
			continue // longer prefixes leave nothing of it
		}
		examples[class] = example
		f := families[class]
		f[family(p)] = true
		families[class] = f
	}
	word := map[bpfDimension]string{bpfDimensionDIM_SOURCE: "from ", bpfDimensionDIM_DESTINATION: "to "}[id]
	return dimension{
		id: id, members: in.lists,
		say: func(class int) string {
			if a, ok := examples[class]; ok {
				return word + a.String()
			}
			return ""
		},
		family: func(class int) [2]bool { return families[class] },
	}, classes, nil
}

// outside tells in which families some address is in no prefix at all.
func (ts *terms) outside() (f [2]bool) {
	for i, whole := range []string{"0.0.0.0/0", "::/0"} {
		p := netip.MustParsePrefix(whole)
		if _, named := ts.at.Get(p); !named {
			_, f[i] = ts.sample(p)
		}
	}
	return f
}

// sample is an address in p that no longer prefix covers: the first one, or
// the one behind some longer prefix.
func (ts *terms) sample(p netip.Prefix) (netip.Addr, bool) {
	free := func(a netip.Addr) bool {
		if !a.IsValid() || !p.Contains(a) {
			return false
		}
		longest, _, ok := ts.at.LookupPrefixLPM(netip.PrefixFrom(a, a.BitLen()))
		return !ok || longest.Bits() <= p.Bits()
	}
	if free(p.Addr()) {
		return p.Addr(), true
	}
	for longer := range ts.at.Subnets(p) {
		if next := lastOf(longer).Next(); free(next) {
			return next, true
		}
	}
	return netip.Addr{}, false
}

// lastOf is the last address of p.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func family(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 0
	}
	return 1
}

// members are the pieces that match addresses in p which no longer prefix
// covers.
func (ts *terms) members(p netip.Prefix, always []int32) []int32 {
	met, missed := map[int32]uint8{}, map[int32]bool{}
	for _, list := range ts.at.Supernets(p) {
		for _, t := range list {
			if t.except {
				missed[t.piece] = true
			} else {
				met[t.piece] |= t.condition
			}
		}
	}
	var members []int32
	for _, i := range always {
		if !missed[i] {
			members = append(members, i)
		}
	}
	for i, conditions := range met {
		if ts.need[i] != 0 && conditions&ts.need[i] == ts.need[i] && !missed[i] {
			members = append(members, i)
		}
	}
	slices.Sort(members)
	return slices.Compact(members)
}
