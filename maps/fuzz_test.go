package maps

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/packets"
	"github.com/headgate/headgate/internal/rig"
)

// FuzzParser holds the program's parser against gopacket's, which shares
// nothing with it: what gopacket says is the source decides whether a frame
// is blocked, and what it says is the port decides which rule counts it.
func FuzzParser(f *testing.F) {
	rig.RequireRoot(f)
	for _, v6 := range []bool{false, true} {
		source := "203.0.113.5"
		if v6 {
			source = "2001:db8::5"
		}
		for _, dress := range packets.Dress(v6) {
			p := from(source)
			dress(&p)
			p.Unmarked = true
			f.Add(p.MustFrame())
		}
	}
	f.Add(packets.ARP("203.0.113.5", 1))
	for _, p := range []rig.Packet{packets.ICMPv6("fe80::1", 135, 255), packets.DHCP("192.0.2.254", 67, 68), packets.TooBig("198.51.100.1", "192.0.2.1")} {
		p.Unmarked = true
		f.Add(p.MustFrame())
	}
	g, err := Open(Options{Slots: minSlots, Clock: ClockFixed})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { g.Close() })
	watch := perSource("port", 1_000_000, time.Second, 1_000_000, udpPorts(9000))
	if err := g.SetRules([]config.Rule{watch}, config.Management{}, nil); err != nil {
		f.Fatal(err)
	}
	// half of all sources are blocked
	if err := g.SetLists(Lists{Block: forever("128.0.0.0/1", "8000::/1")}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 3000 {
			return
		}
		tg := testGate{g, t}
		tg.advance(time.Second) // vital traffic stays within its caps
		before := tg.counted("port")
		reason := tg.judge(frame)
		counted := tg.counted("port") - before
		want := decode(frame)
		escaped := reason == "no_rule" || reason == "within_rate" || reason == "not_ip" || (reason == "vital" && !want.mayBeVital)
		if want.source.IsValid() && blockedHalf(want.source) && escaped {
			t.Errorf("passed as %s, but gopacket reads the blocked source %v: % x", reason, want.source, frame)
		}
		if counted == 1 && want.source.IsValid() && !want.port9000 {
			t.Errorf("counted for UDP port 9000, gopacket reads %v: % x", want, frame)
		}
		if counted == 0 && want.port9000 && reason == "no_rule" {
			t.Errorf("not counted for UDP port 9000, which gopacket reads: % x", frame)
		}
	})
}

func (g testGate) counted(rule string) uint64 {
	g.t.Helper()
	counters, err := g.RuleCounters()
	if err != nil {
		g.t.Fatal(err)
	}
	c := counters[rule]
	return c.PassedPackets + c.RefusedPackets
}

func blockedHalf(a netip.Addr) bool { return a.AsSlice()[0] >= 0x80 }

// decoded is what gopacket makes of a frame.
type decoded struct {
	source     netip.Addr
	port9000   bool
	mayBeVital bool
}

// decode leaves source invalid where gopacket finds no IP header at all.
func decode(frame []byte) (d decoded) {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
	tags, start, under := 0, 0, layers.EthernetType(0)
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.Ethernet:
			under = l.EthernetType
		case *layers.Dot1Q:
			under = l.Type
			tags++
		case *layers.ARP:
			d.mayBeVital = true
		case *layers.IPv4:
			// the first IP header decides, if Ethernet says that it is one;
			// what a tunnel carries does not
			if under != layers.EthernetTypeIPv4 || len(l.Contents) < 20 {
				return d
			}
			d.source, _ = netip.AddrFromSlice(l.SrcIP)
			d.mayBeVital = l.Protocol == layers.IPProtocolUDP || l.Protocol == layers.IPProtocolICMPv4
			d.port9000 = l.FragOffset == 0 && l.Protocol == layers.IPProtocolUDP && portOf(l.Payload) == 9000
			return d.within(tags)
		case *layers.IPv6:
			if under != layers.EthernetTypeIPv6 || len(l.Contents) < 40 {
				return d
			}
			d.source, _ = netip.AddrFromSlice(l.SrcIP)
			d.mayBeVital = true
			// gopacket swallows a hop-by-hop header here: walk the frame itself
			rest := frame[min(start+len(l.Contents), len(frame)):]
			d.port9000 = udpPort6(layers.IPProtocol(l.Contents[6]), rest) == 9000
			return d.within(tags)
		}
		start += len(l.LayerContents())
	}
	return d
}

// within forgets what lies behind more tags than the program walks.
func (d decoded) within(tags int) decoded {
	if tags > 4 {
		return decoded{}
	}
	return d
}

func portOf(udp []byte) int {
	if len(udp) < 4 {
		return 0
	}
	return int(binary.BigEndian.Uint16(udp[2:]))
}

// udpPort6 walks extension headers with gopacket's decoders, one at a time.
func udpPort6(next layers.IPProtocol, data []byte) int {
	for range 13 {
		switch next {
		case layers.IPProtocolUDP:
			return portOf(data)
		case layers.IPProtocolIPv6Fragment:
			if len(data) < 8 || binary.BigEndian.Uint16(data[2:])>>3 != 0 {
				return 0
			}
			next, data = layers.IPProtocol(data[0]), data[8:]
		case layers.IPProtocolAH:
			if len(data) < 8 || len(data) < (int(data[1])+2)*4 {
				return 0
			}
			next, data = layers.IPProtocol(data[0]), data[(int(data[1])+2)*4:]
		case layers.IPProtocolIPv6HopByHop, layers.IPProtocolIPv6Routing, layers.IPProtocolIPv6Destination, 135, 139, 140:
			if len(data) < 8 || len(data) < (int(data[1])+1)*8 {
				return 0
			}
			next, data = layers.IPProtocol(data[0]), data[(int(data[1])+1)*8:]
		default:
			return 0
		}
	}
	return 0
}
