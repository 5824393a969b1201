package config

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/limit"
)

var samePrefix = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

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
		if diff := cmp.Diff(want, got, samePrefix); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", want.Text, diff)
		}
	})
}

// The command line sends words as JSON writes them.
func TestJSONReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRule(t)
		want.Text = want.text()
		m := map[string]any{"name": want.Name, "per": want.perWords(), "mode": want.Mode, "gate": want.Gate, "match": map[string]any{}}
		figures(m, want.Algorithm, want.Rate, want.Burst)
		if m["algorithm"] = want.Algorithm; want.Algorithm == Quota {
			delete(m, "algorithm")
		}
		putCounting(m, &want)
		if a := want.Anonymous; a != nil {
			inner := map[string]any{"per": a.Per}
			figures(inner, want.Algorithm, a.Rate, a.Burst)
			m["anonymous"] = inner
		}
		match := m["match"].(map[string]any)
		put(match, "method", want.Match.Methods)
		put(match, "path", want.Match.Paths)
		put(match, "host", want.Match.Hosts)
		headers := map[string]any{}
		for _, h := range want.Match.Headers {
			headers[h.Name] = h.Values
		}
		if len(headers) > 0 {
			match["headers"] = headers
		}
		put(match, "identity", texts(want.Match.Identities))
		put(match, "plan", want.Match.Plans)
		putOverrides(m, &want)
		putPacket(m, match, &want)
		data, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseRule("rule", data)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(want, got, samePrefix); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", data, diff)
		}
	})
}

func putPacket(m, match map[string]any, r *Rule) {
	put(match, "from", r.Match.From.words())
	put(match, "to", r.Match.To.words())
	put(match, "except", r.Match.Except.words())
	put(match, "ports", portTexts(r.Match.Ports))
	put(match, "source_ports", portTexts(r.Match.SourcePorts))
	put(match, "interfaces", r.Match.Interfaces)
	if len(r.Match.VLANs) > 0 {
		match["vlan"] = r.Match.VLANs
	}
	var types []int // a list of bytes would be one word of base64
	for _, n := range r.Match.ICMPTypes {
		types = append(types, int(n))
	}
	if len(types) > 0 {
		match["icmp_types"] = types
	}
	if r.Match.Protocol != "" {
		match["protocol"] = r.Match.Protocol
	}
	if r.Match.Flags != nil {
		match["flags"] = r.Match.Flags.String()
	}
	if r.Unknown != nil {
		m["unknown"] = r.Unknown.String()
	}
	if r.Then != nil {
		m["then"] = map[string]any{"block": durationText(r.Then.Block), "after": r.Then.After.String()}
	}
}

func putOverrides(m map[string]any, r *Rule) {
	var overrides []map[string]any
	for _, o := range r.Overrides {
		inner := map[string]any{}
		figures(inner, r.Algorithm, o.Rate, o.Burst)
		for key, v := range map[string]string{"owner": o.Owner, "tenant": o.Tenant, "plan": o.Plan, "user": o.User, "key": o.Key, "why": o.Why} {
			if v != "" {
				inner[key] = v
			}
		}
		put(inner, "from", o.From.words())
		if !o.Until.IsZero() {
			inner["until"] = o.Until.Format(time.RFC3339Nano)
		}
		overrides = append(overrides, inner)
	}
	if len(overrides) > 0 {
		m["overrides"] = overrides
	}
}

func figures(m map[string]any, a Algorithm, r Rate, burst int64) {
	switch {
	case a == Quota:
		m["quota"] = quotaText(r)
	case a != TokenBucket:
		m["limit"] = r.String()
	case r.Unit == Bytes:
		m["rate"], m["burst"] = r.String(), bytesText(burst, false)
	default:
		m["rate"], m["burst"] = r.String(), burst
	}
}

