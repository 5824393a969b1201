package config

import "testing"

// What check says of memory adds up the bounds of rules, and says when they are
// more than there is.
func TestMemory(t *testing.T) {
	http := HTTP{Listeners: []Listener{{}}, Memory: 256 << 20}
	rule := func(memory int64) Rule { return Rule{Gate: GateHTTP, Memory: memory} }
	for _, tc := range []struct {
		cfg  Config
		want string
	}{
		{Config{HTTP: http, Rules: []Rule{rule(0), {Gate: GateNetwork}}}, "memory: the keys of all rules take at most 256MiB (http.memory)"},
		{Config{HTTP: http, Rules: []Rule{rule(16 << 20), rule(64 << 20), rule(0)}},
			"memory: the keys of all rules take at most 256MiB (http.memory); the bounds that rules have of their own (2) add up to 80MiB, without one: 1"},
		{Config{HTTP: http, Rules: []Rule{rule(200 << 20), rule(100 << 20)}},
			"memory: the keys of all rules take at most 256MiB (http.memory); the bounds that rules have of their own (2) add up to 300MiB, which is more: rules can take each other's room (raise http.memory)"},
	} {
		if got := Memory(&tc.cfg).String(); got != tc.want {
			t.Errorf("%s\nwant %s", got, tc.want)
		}
	}
	if Memory(&Config{}) != nil {
		t.Error("memory of a gate that is off")
	}
}
