package maps

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/packets"
)

// RC-007, RC-010, RC-011, RC-072, RC-073: every frame of every table gets its
// reason from both programs. make test-kernels runs the same on other kernels.
func TestPacketTables(t *testing.T) {
	g := fixedGate(t)
	for _, table := range packets.All() {
		t.Run(table.Name, func(t *testing.T) {
			r, err := table.Run(testGate{g.Gate, t})
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range r.Failed[:min(len(r.Failed), 20)] {
				t.Error(line)
			}
			t.Logf("%d frames passed, %d failed", r.Passed, len(r.Failed))
			if r.NotRun > 0 {
				t.Skipf("%d frames not run: %v", r.NotRun, packets.ErrCannotForm)
			}
		})
	}
}

// A table whose reason is wrong says so for both programs, and names frame,
// program and both reasons.
func TestPacketTableNoticesAWrongReason(t *testing.T) {
	g := fixedGate(t)
	frame := packets.From("203.0.113.5").MustFrame()
	table := packets.Table{Name: "wrong", Cases: []packets.Case{
		{Name: "right", Reason: "no_rule", Frame: frame},
		{Name: "wrong", Reason: "block", Frame: frame},
	}}
	r, err := table.Run(g)
	if err != nil {
		t.Fatal(err)
	}
	if r.Passed != 2 || len(r.Failed) != 2 {
		t.Fatalf("%+v, want one passed and one failed for each program", r)
	}
	for i, program := range []string{"frags", "plain"} {
		if want := "wrong (" + program + " program): reason no_rule, want block"; !strings.Contains(r.Failed[i], want) {
			t.Errorf("%q does not say %q", r.Failed[i], want)
		}
	}
}

// A rule counts a frame of several buffers once, with all its bytes, passed or
// refused; and the plain program those of the first buffer.
func TestRuleCountsWholeFrames(t *testing.T) {
	g := fixedGate(t)
	rule := perSource("bytes", 1000, time.Second, 20_000, config.Match{})
	rule.Rate.Unit = config.Bytes
	g.rules(rule)
	p := packets.From("203.0.113.5")
	p.Length = 9014
	for range 3 {
		g.judge(p.MustFrame())
	}
	counters, err := g.RuleCounters()
	if err != nil {
		t.Fatal(err)
	}
	want := Counters{PassedPackets: 2, PassedBytes: 2 * 9014, RefusedPackets: 1, RefusedBytes: 9014}
	if got := counters["bytes"]; got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	const linear = 1000
	reason, err := packets.Judge(g, p.MustFrame(), linear, false)
	if errors.Is(err, packets.ErrCannotForm) {
		t.Skip(err)
	}
	if err != nil || reason != "within_rate" {
		t.Fatalf("the plain program says %s, %v: 1000 bytes fit into the bucket", reason, err)
	}
	if counters, err = g.RuleCounters(); err != nil {
		t.Fatal(err)
	}
	if got := counters["bytes"].PassedBytes; got != want.PassedBytes+linear {
		t.Errorf("the plain program counted %d bytes, want %d", got-want.PassedBytes, linear)
	}
}
