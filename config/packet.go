package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// protocols are the names of IP protocols (IANA assigned internet protocol
// numbers) that a match may use instead of the number.
var protocols = []struct {
	name   string
	number uint8
}{
	{"icmp", 1}, {"tcp", 6}, {"udp", 17}, {"gre", 47}, {"esp", 50}, {"ah", 51}, {"icmpv6", 58}, {"sctp", 132},
}

// ProtocolNumber returns the IP protocol number of a Match's Protocol; ok is
// false if it is empty or none.
func ProtocolNumber(s string) (number uint8, ok bool) {
	for _, p := range protocols {
		if p.name == s {
			return p.number, true
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	return uint8(n), err == nil
}

// packet reads the fields that only packets have.
func (rr *ruleReader) packet() {
	m, o := &rr.rule.Match, rr.match
	m.From = o.addresses("from")
	m.To = o.addresses("to")
	m.Except = o.addresses("except")
	m.Protocol = rr.protocol()
	m.Ports = rr.ports("ports")
	m.SourcePorts = rr.ports("source_ports")
	m.Flags = rr.flags()
	m.ICMPTypes = rr.icmpTypes()
	m.VLANs = rr.vlans()
	for _, w := range o.words("interfaces") {
		rr.use(w, &m.Interfaces, checkInterface(w.text), w.text)
		rr.mention("interface", w)
	}
}

// packetKeys are the keys of a match that only packets have, in the order of
// the grammar.
var packetKeys = []string{
	"from", "to", "except", "protocol", "ports", "source_ports", "flags", "icmp_types", "vlan", "interfaces",
}

// matchesPackets reports whether m asks for something that only packets have.
func (m Match) matchesPackets() bool {
	return !m.From.empty() || !m.To.empty() || !m.Except.empty() || m.Protocol != "" || m.Flags != nil ||
		len(m.Ports)+len(m.SourcePorts)+len(m.ICMPTypes)+len(m.VLANs)+len(m.Interfaces) > 0
}

func (rr *ruleReader) protocol() string {
	w, ok := rr.match.word("protocol")
	if !ok {
		return ""
	}
	names := make([]string, len(protocols))
	for i, p := range protocols {
		names[i] = p.name
		if w.text == p.name || w.text == strconv.Itoa(int(p.number)) {
			return p.name
		}
	}
	if n, err := parseWhole(w.text); err == nil && n <= 255 {
		return w.text
	}
	rr.errorf(w.node, "%s, or a number from 0 to 255", oneOf("protocol", w.text, names))
	return ""
}

// ports reads `ports` or `source_ports`.
func (rr *ruleReader) ports(key string) []PortRange {
	var ports []PortRange
	for _, w := range rr.match.words(key) {
		p, err := parsePorts(w.text)
		if err != nil {
			rr.errorf(w.node, "%s", err)
			continue
		}
		ports = append(ports, p)
	}
	rr.belongs(key, "tcp", "udp")
	return ports
}

// belongs reports a key of the match that needs one of these protocols.
func (rr *ruleReader) belongs(key string, protocols ...string) {
	if !rr.match.has(key) {
		return
	}
	given := rr.rule.Match.Protocol
	switch {
	case rr.match.values["protocol"] == nil && !rr.match.meant["protocol"]:
		cure := "`protocol: " + strings.Join(protocols, "` or `protocol: ") + "`"
		if len(protocols) > 1 {
			cure += ", or make a rule for each"
		}
		rr.errorf(rr.match.keys[key], "`%s` needs a protocol: add %s", key, cure)
	case given != "" && !slices.Contains(protocols, given):
		verb, it := "are", "them"
		if !strings.HasSuffix(key, "s") {
			verb, it = "is", "it"
		}
		rr.errorf(rr.match.keys[key], "`%s` %s of %s, not of %s: remove %s", key, verb, strings.Join(protocols, " or "), given, it)
	}
}

// mostVLAN is the highest id of a network; 4095 is reserved (IEEE 802.1Q).
const mostVLAN = 4094

// vlans reads ids of VLANs.
func (rr *ruleReader) vlans() []uint16 {
	var ids []uint16
	for _, w := range rr.match.words("vlan") {
		n, err := parseWhole(w.text)
		switch {
		case err != nil || n > mostVLAN:
			rr.errorf(w.node, "%s is no vlan: write an id from 0 (a priority tag) to %d", quote(w.text), mostVLAN)
		case slices.Contains(ids, uint16(n)):
			rr.errorf(w.node, "vlan %d is there twice: remove one", n)
		default:
			ids = append(ids, uint16(n))
		}
	}
	return ids
}

// parsePorts reads 80 or 8000-8010.
func parsePorts(s string) (PortRange, error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	first, err1 := parsePort(from)
	last, err2 := parsePort(to)
	switch {
	case err1 != nil || err2 != nil:
		return PortRange{}, fmt.Errorf("%s is no port: write a number from 1 to 65535, or two with a hyphen, such as 8000-8010", quote(s))
	case first > last:
		return PortRange{}, fmt.Errorf("%s runs backwards: write %d-%d", quote(s), last, first)
	}
	return PortRange{first, last}, nil
}

func parsePort(s string) (uint16, error) {
	n, err := parseWhole(s)
	if err == nil && (n < 1 || n > 65535) {
		err = errTooLarge
	}
	return uint16(n), err
}
