package maps_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/internal/spray"
	"github.com/headgate/headgate/maps"
)

// The number of tables that a packet looks into depends on the fields that
// rules ask for, not on how many rules there are.
func TestLookupsDoNotGrowWithRules(t *testing.T) {
	rig.RequireRoot(t)
	g, err := maps.Open(maps.Options{Slots: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	counted, err := spray.Count(g)
	if err != nil {
		t.Fatal(err)
	}
	defer counted.Close()
	packets := map[string]rig.Packet{
		"one limit": {Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("192.0.2.1"), DstPort: spray.MetPort},
		"no limit":  {Src: netip.MustParseAddr("10.0.0.2"), Dst: netip.MustParseAddr("192.0.2.1"), DstPort: 9, Protocol: layers.IPProtocolTCP},
		"IPv6":      {Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8::2"), DstPort: spray.MetPort},
	}
	wants := map[string]uint64{}
	for _, n := range []int{12, 100, 1000, 10_000} {
		rules := append(spray.Mixed(n), spray.Meeting(config.Rate{Amount: 1000, Interval: time.Second, Unit: config.Count}, 1000))
		start := time.Now()
		if err := g.SetRules(rules, config.Management{}, nil); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d rules in force after %v", n, time.Since(start))
		for name, p := range packets {
			p.Unmarked = true
			frame := p.MustFrame()
			for range 2 { // the first claims its bucket
				if _, _, err := counted.Judge(frame); err != nil {
					t.Fatal(err)
				}
			}
			verdict, lookups, err := counted.Judge(frame)
			if err != nil || verdict != 2 {
				t.Fatalf("%s: verdict %d, %v", name, verdict, err)
			}
			if want, ok := wants[name]; ok && lookups != want {
				t.Errorf("%s: %d look-ups with %d rules, %d with 12", name, lookups, n, want)
			} else if !ok {
				wants[name] = lookups
			}
		}
	}
	if wants["one limit"] <= wants["no limit"] || wants["no limit"] == 0 {
		t.Errorf("look-ups were not counted: %v", wants)
	}
	t.Logf("look-ups: %v", wants)
}
