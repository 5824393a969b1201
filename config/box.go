package config

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// point is a place on one of the lines that a match is made of: a port, a set
// of flags, an address. Smaller lines than that of IPv6 use lo alone.
type point struct{ hi, lo uint64 }

func (a point) compare(b point) int {
	return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo))
}

// next and before are the neighbours of a; the ends of the line wrap.
func (a point) next() point {
	if a.lo == math.MaxUint64 {
		return point{a.hi + 1, 0}
	}
	return point{a.hi, a.lo + 1}
}

func (a point) before() point {
	if a.lo == 0 {
		return point{a.hi - 1, math.MaxUint64}
	}
	return point{a.hi, a.lo - 1}
}

// stretch is the points first to last, both included.
type stretch struct{ first, last point }

// The lines of a box: what of a packet a match can ask for. The protocol and
// the family are given where boxes are made.
const (
	lineSource = iota
	lineDestination
	lineService // destination port, or type of ICMP
	lineSourcePort
	lineFlags
	lineVLAN
	lineInterface
	lines
)

// box is what a rule matches: on each line some spans, sorted and apart; nil
// where it asks for nothing.
type box struct {
	rule  int
	spans [lines][]stretch
}

const (
	addressBits4 = 32
	addressBits6 = 128
)

// boxOf returns the packets of one family that certainly meet m; some is false
// if there are none, or none that can be told from here. What a named list
// holds is not known here: as `from` or `to` it adds nothing, as `except` it
// may take all.
func boxOf(m *Match, bits int) (b box, some bool) {
	if len(m.Except.Lists) > 0 {
		return b, false
	}
	if !m.From.empty() || !m.Except.empty() {
		from := prefixSpans(m.From.Prefixes, bits)
		if m.From.empty() {
			from = []stretch{wholeLine(bits)}
		}
		b.spans[lineSource] = without(from, prefixSpans(m.Except.Prefixes, bits))
		if len(b.spans[lineSource]) == 0 {
			return b, false
		}
	}
	if !m.To.empty() {
		b.spans[lineDestination] = prefixSpans(m.To.Prefixes, bits)
		if len(b.spans[lineDestination]) == 0 {
			return b, false
		}
	}
	b.spans[lineService] = merged(append(portSpans(m.Ports), numberSpans(m.ICMPTypes)...))
	b.spans[lineSourcePort] = merged(portSpans(m.SourcePorts))
	b.spans[lineVLAN] = merged(numberSpans(m.VLANs))
	if m.Flags != nil {
		b.spans[lineFlags] = flagSpans(*m.Flags)
	}
	return b, true
}

func wholeLine(bits int) stretch {
	if bits == addressBits4 {
		return stretch{last: point{lo: math.MaxUint32}}
	}
	return stretch{last: point{math.MaxUint64, math.MaxUint64}}
}

// prefixSpans are the addresses of the prefixes of one family.
func prefixSpans(prefixes []netip.Prefix, bits int) []stretch {
	var spans []stretch
	for _, p := range prefixes {
		if p.Addr().BitLen() != bits {
			continue
		}
		first := addressPoint(p.Addr())
		last, host := first, bits-p.Bits()
		switch {
		case host > 64:
			last.hi |= 1<<(host-64) - 1
			last.lo = math.MaxUint64
		case host == 64:
			last.lo = math.MaxUint64
		default:
			last.lo |= 1<<host - 1
		}
		spans = append(spans, stretch{first, last})
	}
	return merged(spans)
}

func addressPoint(a netip.Addr) point {
	if a.Is4() {
		four := a.As4()
		return point{lo: uint64(binary.BigEndian.Uint32(four[:]))}
	}
	sixteen := a.As16()
	return point{binary.BigEndian.Uint64(sixteen[:8]), binary.BigEndian.Uint64(sixteen[8:])}
}

// address is the address of a point.
func (a point) address(bits int) netip.Addr {
	if bits == addressBits4 {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(a.lo))))
	}
	return netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, a.hi), a.lo)))
}

func portSpans(ports []PortRange) []stretch {
	var spans []stretch
	for _, p := range ports {
		spans = append(spans, stretch{point{lo: uint64(p.First)}, point{lo: uint64(p.Last)}})
	}
	return spans
}

func numberSpans[N uint8 | uint16 | int](numbers []N) []stretch {
	var spans []stretch
	for _, n := range numbers {
		at := point{lo: uint64(n)}
		spans = append(spans, stretch{at, at})
	}
	return spans
}

// flagSpans are the values of a header's flags that f matches.
func flagSpans(f TCPFlags) []stretch {
	var values []int
	for v := range 256 {
		if uint8(v)&f.Set == f.Set && uint8(v)&f.Clear == 0 {
			values = append(values, v)
		}
	}
	return merged(numberSpans(values))
}

// merged returns spans sorted, with those that overlap made one: a rule meets
// a packet once.
func merged(spans []stretch) []stretch {
	slices.SortFunc(spans, func(a, b stretch) int { return a.first.compare(b.first) })
	var out []stretch
	for _, s := range spans {
		if n := len(out); n > 0 && s.first.compare(out[n-1].last) <= 0 {
			if s.last.compare(out[n-1].last) > 0 {
				out[n-1].last = s.last
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// without returns what of spans is not in holes, both as merged leaves them.
func without(spans, holes []stretch) []stretch {
	var out []stretch
	for _, s := range spans {
		rest := true
		for _, h := range holes {
			if h.last.compare(s.first) < 0 {
				continue
			}
			if h.first.compare(s.last) > 0 {
				break
			}
			if h.first.compare(s.first) > 0 {
				out = append(out, stretch{s.first, h.first.before()})
			}
			if rest = h.last.compare(s.last) < 0; !rest {
				break
			}
			s.first = h.last.next()
		}
		if rest {
			out = append(out, s)
		}
	}
	return out
}

func flagsText(set uint8) string {
	if set == 0 {
		return "none"
	}
	return TCPFlags{Set: set}.String()
}

// packet says in words what meets the rules of m.
func (m meeting) packet(all []placed, protocol string) string {
	var parts []string
	add := func(line int, format string, value func(uint64) any) {
		if at := m.at[line]; at != nil {
			parts = append(parts, fmt.Sprintf(format, value(at.lo)))
		}
	}
	number := func(n uint64) any { return n }
	if at := m.at[lineSource]; at != nil {
		parts = append(parts, "from "+at.address(m.bits).String())
	}
	if at := m.at[lineDestination]; at != nil {
		parts = append(parts, "to "+at.address(m.bits).String())
	}
	if protocol == "icmp" || protocol == "icmpv6" {
		add(lineService, "of type %s", func(n uint64) any { return icmpTypeText(protocol, uint8(n)) })
	} else {
		add(lineService, "to port %d", number)
	}
	add(lineSourcePort, "from port %d", number)
	add(lineFlags, "with the flags %s", func(n uint64) any { return flagsText(uint8(n)) })
	add(lineVLAN, "in vlan %d", number)
	add(lineInterface, "on %s", func(n uint64) any { return m.interfaces[n] })
	switch what := strings.Join(parts, " "); {
	case protocol == "" && what == "":
		return "any packet"
	case protocol == "":
		return "a packet " + what
	case what == "":
		return "a packet of " + protocol
	default:
		return "a " + protocol + " packet " + what
	}
}
