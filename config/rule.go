package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// longestName bounds a rule's name: it is a metric label and a policy name in
// an answer's header.
const longestName = 63

// placed is a rule and where it stands in the file.
type placed struct {
	Rule
	node ast.Node
	ok   bool // without fault of its own
}

// ruleReader reads one rule. The gate comes first, because it decides which
// figures are legal and what the default burst is.
type ruleReader struct {
	*object
	match *object
	rule  Rule
}

// rules reads the list of rules, each with its name in front of its faults.
func (r *reader) rules(nodes []ast.Node) []placed {
	var all []placed
	for i, n := range nodes {
		before := len(r.errs)
		rule := r.readRule(n, fmt.Sprintf("rule %d: ", i+1))
		all = append(all, placed{rule, n, len(r.errs) == before})
	}
	return all
}

// readRule reads one rule; unnamed stands before the faults of one that has
// no name.
func (r *reader) readRule(n ast.Node, unnamed string) Rule {
	r.where = unnamed
	if name := peekName(n); name != "" {
		r.where = "rule " + quote(name) + ": "
	}
	defer func() { r.where = "" }()
	o := r.object(n, ruleLevel)
	if o == nil {
		return Rule{}
	}
	rr := &ruleReader{object: o, match: o.child("match", matchLevel)}
	before := len(r.errs)
	rr.name()
	rr.rule.Mode = o.mode()
	rr.matches()
	rr.rule.Per = rr.readPer(o)
	rr.gate()
	rr.perFits()
	rr.figures()
	rr.anonymous()
	rr.overrides()
	rr.counting()
	rr.scope()
	rr.unknown()
	rr.then()
	if len(r.errs) == before {
		rr.rule.Text = rr.rule.text()
	}
	return rr.rule
}

// peekName returns a rule's name before it is checked, for messages.
func peekName(n ast.Node) string {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return ""
	}
	for _, p := range m.Values {
		if k := p.Key.GetToken(); k == nil || k.Value != "name" {
			continue
		}
		if s, ok := p.Value.(*ast.StringNode); ok {
			return s.Value
		}
	}
	return ""
}

func (rr *ruleReader) name() {
	if !rr.need("name", "metrics and answers call the rule by it") {
		return
	}
	w, ok := rr.word("name")
	if !ok {
		return
	}
	if msg := checkName(w.text); msg != "" {
		rr.errorf(w.node, "%s", msg)
		return
	}
	rr.rule.Name = w.text
}

func checkName(s string) string {
	const set = "abcdefghijklmnopqrstuvwxyz0123456789._-"
	switch {
	case len(s) > longestName:
		return fmt.Sprintf("name %s has %d bytes: the most is %d", quote(s), len(s), longestName)
	case strings.Trim(s, set) != "":
		return fmt.Sprintf("name %s: use only a to z, 0 to 9, `.`, `_` and `-`", quote(s))
	case strings.IndexByte("._-", s[0]) >= 0:
		return fmt.Sprintf("name %s: start it with a letter or digit", quote(s))
	}
	return ""
}

// mode reads `mode` of a rule or of the file.
func (o *object) mode() Mode {
	w, ok := o.word("mode")
	if ok && w.text != string(Enforce) && w.text != string(Watch) {
		o.errorf(w.node, "%s", oneOf("mode", w.text, []string{"enforce", "watch"}))
	}
	return Mode(w.text)
}

// gate finds the gate from `gate`, `match` and `per`, as the design's section
// 7 has it, and reports contradictions.
func (rr *ruleReader) gate() {
	network, http := rr.signs()
	switch {
	case rr.has("gate"):
		w, ok := rr.word("gate")
		if !ok {
			return
		}
		rr.rule.Gate = Gate(w.text)
		against := http
		switch rr.rule.Gate {
		case GateNetwork:
		case GateHTTP:
			against = network
		default:
			rr.errorf(w.node, "%s", oneOf("gate", w.text, []string{"network", "http"}))
			rr.rule.Gate = ""
			return
		}
		if len(against) > 0 {
			rr.errorf(w.node, "gate: %s does not know %s: remove one of them", w.text, list(against))
		}
	case len(network) > 0 && len(http) > 0:
		rr.errorf(rr.node, "%s is for the network gate and %s for the http gate: make two rules of it", network[0], http[0])
	case len(network) > 0:
		rr.rule.Gate = GateNetwork
	case len(http) > 0:
		rr.rule.Gate = GateHTTP
	case rr.values["per"] != nil && len(rr.rule.Per) > 0:
		rr.errorf(rr.at("per"), "`per: total` without match says no gate: add `gate: network` or `gate: http`")
	}
}

// signs returns what in the rule speaks for the one gate and for the other.
func (rr *ruleReader) signs() (network, http []string) {
	for _, p := range rr.rule.Per {
		switch p {
		case PerSource, PerDestination:
			network = append(network, "`per: "+string(p)+"`")
		case PerClient, PerUser, PerKey, PerTenant:
			http = append(http, "`per: "+string(p)+"`")
		}
	}
	if rr.match == nil {
		return network, http
	}
	for _, k := range packetKeys {
		if rr.match.has(k) {
			network = append(network, "`match: "+k+"`")
		}
	}
	for _, k := range httpMatchKeys {
		if rr.match.has(k) {
			http = append(http, "`match: "+k+"`")
		}
	}
	return network, http
}
