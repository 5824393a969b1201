package config

import (
	"strconv"
	"strings"
)

// Effective returns r as it acts under the mode of the whole file: in watch,
// if either says so. Text follows.
func Effective(m Mode, r Rule) Rule {
	if m == Watch && r.Mode != Watch {
		r.Mode = Watch
		r.Text = r.text()
	}
	return r
}

// text writes r as one line of YAML that ParseRule reads back to the same
// rule. Defaults that a later version might change are written out.
func (r Rule) text() string {
	f := flow{}
	f.word("name", r.Name)
	if r.saysNoGate() {
		f.word("gate", string(r.Gate))
	}
	if m := r.Match.text(); m != "{}" {
		f.raw("match", m)
	}
	f.words("per", r.perWords())
	f.figures(r.Algorithm, r.Rate, r.Burst)
	f.calendar(r.Calendar)
	if derived := r.derivedAlgorithm(); r.Algorithm != derived {
		f.word("algorithm", string(r.Algorithm))
	}
	if r.Mode == Watch {
		f.word("mode", string(Watch))
	}
	if a := r.Anonymous; a != nil {
		inner := flow{}
		inner.words("per", texts(a.Per))
		inner.figures(r.Algorithm, a.Rate, a.Burst)
		f.raw("anonymous", inner.String())
	}
	r.counting(&f)
	r.extras(&f)
	return f.String()
}

// extras writes overrides and what only rules of the network gate have.
func (r Rule) extras(f *flow) {
	if r.Unknown != nil {
		f.word("unknown", r.Unknown.String())
	}
	var overrides []string
	for _, o := range r.Overrides {
		overrides = append(overrides, o.Text(r))
	}
	if len(overrides) > 0 {
		f.raw("overrides", "["+strings.Join(overrides, ", ")+"]")
	}
	if t := r.Then; t != nil {
		inner := flow{}
		inner.word("block", durationText(t.Block))
		inner.word("after", t.After.String())
		f.raw("then", inner.String())
	}
}

// saysNoGate reports whether the gate does not follow from match and per.
func (r Rule) saysNoGate() bool {
	m := r.Match
	return len(r.Per) == 1 && r.Per[0] == PerTotal &&
		!m.matchesPackets() && !m.matchesRequests()
}

// derivedAlgorithm returns the algorithm that r has if it names none.
func (r Rule) derivedAlgorithm() Algorithm {
	if r.Algorithm == TokenBucket || r.Algorithm == Quota {
		return r.Algorithm
	}
	most := r.Rate.Amount
	if r.Anonymous != nil {
		most = max(most, r.Anonymous.Rate.Amount)
	}
	return algorithmFor(most)
}

func (m Match) text() string {
	f := flow{}
	f.words("from", m.From.words())
	f.words("to", m.To.words())
	f.words("except", m.Except.words())
	if m.Protocol != "" {
		f.word("protocol", m.Protocol)
	}
	f.list("ports", portTexts(m.Ports))
	f.list("source_ports", portTexts(m.SourcePorts))
	if m.Flags != nil {
		f.word("flags", m.Flags.String())
	}
	var types []string
	for _, t := range m.ICMPTypes {
		types = append(types, icmpTypeText(m.Protocol, t))
	}
	f.words("icmp_types", types)
	var ids []string
	for _, id := range m.VLANs {
		ids = append(ids, strconv.Itoa(int(id)))
	}
	f.words("vlan", ids)
	f.words("interfaces", m.Interfaces)
	m.httpText(&f)
	return f.String()
}

// String returns 80 or 8000-8010.
func (p PortRange) String() string {
	first := strconv.Itoa(int(p.First))
	if p.First == p.Last {
		return first
	}
	return first + "-" + strconv.Itoa(int(p.Last))
}

func portTexts(ports []PortRange) []string {
	words := make([]string, len(ports))
	for i, p := range ports {
		words[i] = p.String()
	}
	return words
}

func texts[W ~string](list []W) []string {
	words := make([]string, len(list))
	for i, w := range list {
		words[i] = string(w)
	}
	return words
}

// flow builds a YAML mapping in flow style.
type flow struct{ pairs []string }

func (f *flow) raw(key, value string) { f.pairs = append(f.pairs, key+": "+value) }

func (f *flow) word(key, value string) { f.raw(key, scalarText(value)) }

// list writes a list, nothing if it is empty.
func (f *flow) list(key string, values []string) {
	if len(values) == 0 {
		return
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = scalarText(v)
	}
	f.raw(key, "["+strings.Join(quoted, ", ")+"]")
}

// words writes a list, a lone word without brackets.
func (f *flow) words(key string, values []string) {
	if len(values) == 1 {
		f.word(key, values[0])
		return
	}
	f.list(key, values)
}

func (f *flow) figures(a Algorithm, r Rate, burst int64) {
	switch a {
	case TokenBucket:
	case Quota:
		f.word("quota", quotaText(r))
		return
	default:
		f.word("limit", r.String())
		return
	}
	f.word("rate", r.String())
	if r.Unit == Bytes {
		f.word("burst", bytesText(burst, false))
		return
	}
	f.word("burst", strconv.FormatInt(burst, 10))
}

func (f *flow) String() string { return "{" + strings.Join(f.pairs, ", ") + "}" }

// scalarText quotes what YAML would take for something else than a word.
func scalarText(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"
	switch strings.ToLower(s) {
	case "null", "true", "false", "yes", "no", "on", "off":
		return strconv.Quote(s)
	}
	if s == "" || strings.Trim(s, safe) != "" || s[0] == '-' {
		return strconv.Quote(s)
	}
	return s
}