func putCounting(m map[string]any, r *Rule) {
	if c := r.Calendar; c != nil {
		m["time_zone"] = c.TimeZone
		switch c.Every {
		case "week":
			m["anchor"] = weekdays[c.Anchor]
		case "month":
			m["anchor"] = c.Anchor
		}
	}
	if r.CountRefused {
		m["count_refused"] = true
	}
	if r.Soft > 0 {
		m["soft"] = fmt.Sprintf("%d%%", r.Soft)
	}
	if r.Memory > 0 {
		m["memory"] = fmt.Sprintf("%dB", r.Memory)
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
	r.Per = rapid.SampledFrom([][]Per{{PerSource}, {PerDestination}, {PerSource, PerDestination}, {PerTotal}}).Draw(t, "per")
	if counts(*r, PerSource) {
		r.SourceBits4 = rapid.Uint8Range(0, 31).Draw(t, "bits of IPv4")
		r.SourceBits6 = rapid.SampledFrom([]uint8{0, 1, 56, 63, 128}).Draw(t, "bits of IPv6")
	}
	drawPacket(t, &r.Match)
	unit := rapid.SampledFrom([]Unit{Count, Bytes}).Draw(t, "what")
	r.Rate = drawRate(t, unit)
	r.Burst = drawBurst(t, r.Rate)
	for range rapid.IntRange(0, 2).Draw(t, "overrides") {
		o := Override{From: drawFrom(t, 1), Rate: drawRate(t, unit)}
		o.Burst = drawBurst(t, o.Rate)
		r.Overrides = append(r.Overrides, o)
	}
	if len(r.Per) > 1 || r.Per[0] != PerSource {
		return
	}
	if rapid.Bool().Draw(t, "unknown") {
		u := r.Rate // no rate is less than itself
		r.Unknown = &u
	}
	if rapid.Bool().Draw(t, "then") {
		r.Then = &Then{
			Block: rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 90 * time.Second, 1500 * time.Millisecond, time.Hour, 30 * day}).Draw(t, "block"),
			After: rapid.SampledFrom([]Rate{{1, time.Second, Count}, {100, 10 * time.Second, Count}, {5, day, Count}}).Draw(t, "after"),
		}
	}
}

func drawPacket(t *rapid.T, m *Match) {
	m.From, m.To, m.Except = drawFrom(t, 0), drawFrom(t, 0), drawFrom(t, 0)
	m.Protocol = rapid.SampledFrom([]string{"", "tcp", "udp", "icmp", "icmpv6", "sctp", "gre", "esp", "ah", "0", "2", "255"}).Draw(t, "protocol")
	ports := func() (all []PortRange) {
		for range rapid.IntRange(0, 3).Draw(t, "ports") {
			a, b := rapid.Uint16Range(1, 65535).Draw(t, "first"), rapid.Uint16Range(1, 65535).Draw(t, "last")
			all = append(all, PortRange{min(a, b), max(a, b)})
		}
		return all
	}
	switch m.Protocol {
	case "tcp", "udp":
		m.Ports, m.SourcePorts = ports(), ports()
	case "icmp", "icmpv6":
		for range rapid.IntRange(0, 3).Draw(t, "types") {
			m.ICMPTypes = appendNew(m.ICMPTypes, rapid.Byte().Draw(t, "type"))
		}
	}
	if m.Protocol == "tcp" && rapid.Bool().Draw(t, "flags") {
		m.Flags = drawFlags(t)
	}
	for range rapid.IntRange(0, 2).Draw(t, "vlans") {
		m.VLANs = appendNew(m.VLANs, rapid.Uint16Range(0, 4094).Draw(t, "vlan"))
	}
	for range rapid.IntRange(0, 2).Draw(t, "interfaces") {
		m.Interfaces = appendNew(m.Interfaces, rapid.SampledFrom([]string{"eth0", "eth1.10", "on", "1", "wg-a@b"}).Draw(t, "interface"))
	}
}

// drawFlags draws any flags that can be written: all but SYN alone, which is
// written and means without ACK, and none at all.
func drawFlags(t *rapid.T) *TCPFlags {
	f := TCPFlags{Set: rapid.Byte().Draw(t, "set")}
	f.Clear = rapid.Byte().Draw(t, "clear") &^ f.Set
	if f == (TCPFlags{}) || f == (TCPFlags{Set: flagSYN}) {
		f.Clear |= flagACK
	}
	return &f
}

func drawFrom(t *rapid.T, least int) (a Addresses) {
	for range rapid.IntRange(least, 2).Draw(t, "prefixes") {
		a.Prefixes = append(a.Prefixes, netip.MustParsePrefix(rapid.SampledFrom([]string{
			"0.0.0.0/0", "192.0.2.0/24", "198.51.100.7/32", "::/0", "2001:db8::/32", "2001:db8::1/128", "::fffe:0:0/95",
		}).Draw(t, "prefix")))
	}
	for range rapid.IntRange(0, 2).Draw(t, "lists") {
		a.Lists = appendNew(a.Lists, rapid.SampledFrom([]string{"drop", "null", "on", "1e3", "a.b-c_d"}).Draw(t, "list"))
	}
	return a
}

