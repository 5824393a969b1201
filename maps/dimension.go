package maps

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/headgate/headgate/config"
)

// The places of a generation's classes, as in bpf/types.h.
const (
	placeTCP        = 0
	placeUDP        = 65536
	placeProto      = 131072
	placeICMP       = 131328
	placeICMPv6     = 131584
	placeSourceTCP  = 131840
	placeSourceUDP  = 197376
	placeSourceNone = 262912
	placeFlags      = 262944
	placeVLAN       = 263232
	places          = 267360

	serviceEnd = placeSourceTCP
	flagsNone  = 256
	untagged   = 4096

	classManaged = 0x8000
	maxClasses   = 0x8000 // the top bit of a service's class is classManaged
)

// IP protocols with ports or types of their own.
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// span is the places first to last, both included.
type span struct{ first, last int }

// dimension is what one dimension tells apart: by class, the pieces that ask
// in it and match.
type dimension struct {
	id      bpfDimension
	members [][]int32         // by class, pieces in rising order
	say     func(int) string  // a packet of the class, in words
	family  func(int) [2]bool // whether the class occurs in IPv4, in IPv6
}

// interner numbers different lists of pieces.
type interner struct {
	known map[string]int
	lists [][]int32
}

func newInterner() *interner { return &interner{known: map[string]int{}} }

