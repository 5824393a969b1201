package maps

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/packets"
)

// Vital traffic has caps of its own, 200/s a source and 10 000/s in all;
// beyond them what holds for its source holds.
func TestVitalCaps(t *testing.T) {
	g := fixedGate(t)
	g.rules()
	g.lists(Lists{Block: forever("192.0.2.0/24", "fe80::/10")})
	solicit := packets.ICMPv6("fe80::1", 135, 255)
	solicit.SrcMAC = net.HardwareAddr{2, 1, 0, 0, 0, 0}
	if got := g.count(250, solicit); got != vitalPerSource {
		t.Errorf("%d of 250 solicitations of one station passed, want %d", got, vitalPerSource)
	}
	// its link address is the source: another of the same prefix is another
	solicit.SrcMAC = net.HardwareAddr{2, 1, 0, 0, 0, 1}
	g.want("vital", solicit)
	g.advance(time.Second)
	passed := 0
	for station := range uint16(120) {
		solicit.SrcMAC = net.HardwareAddr{2, 2, 0, 0, 0, 0}
		binary.BigEndian.PutUint16(solicit.SrcMAC[4:], station)
		passed += g.count(100, solicit)
	}
	if passed != vitalTotal {
		t.Errorf("%d of 12000 solicitations of 120 stations passed, want %d", passed, vitalTotal)
	}
	g.wantFrame("block", packets.ARP("192.0.2.9", 1))
	g.wantFrame("no_rule", packets.ARP("203.0.113.9", 1))
	g.advance(time.Second)
	g.wantFrame("vital", packets.ARP("192.0.2.9", 1))
}
