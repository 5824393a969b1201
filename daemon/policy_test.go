package daemon

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/config"
)

// added is a rule from the command line on one port.
func added(name string, port int) addedRule {
	return addedRule{Name: name, Text: fmt.Sprintf("{name: %s, match: {protocol: udp, ports: [%d]}, per: source, rate: 10/s}", name, port)}
}

// Rules from the command line come into force in their order, each that goes
// with those before it; where a fifth meets four on a packet, it is set aside,
// and so is a second one of a name.
func TestAddedRulesThatDoNotGoTogether(t *testing.T) {
	var all state
	var want []string
	for i := range 40 {
		name := fmt.Sprintf("r%d", i)
		port := 1000 + i
		if i%4 == 0 {
			port = 53 // ten of them, of which four may meet
		}
		if port != 53 || i < 16 {
			want = append(want, name)
		}
		all.Rules = append(all.Rules, added(name, port))
	}
	all.Rules = append(all.Rules, added("r1", 9999))
	p, err := merge(&config.Config{}, all, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got, aside []string
	for _, r := range p.rules {
		got = append(got, r.Name)
	}
	for _, r := range p.aside {
		aside = append(aside, r.Name)
		if r.aside == "" {
			t.Errorf("rule %s is set aside without a cause", r.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
	if wantAside := []string{"r16", "r20", "r24", "r28", "r32", "r36", "r1"}; !slices.Equal(aside, wantAside) {
		t.Errorf("set aside: %v, want %v", aside, wantAside)
	}
}

// A thousand rules from the command line cost a change about what their reading
// costs.
func BenchmarkMergeThousandRules(b *testing.B) {
	var all state
	for i := range 1000 {
		all.Rules = append(all.Rules, added(fmt.Sprintf("r%d", i), 1000+i))
	}
	for b.Loop() {
		p, err := merge(&config.Config{}, all, nil)
		if err != nil || len(p.rules) != 1000 {
			b.Fatalf("%v, %d rules in force", err, len(p.rules))
		}
	}
}