func (in *interner) number(list []int32) int {
	key := make([]byte, 0, 4*len(list))
	for _, v := range list {
		key = append(key, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	}
	n, ok := in.known[string(key)]
	if !ok {
		n = len(in.lists)
		in.known[string(key)] = n
		in.lists = append(in.lists, slices.Clone(list))
	}
	return n
}

// dimensions lists where a piece asks for something. One that asks for nothing
// is met by its service, whatever that is.
func (p *piece) dimensions() (asks []bpfDimension) {
	m := &p.rule.Match
	for _, d := range []struct {
		id   bpfDimension
		asks bool
	}{
		{bpfDimensionDIM_SOURCE, len(m.From.Prefixes)+len(m.From.Lists)+len(m.Except.Prefixes)+len(m.Except.Lists)+len(p.rule.Overrides) > 0},
		{bpfDimensionDIM_DESTINATION, len(m.To.Prefixes)+len(m.To.Lists) > 0},
		{bpfDimensionDIM_SERVICE, m.Protocol != ""},
		{bpfDimensionDIM_FLAGS, m.Flags != nil},
		{bpfDimensionDIM_SOURCE_PORT, len(m.SourcePorts) > 0},
		{bpfDimensionDIM_VLAN, len(m.VLANs) > 0 || p.way.vlan != AnyVLAN},
		{bpfDimensionDIM_INTERFACE, len(m.Interfaces) > 0},
	} {
		if d.asks {
			asks = append(asks, d.id)
		}
	}
	if len(asks) == 0 {
		asks = []bpfDimension{bpfDimensionDIM_SERVICE}
	}
	return asks
}

// dimensions builds the classes of every dimension that some piece asks in.
func (c *compiler) dimensions(t *tables, pieces []piece) ([]dimension, error) {
	var dims []dimension
	for id := bpfDimension(0); id < bpfDimensionDIMENSIONS; id++ {
		if !slices.ContainsFunc(pieces, func(p piece) bool { return slices.Contains(p.asks, id) }) {
			continue
		}
		d, err := c.dimension(t, id, pieces)
		if err != nil {
			return nil, err
		}
		if len(d.members) > maxClasses {
			return nil, fmt.Errorf("the rules tell more than %d kinds of packet apart by one field: use fewer prefixes or port ranges", maxClasses)
		}
		dims = append(dims, d)
		t.plan.Used |= 1 << id
	}
	return dims, nil
}

func (c *compiler) dimension(t *tables, id bpfDimension, pieces []piece) (dimension, error) {
	switch id {
	case bpfDimensionDIM_SOURCE:
		d, classes, err := c.prefixDimension(id, pieces, c.sourceTerms)
		t.sources = classes
		return d, err
	case bpfDimensionDIM_DESTINATION:
		d, classes, err := c.prefixDimension(id, pieces, c.destinationTerms)
		t.destinations = classes
		return d, err
	case bpfDimensionDIM_SERVICE:
		return t.placeDimension(id, pieces, 0, serviceEnd, serviceSpans, serviceName)
	case bpfDimensionDIM_FLAGS:
		return t.placeDimension(id, pieces, placeFlags, placeFlags+flagsNone+1, flagSpans, flagsName)
	case bpfDimensionDIM_SOURCE_PORT:
		return t.placeDimension(id, pieces, placeSourceTCP, placeSourceNone+1, sourcePortSpans, sourcePortName)
	case bpfDimensionDIM_VLAN:
		return t.placeDimension(id, pieces, placeVLAN, placeVLAN+untagged+1, vlanSpans, vlanName)
	}
	return c.interfaceDimension(t, pieces)
}

// placeDimension gives the places first to end-1 their classes: between two
// edges of any piece's spans nothing changes.
func (t *tables) placeDimension(id bpfDimension, pieces []piece, first, end int, spans func(*piece) ([]span, error), name func(int) string) (dimension, error) {
	starts, stops := map[int][]int32{}, map[int][]int32{}
	edges := []int{first, end}
	for i := range pieces {
		if !slices.Contains(pieces[i].asks, id) {
			continue
		}
		all, err := spans(&pieces[i])
		if err != nil {
			return dimension{}, fmt.Errorf("rule %s: %w", pieces[i].rule.Name, err)
		}
		for _, s := range all {
			starts[s.first] = append(starts[s.first], int32(i))
			stops[s.last+1] = append(stops[s.last+1], int32(i))
			edges = append(edges, s.first, s.last+1)
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	in := newInterner()
	var active []int32 // with one entry for every span that covers the place
	var example []int
	for i := 0; i+1 < len(edges); i++ {
		for _, p := range stops[edges[i]] {
			active = slices.Delete(active, slices.Index(active, p), slices.Index(active, p)+1)
		}
		active = append(active, starts[edges[i]]...)
		members := slices.Clone(active)
		slices.Sort(members)
		class := in.number(slices.Compact(members))
		if class == len(example) {
			example = append(example, edges[i])
		}
		for place := edges[i]; place < edges[i+1]; place++ {
			t.classes[place] = uint16(class)
		}
	}
	return dimension{
		id: id, members: in.lists,
		say:    func(class int) string { return name(example[class]) },
		family: func(int) [2]bool { return [2]bool{true, true} },
	}, nil
}

// serviceSpans are the services that a rule matches. A rule with ports or
// types does not match packets whose port or type is unknown.
func serviceSpans(p *piece) ([]span, error) {
	r := p.rule
	if r.Match.Protocol == "" {
		return []span{{0, serviceEnd - 1}}, nil
	}
	number, ok := config.ProtocolNumber(r.Match.Protocol)
	if !ok {
		return nil, fmt.Errorf("unknown protocol %q", r.Match.Protocol)
	}
	known := map[uint8]span{
		protoTCP: {placeTCP, placeTCP + 65535}, protoUDP: {placeUDP, placeUDP + 65535},
		protoICMP: {placeICMP, placeICMP + 255}, protoICMPv6: {placeICMPv6, placeICMPv6 + 255},
	}
	all, has := known[number]
	var spans []span
	for _, p := range r.Match.Ports {
		spans = append(spans, span{all.first + int(p.First), all.first + int(p.Last)})
	}
	for _, kind := range r.Match.ICMPTypes {
		spans = append(spans, span{all.first + int(kind), all.first + int(kind)})
	}
	switch {
	case len(r.Match.Ports) > 0 && number != protoTCP && number != protoUDP:
		return nil, fmt.Errorf("ports need protocol tcp or udp")
	case len(r.Match.ICMPTypes) > 0 && number != protoICMP && number != protoICMPv6:
		return nil, fmt.Errorf("icmp_types need protocol icmp or icmpv6")
	case len(spans) > 0:
		return spans, nil
	}
	spans = []span{{placeProto + int(number), placeProto + int(number)}}
	if has {
		spans = append(spans, all)
	}
	return spans, nil
}

func flagSpans(p *piece) ([]span, error) {
	r := p.rule
	var spans []span
	f := r.Match.Flags
	for v := range 256 {
		if uint8(v)&f.Set == f.Set && uint8(v)&f.Clear == 0 {
			spans = append(spans, span{placeFlags + v, placeFlags + v})
		}
	}
	return spans, nil
}

func sourcePortSpans(p *piece) ([]span, error) {
	r := p.rule
	base := placeSourceTCP
	switch number, _ := config.ProtocolNumber(r.Match.Protocol); number {
	case protoTCP:
	case protoUDP:
		base = placeSourceUDP
	default:
		return nil, fmt.Errorf("source_ports need protocol tcp or udp")
	}
	var spans []span
	for _, p := range r.Match.SourcePorts {
		spans = append(spans, span{base + int(p.First), base + int(p.Last)})
	}
	return spans, nil
}

func vlanSpans(p *piece) ([]span, error) {
	if id := p.way.vlan; id != AnyVLAN {
		return []span{{placeVLAN + id, placeVLAN + id}}, nil
	}
	var spans []span
	for _, id := range p.rule.Match.VLANs {
		spans = append(spans, span{placeVLAN + int(id), placeVLAN + int(id)})
	}
	return spans, nil
}

func serviceName(place int) string {
	switch {
	case place < placeUDP:
		return "tcp/" + strconv.Itoa(place)
	case place < placeProto:
		return "udp/" + strconv.Itoa(place-placeUDP)
	case place < placeICMP:
		return "IP protocol " + strconv.Itoa(place-placeProto)
	case place < placeICMPv6:
		return "icmp type " + strconv.Itoa(place-placeICMP)
	}
	return "icmpv6 type " + strconv.Itoa(place-placeICMPv6)
}

func flagsName(place int) string {
	if place == placeFlags+flagsNone {
		return ""
	}
	return fmt.Sprintf("flags %#02x", place-placeFlags)
}

func sourcePortName(place int) string {
	switch {
	case place < placeSourceUDP:
		return "source port tcp/" + strconv.Itoa(place-placeSourceTCP)
	case place < placeSourceNone:
		return "source port udp/" + strconv.Itoa(place-placeSourceUDP)
	}
	return ""
}

func vlanName(place int) string {
	if place == placeVLAN+untagged {
		return ""
	}
	return "vlan " + strconv.Itoa(place-placeVLAN)
}

// resolve writes named lists out.
func (c *compiler) resolve(a config.Addresses) ([]netip.Prefix, error) {
	all := slices.Clone(a.Prefixes)
	for _, name := range a.Lists {
		list, ok := c.lists[name]
		if !ok {
			return nil, fmt.Errorf("no list %s: name it under `lists`", name)
		}
		all = append(all, list...)
	}
	return all, nil
}
