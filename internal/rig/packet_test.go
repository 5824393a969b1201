package rig

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// testLink is a link that need not exist.
func testLink() Link { return newLink(nil, nil, 1) }

// gopacket reads back what the builder wrote: no layer fails, lengths and
// checksums fit whatever the number is.
func TestShapesAreValid(t *testing.T) {
	for _, shape := range shapes(testLink()) {
		t.Run(shape.name, func(t *testing.T) {
			frame := shape.packet.MustFrame()
			for _, seq := range []uint64{0, 1, 0xffff, 0x123456789abcdef0, ^uint64(0)} {
				number(frame, seq)
				stream, got, ok := readMarker(frame)
				if !ok || got != seq || stream != shape.packet.Stream {
					t.Fatalf("marker reads %d, %d, %v; want %d, %d", stream, got, ok, shape.packet.Stream, seq)
				}
				checkFrame(t, frame, shape.packet)
			}
		})
	}
}

func checkFrame(t *testing.T, frame []byte, p Packet) {
	t.Helper()
	decoded := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if e := decoded.ErrorLayer(); e != nil && p.Protocol != layers.IPProtocolGRE {
		t.Fatalf("decode: %v", e.Error())
	}
	if got := source(frame); got != p.Src {
		t.Errorf("source reads %v, want %v", got, p.Src)
	}
	if p.Fragment != nil {
		return // its checksum is over the whole datagram
	}
	for _, layer := range decoded.Layers() {
		over, ok := layer.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		})
		if ok {
			if err := over.SetNetworkLayerForChecksum(decoded.NetworkLayer()); err != nil {
				t.Fatal(err)
			}
		}
	}
	err, wrong := decoded.VerifyChecksums()
	if err != nil || len(wrong) != 0 {
		t.Errorf("checksums: %v %v", err, wrong)
	}
}

func TestFragmentFields(t *testing.T) {
	for _, shape := range shapes(testLink()) {
		want := shape.packet.Fragment
		if want == nil {
			continue
		}
		var got Fragment
		decoded := gopacket.NewPacket(shape.packet.MustFrame(), layers.LayerTypeEthernet, gopacket.Default)
		if ip, ok := decoded.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
			got = Fragment{uint32(ip.Id), ip.FragOffset, ip.Flags&layers.IPv4MoreFragments != 0}
		}
		if f, ok := decoded.Layer(layers.LayerTypeIPv6Fragment).(*layers.IPv6Fragment); ok {
			got = Fragment{f.Identification, f.FragmentOffset, f.MoreFragments}
		}
		if got != *want {
			t.Errorf("%s: got %+v, want %+v", shape.name, got, *want)
		}
	}
}

func TestLengths(t *testing.T) {
	p := testLink().UDP(netip.MustParseAddr("192.0.2.7"), 53)
	for _, want := range []int{66, 67, 1000, 1514} {
		p.Length = want
		if got := len(p.MustFrame()); got != want {
			t.Errorf("length %d: frame of %d bytes", want, got)
		}
	}
	p.Length = 60
	if _, err := p.Frame(); err == nil || !strings.Contains(err.Error(), "need 66") {
		t.Errorf("length 60: error %v, want one that names 66 bytes", err)
	}
	p = Packet{Src: p.Src, Dst: netip.MustParseAddr("2001:db8::1")}
	if _, err := p.Frame(); err == nil {
		t.Error("mixed families: no error")
	}
}
