package l7

import (
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// written returns a rule written as in the config.
func written(t testing.TB, text string) config.Rule {
	t.Helper()
	r, err := config.ParseRule("rule", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMatchHeaders(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{
		written(t, `{name: gold, match: {headers: {X-Plan: [gold, silver]}}, per: client, limit: 1/h}`),
		written(t, `{name: grpc, match: {headers: {Content-Type: "application/grpc*", X-Kind: a}}, per: client, limit: 1/h}`),
	}})
	passed := func(rule string) uint64 { return r.gate.Counters()[rule].Passed }
	for _, c := range []struct {
		headers    []string
		gold, grpc uint64
	}{
		{nil, 0, 0},
		{[]string{"X-Plan: bronze"}, 0, 0},
		{[]string{"x-plan: silver"}, 1, 0},
		{[]string{"X-Plan: bronze", "X-Plan: GOLD"}, 1, 0},
		{[]string{"X-Plan: golden"}, 0, 0},
		{[]string{"Content-Type: application/grpc+proto"}, 0, 0},
		{[]string{"Content-Type: Application/gRPC+proto", "X-Kind: a"}, 0, 1},
		{[]string{"Content-Type: application/grp", "X-Kind: a"}, 0, 0},
	} {
		gold, grpc := passed("gold"), passed("grpc")
		want(t, "status", r.client("127.0.0.2").get(c.headers...).status, 200)
		if passed("gold")-gold != c.gold || passed("grpc")-grpc != c.grpc {
			t.Errorf("%q: gold %d, grpc %d", c.headers, passed("gold")-gold, passed("grpc")-grpc)
		}
		r.pass(2 * time.Hour)
	}
}

func TestMatchIdentityAndPlan(t *testing.T) {
	var rules []config.Rule
	for _, id := range []string{"none", "claimed", "verified", "[none, verified]"} {
		name := map[string]string{"[none, verified]": "both"}[id]
		if name == "" {
			name = id
		}
		rules = append(rules, written(t, "{name: "+name+", match: {identity: "+id+"}, per: client, limit: 100/h}"))
	}
	rules = append(rules, written(t, "{name: paid, match: {plan: [paid, gold]}, per: client, limit: 100/h}"))
	p := Policy{Rules: rules, HTTP: config.HTTP{KeyHeader: "X-Api-Key", KeyFile: "keys.yaml"}}
	p.HTTP.Keys = keyringOf(
		keyOf("rich", "acme", "", "gold"), keyOf("poor", "bob", "", "free"),
	)
	r := newRig(t, p)
	c := r.client("127.0.0.2")
	// Each request counts at the rules that it matches, and at no other.
	check := func(what string, headers []string, matched ...string) {
		t.Helper()
		before := r.gate.Counters()
		c.get(headers...)
		for name, n := range r.gate.Counters() {
			wanted := uint64(0)
			for _, m := range matched {
				if m == name {
					wanted = 1
				}
			}
			want(t, what+": "+name, n.Passed-before[name].Passed, wanted)
		}
	}
	check("no key", nil, "none", "both")
	check("unknown key", []string{"X-Api-Key: nobody"}, "none", "both")
	check("rich", []string{"X-Api-Key: rich"}, "verified", "both", "paid")
	check("poor", []string{"X-Api-Key: poor"}, "verified", "both")

	p.HTTP.KeyFile, p.HTTP.Keys = "", nil
	r.set(p)
	check("without a key file", []string{"X-Api-Key: rich"}, "claimed")
}
