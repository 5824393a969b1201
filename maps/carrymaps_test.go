package maps

import (
	"slices"
	"strings"
	"testing"
)

// RC-035: a reason has another number in another version: its counter follows
// its name.
func TestCarryOverReasonsByName(t *testing.T) {
	pins := pinOther(t, func(_ string, s *shapes) {
		swap := strings.NewReplacer("reasons.block.", "reasons.over_rate.", "reasons.over_rate.", "reasons.block.")
		cpus := s.Maps["cpus"]
		for i := range cpus.Value {
			cpus.Value[i].Name = swap.Replace(cpus.Value[i].Name)
		}
	})
	g := openPinned(t, pins, minSlots)
	reasons, err := g.Reasons()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"within_rate": 5, "over_rate": 1, "block": 4}
	for _, r := range reasons {
		if r.Packets != want[r.Reason] {
			t.Errorf("%s: %d packets, want %d", r.Reason, r.Packets, want[r.Reason])
		}
	}
	if _, lost, _ := g.Carried(); len(lost) != 0 {
		t.Errorf("lost %q", lost)
	}
}

// What maps look like is told by the names of numbers, not of types.
func TestDescribe(t *testing.T) {
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	s, err := describe(spec)
	if err != nil {
		t.Fatal(err)
	}
	want := []field{{"passed.packets", 0, 8}, {"passed.bytes", 8, 8}, {"refused.packets", 16, 8}, {"refused.bytes", 24, 8}, {"watched.packets", 32, 8}, {"watched.bytes", 40, 8}}
	if got := s.Maps["rule_counters"].Value; !slices.Equal(got, want) {
		t.Errorf("rule_counters: %v, want %v", got, want)
	}
	if f, ok := s.Maps["cpus"].find("reasons.block.bytes"); !ok || f.Size != 8 {
		t.Errorf("the bytes of reason block: %v", f)
	}
	if f, ok := s.Maps["buckets"].find("way.3.tat"); !ok || f != (field{"way.3.tat", 56, 8}) {
		t.Errorf("the last TAT of a line: %v", f)
	}
	if f, ok := s.Maps["events"].find("end"); !ok || f.Size != 8 {
		t.Errorf("the end in an event: %v", f)
	}
	for name, m := range s.Maps {
		if len(m.Value) == 0 {
			t.Errorf("%s is not described", name)
		}
	}
}
