package config

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestTextReadsBack: a rule's text is what the daemon keeps of it, so it must
// be the same rule, and the same text, when read again.
func TestTextReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRule(t)
		want.Text = want.text()
		got, err := ParseRule("rule", []byte(want.Text))
		if err != nil {
			t.Fatalf("%s: %v", want.Text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", want.Text, diff)
		}
	})
}

// The command line sends words as JSON writes them.
func TestJSONReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRule(t)
		want.Text = want.text()
		m := map[string]any{"name": want.Name, "per": want.Per, "mode": want.Mode, "gate": want.Gate, "match": map[string]any{}}
		figures(m, want.Algorithm, want.Rate, want.Burst)
		m["algorithm"] = want.Algorithm
		if a := want.Anonymous; a != nil {
			inner := map[string]any{"per": a.Per}
			figures(inner, want.Algorithm, a.Rate, a.Burst)
			m["anonymous"] = inner
		}
		match := m["match"].(map[string]any)
		put(match, "method", want.Match.Methods)
		put(match, "path", want.Match.Paths)
		put(match, "host", want.Match.Hosts)
		var ports []string
		for _, p := range want.Match.Ports {
			ports = append(ports, p.String())
		}
		put(match, "ports", ports)
		if want.Match.Protocol != "" {
			match["protocol"] = want.Match.Protocol
		}
		data, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseRule("rule", data)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", data, diff)
		}
	})
}

func figures(m map[string]any, a Algorithm, r Rate, burst int64) {
	switch {
	case a != TokenBucket:
		m["limit"] = r.String()
	case r.Unit == Bytes:
		m["rate"], m["burst"] = r.String(), bytesText(burst, false)
	default:
		m["rate"], m["burst"] = r.String(), burst
	}
}

func put(m map[string]any, key string, values []string) {
	if len(values) > 0 {
		m[key] = values
	}
}

// drawRule draws any rule that can be written, but its Text.
func drawRule(t *rapid.T) Rule {
	r := Rule{
		Name: rapid.OneOf(
			rapid.StringMatching(`[a-z0-9][a-z0-9._-]{0,62}`),
			rapid.SampledFrom([]string{"null", "true", "no", "off", "1", "1.5", "0x10", "0o7", "1e3", "007", "2026-01-01", "nan", "1_000"}),
		).Draw(t, "name"),
		Gate: rapid.SampledFrom([]Gate{GateNetwork, GateHTTP}).Draw(t, "gate"),
		Mode: rapid.SampledFrom([]Mode{Enforce, Watch}).Draw(t, "mode"),
	}
	if r.Gate == GateNetwork {
		drawNetwork(t, &r)
		return r
	}
	drawHTTP(t, &r)
	return r
}

func drawNetwork(t *rapid.T, r *Rule) {
	r.Algorithm = TokenBucket
	r.Per = []Per{rapid.SampledFrom([]Per{PerSource, PerTotal}).Draw(t, "per")}
	r.Match.Protocol = rapid.SampledFrom([]string{"", "tcp", "udp", "icmp", "icmpv6", "sctp", "gre", "esp", "ah", "0", "2", "255"}).Draw(t, "protocol")
	if r.Match.Protocol == "tcp" || r.Match.Protocol == "udp" {
		for range rapid.IntRange(0, 3).Draw(t, "ports") {
			a, b := rapid.Uint16Range(1, 65535).Draw(t, "first"), rapid.Uint16Range(1, 65535).Draw(t, "last")
			r.Match.Ports = append(r.Match.Ports, PortRange{min(a, b), max(a, b)})
		}
	}
	unit := Count
	if r.Per[0] == PerSource {
		unit = rapid.SampledFrom([]Unit{Count, Bytes}).Draw(t, "what")
	}
	r.Rate = drawRate(t, unit)
	r.Burst = drawBurst(t, r.Rate)
}

