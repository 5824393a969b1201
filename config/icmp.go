package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

type icmpType struct {
	name   string
	number uint8
}

// icmpTypes are the names of message types by protocol (RFC 792, 1256, 4443
// and 4861). The numbers of the two families have nothing to do with each
// other.
var icmpTypes = map[string][]icmpType{
	"icmp": {
		{"echo-reply", 0}, {"unreachable", 3}, {"redirect", 5}, {"echo-request", 8}, {"router-advertisement", 9},
		{"router-solicitation", 10}, {"time-exceeded", 11}, {"parameter-problem", 12}, {"timestamp-request", 13},
		{"timestamp-reply", 14},
	},
	"icmpv6": {
		{"unreachable", 1}, {"too-big", 2}, {"time-exceeded", 3}, {"parameter-problem", 4}, {"echo-request", 128},
		{"echo-reply", 129}, {"router-solicitation", 133}, {"router-advertisement", 134},
		{"neighbor-solicitation", 135}, {"neighbor-advertisement", 136}, {"redirect", 137},
	},
}

// icmpTypes reads `icmp_types`, numbers or names of the rule's protocol.
func (rr *ruleReader) icmpTypes() []uint8 {
	words := rr.match.words("icmp_types")
	rr.belongs("icmp_types", "icmp", "icmpv6")
	protocol := rr.rule.Match.Protocol
	if icmpTypes[protocol] == nil {
		return nil // reported: names mean nothing without it
	}
	var types []uint8
	for _, w := range words {
		n, fault := parseICMPType(protocol, w.text)
		switch {
		case fault != "":
			rr.errorf(w.node, "%s", fault)
		case slices.Contains(types, n):
			rr.errorf(w.node, "%s type %s is there twice: remove one", protocol, icmpTypeText(protocol, n))
		default:
			types = append(types, n)
		}
	}
	return types
}

func parseICMPType(protocol, s string) (number uint8, fault string) {
	var names []string
	for _, t := range icmpTypes[protocol] {
		if t.name == s {
			return t.number, ""
		}
		names = append(names, t.name)
	}
	if n, err := parseWhole(s); err == nil && n <= 255 {
		return uint8(n), ""
	}
	if near := foreignICMP[s]; near != "" {
		return 0, fmt.Sprintf("%s is no %s type: did you mean `%s`?", quote(s), protocol, near)
	}
	if near := nearest(strings.ReplaceAll(strings.ToLower(s), "_", "-"), names); near != "" {
		return 0, fmt.Sprintf("%s is no %s type: did you mean `%s`?", quote(s), protocol, near)
	}
	return 0, fmt.Sprintf("%s is no %s type: write a number from 0 to 255, or %s", quote(s), protocol, list(names))
}

// foreignICMP are other tools' names.
var foreignICMP = map[string]string{
	"ping": "echo-request", "echo": "echo-request", "pong": "echo-reply",
	"destination-unreachable": "unreachable", "dest-unreachable": "unreachable", "ttl-exceeded": "time-exceeded",
	"packet-too-big": "too-big", "nd-neighbor-solicit": "neighbor-solicitation", "nd-neighbor-advert": "neighbor-advertisement",
	"nd-router-solicit": "router-solicitation", "nd-router-advert": "router-advertisement", "nd-redirect": "redirect",
}

// icmpTypeText returns the name of a type, its number where it has none.
func icmpTypeText(protocol string, number uint8) string {
	for _, t := range icmpTypes[protocol] {
		if t.number == number {
			return t.name
		}
	}
	return strconv.Itoa(int(number))
}
