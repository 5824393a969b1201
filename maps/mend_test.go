package maps

import (
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

func TestResetSource(t *testing.T) {
	g := fixedGate(t)
	plain, wide := perSource("plain", 1, time.Hour, 4, config.Match{}), perSource("wide", 1, time.Hour, 3, config.Match{})
	wide.SourceBits4, wide.SourceBits6 = 24, 56
	total := perSource("total", 1000, time.Hour, 1000, config.Match{})
	total.Per = []config.Per{config.PerTotal}
	for _, c := range []struct {
		rule          config.Rule
		source, reset string
		burst         int
		other         string
	}{
		{plain, "203.0.113.7", "203.0.113.7", 4, "203.0.113.8"},
		{plain, "2001:db8::7", "2001:db8::9", 4, "2001:db8:0:1::7"},
		{wide, "203.0.113.7", "::ffff:203.0.113.9", 3, "203.0.114.7"},
		{wide, "2001:db8::7", "2001:db8:0:ff::1", 3, "2001:db8:0:100::7"},
	} {
		g.rules(c.rule, total)
		g.count(10, from(c.source))
		g.count(10, from(c.other))
		g.want("over_rate", from(c.source))
		spent, err := g.ResetSource(c.rule, netip.MustParseAddr(c.reset))
		if err != nil || !spent {
			t.Fatalf("%s %s: %v %v", c.rule.Name, c.reset, spent, err)
		}
		if passed := g.count(10, from(c.source)); passed != c.burst {
			t.Errorf("%s: %d packets of %s passed, want the burst of %d", c.rule.Name, passed, c.source, c.burst)
		}
		g.want("over_rate", from(c.other))
	}
	if spent, err := g.ResetSource(wide, netip.MustParseAddr("192.0.2.1")); spent || err != nil {
		t.Errorf("of a source that was never seen: %v %v", spent, err)
	}
	if _, err := g.ResetSource(total, netip.MustParseAddr("192.0.2.1")); err == nil {
		t.Error("the bucket of all was reset as if it were one source's")
	}
	if _, err := g.ResetSource(plain, netip.MustParseAddr("192.0.2.1")); err == nil {
		t.Error("a rule that is not in force was reset")
	}
}