func drawHTTP(t *rapid.T, r *Rule) {
	r.Per = rapid.SampledFrom([][]Per{{PerClient}, {PerKey}, {PerUser}, {PerTenant}, {PerClient, PerUser, PerKey}, {PerTotal}}).Draw(t, "per")
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
	for range rapid.IntRange(0, 2).Draw(t, "headers") {
		h := HeaderMatch{Name: rapid.SampledFrom([]string{"X-Plan", "No", "1", "-X"}).Draw(t, "header")}
		for range rapid.IntRange(1, 2).Draw(t, "values") {
			h.Values = appendNew(h.Values, rapid.SampledFrom([]string{"gold", "application/grpc*", "*", "null", `a"b, c`, "x: y"}).Draw(t, "value"))
		}
		if len(r.Match.Headers) == 0 || r.Match.Headers[0].Name != h.Name {
			r.Match.Headers = append(r.Match.Headers, h)
		}
	}
	slices.SortFunc(r.Match.Headers, func(a, b HeaderMatch) int { return strings.Compare(a.Name, b.Name) })
	for range rapid.IntRange(0, 2).Draw(t, "identities") {
		r.Match.Identities = appendNew(r.Match.Identities, rapid.SampledFrom(identities).Draw(t, "identity"))
	}
	for range rapid.IntRange(0, 2).Draw(t, "plans") {
		r.Match.Plans = appendNew(r.Match.Plans, rapid.SampledFrom([]string{"paid", "true", "no plan"}).Draw(t, "plan"))
	}
	figures := func() (Rate, int64) {
		for {
			if r.Algorithm == Quota {
				return Rate{rapid.Int64Range(1, limit.MaxTally).Draw(t, "quota"), r.Calendar.interval(), Count}, 0
			}
			rate := drawRate(t, Count)
			if r.Algorithm == TokenBucket {
				return rate, drawBurst(t, rate)
			}
			if rate.Amount <= 10_000 {
				return rate, 0
			}
		}
	}
	r.Algorithm = rapid.SampledFrom([]Algorithm{TokenBucket, SlidingLog, SlidingCounter, FixedWindow, Quota}).Draw(t, "algorithm")
	if r.Algorithm == Quota {
		r.Calendar = drawCalendar(t)
	}
	r.Rate, r.Burst = figures()
	for i := range rapid.IntRange(0, 2).Draw(t, "overrides") {
		r.Overrides = append(r.Overrides, drawOverride(t, r, i, figures))
	}
	if len(r.lacks()) > 0 && rapid.Bool().Draw(t, "anonymous") {
		a := &Anonymous{Per: []Per{rapid.SampledFrom([]Per{PerClient, PerTotal}).Draw(t, "anonymous per")}}
		a.Rate, a.Burst = figures()
		r.Anonymous = a
	}
	r.CountRefused = rapid.Bool().Draw(t, "count refused")
	if r.Algorithm != TokenBucket && r.Rate.Amount >= 100 && r.Anonymous == nil && len(r.Overrides) == 0 && rapid.Bool().Draw(t, "soft") {
		r.Soft = rapid.IntRange(1, 100).Draw(t, "percent")
	}
	if rapid.Bool().Draw(t, "bounded") {
		r.Memory = rapid.Int64Range(leastRuleMemory, mostMemory).Draw(t, "memory")
	}
}

func drawCalendar(t *rapid.T) *Calendar {
	c := &Calendar{
		Every:    rapid.SampledFrom(periods).Draw(t, "every").name,
		TimeZone: rapid.SampledFrom([]string{"UTC", "America/Sao_Paulo", "Asia/Kolkata", "Etc/GMT+3"}).Draw(t, "zone"),
	}
	switch c.Every {
	case "week":
		c.Anchor = rapid.IntRange(0, 6).Draw(t, "weekday")
	case "month":
		c.Anchor = rapid.IntRange(1, 31).Draw(t, "day of month")
	}
	return c
}

func (c *Calendar) interval() time.Duration {
	for _, p := range periods {
		if p.name == c.Every {
			return p.interval
		}
	}
	return 0
}

// drawOverride draws one that differs from others in whom it is for by i.
func drawOverride(t *rapid.T, r *Rule, i int, figures func() (Rate, int64)) (o Override) {
	o.Owner = rapid.SampledFrom([]string{"", "acme", "null", "a b"}).Draw(t, "owner")
	o.Plan = []string{"paid", "true"}[i]
	o.Tenant = rapid.SampledFrom([]string{"", "shop", "on", "a: b"}).Draw(t, "tenant")
	o.User = rapid.SampledFrom([]string{"", "alice", "12", "auth0|5f, #7"}).Draw(t, "user")
	o.Key = rapid.SampledFrom([]string{"", "08fb3d6e", "12345678", "1234567e8"}).Draw(t, "key")
	o.From.Prefixes = drawFrom(t, 0).Prefixes
	o.Rate, o.Burst = figures()
	if r.Algorithm != TokenBucket {
		o.Rate.Interval = r.Rate.Interval
	}
	o.Until = rapid.SampledFrom([]time.Time{
		{}, time.Date(2027, 4, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 3, 31, 12, 0, 0, 500, time.UTC),
	}).Draw(t, "until")
	o.Why = rapid.SampledFrom([]string{"", "contract 88", "off", `it's "so"`}).Draw(t, "why")
	return o
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
	if r.Unit == Bytes {
		most = min(most, 1<<60-1) // more bits than that are too many to be read
	}
	return rapid.Int64Range(least, max(least, most)).Draw(t, "burst")
}

func appendNew[T comparable](list []T, s T) []T {
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