func drawHTTP(t *rapid.T, r *Rule) {
	r.Per = rapid.SampledFrom([][]Per{{PerClient}, {PerKey}, {PerClient, PerKey}, {PerTotal}}).Draw(t, "per")
	segment := rapid.SampledFrom([]string{"a", "B-c.html", "{id}", "%2F", "café", `a "b" \c`, "<&>", "!$&'()+,;=:@~", "null"})
	for range rapid.IntRange(0, 2).Draw(t, "paths") {
		p := "/" + segment.Draw(t, "segment") + rapid.SampledFrom([]string{"", "/**", "/x"}).Draw(t, "rest")
		r.Match.Paths = appendNew(r.Match.Paths, p)
	}
	for range rapid.IntRange(0, 2).Draw(t, "hosts") {
		r.Match.Hosts = appendNew(r.Match.Hosts, rapid.SampledFrom([]string{"a.example", "*.b.example", "::1", "192.0.2.1", "true", "1"}).Draw(t, "host"))
	}
	for range rapid.IntRange(0, 2).Draw(t, "methods") {
		r.Match.Methods = appendNew(r.Match.Methods, rapid.SampledFrom([]string{"GET", "POST", "BAN"}).Draw(t, "method"))
	}
	figures := func() (Rate, int64) {
		for {
			rate := drawRate(t, Count)
			if r.Algorithm == TokenBucket {
				return rate, drawBurst(t, rate)
			}
			if rate.Amount <= 10_000 {
				return rate, 0
			}
		}
	}
	r.Algorithm = rapid.SampledFrom([]Algorithm{TokenBucket, SlidingLog, SlidingCounter}).Draw(t, "algorithm")
	r.Rate, r.Burst = figures()
	if counts(*r, PerKey) && rapid.Bool().Draw(t, "anonymous") {
		a := &Anonymous{Per: []Per{rapid.SampledFrom([]Per{PerClient, PerTotal}).Draw(t, "anonymous per")}}
		a.Rate, a.Burst = figures()
		r.Anonymous = a
	}
}

// drawBurst draws a burst that fills within a year.
func drawBurst(t *rapid.T, r Rate) int64 {
	least := int64(1)
	if r.Unit == Bytes {
		least = frame
	}
	// The last hundredth of a year is left out: there the cost of one, rounded
	// as the bucket does it, decides.
	most := r.during(year) / 100 * 99
	return rapid.Int64Range(least, max(least, most)).Draw(t, "burst")
}

func appendNew(list []string, s string) []string {
	for _, have := range list {
		if have == s {
			return list
		}
	}
	return append(list, s)
}

// Every word of the network gate's rules reads back too.
func TestPacketTextReadsBack(t *testing.T) {
	for _, in := range []string{
		`{name: a, per: "source/24,56", rate: 200/s, match: {from: [10.0.0.0/8, "2001:db8::/32"], to: 192.0.2.1, except: 10.1.0.0/16}}`,
		`{name: a, per: source, rate: 200/s, match: {protocol: tcp, ports: [80, 443], source_ports: 1024-65535, flags: syn}}`,
		`{name: a, per: source, rate: 200/s, match: {protocol: tcp, flags: fin+psh+urg}}`,
		`{name: a, per: source, rate: 200/s, match: {protocol: tcp, flags: syn+!ack+!rst}}`,
		`{name: a, per: source, rate: 200/s, match: {protocol: icmp, icmp_types: [echo-request, 13]}}`,
		`{name: a, per: source, rate: 200/s, match: {protocol: icmpv6, icmp_types: [echo-request]}}`,
		`{name: a, per: [source, destination], rate: 2Mbit/s, match: {vlan: [0, 10], interfaces: [eth0, eth1]}}`,
		`{name: a, per: destination, rate: 10MB/s}`,
		`{name: a, per: source, rate: 100/s, unknown: 50000/s, then: {block: 60s, after: 100/1s}}`,
		`{name: a, per: source, rate: 100/s, overrides: [{from: 192.0.2.0/24, rate: 1000/s, burst: 5}, {from: 10.0.0.0/8, rate: 1/s}]}`,
	} {
		first, err := ParseRule("rule", []byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		second, err := ParseRule("rule", []byte(first.Text))
		if err != nil {
			t.Errorf("%s\nas text %s: %v", in, first.Text, err)
			continue
		}
		if !reflect.DeepEqual(first, second) {
			t.Errorf("%s\nreads as %+v\nand then %+v", first.Text, first, second)
		}
		if WorstCase(first) == "" {
			t.Errorf("%s has no worst case in words", in)
		}
	}
}
