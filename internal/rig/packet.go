package rig

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Packet describes one Ethernet frame. Its zero fields take what is usual;
// what is set is written as it is, also when it is wrong.
type Packet struct {
	SrcMAC, DstMAC net.HardwareAddr // nil: locally administered ones
	Tags           []Tag            // VLAN tags, the outermost first

	Src, Dst netip.Addr // both IPv4 or both IPv6
	TTL      uint8      // or hop limit; 0: 64
	Options  []byte     // IPv4 options, a multiple of 4 bytes
	Headers  []Header   // IPv6 extension headers in their order
	Fragment *Fragment

	Protocol         layers.IPProtocol // 0: UDP
	SrcPort, DstPort uint16            // TCP, UDP
	Flags            Flags             // TCP
	Type, Code       uint8             // ICMP, ICMPv6

	Payload  []byte // goes before the marker
	Length   int    // of the whole frame without FCS, zeros before the marker; 0: as it comes
	Stream   uint32 // goes into the marker
	Trailer  bool   // the marker follows the IP packet, as Ethernet padding does
	Unmarked bool   // no marker: a receiver can't count the frame
}

// Tag is a VLAN tag: 802.1Q (0x8100, what the zero Type means) or 802.1ad
// (0x88a8).
type Tag struct {
	Type     layers.EthernetType
	ID       uint16
	Priority uint8
}

// Header is an IPv6 extension header: its number and all that follows the
// length byte, padded to the 8 bytes that the length counts.
type Header struct {
	Protocol layers.IPProtocol
	Body     []byte
}

// Fragment makes the packet one of a fragmented datagram. Any but the first
// one (Offset 0) has no TCP, UDP or ICMP header.
type Fragment struct {
	ID     uint32
	Offset uint16 // in 8 bytes
	More   bool
}

// Flags are those of TCP that filters look at.
type Flags struct{ SYN, ACK, FIN, RST, PSH bool }

// UDP returns a packet from any source on the peer's side to a port of the
// gate, in the family of source.
func (l Link) UDP(source netip.Addr, port uint16) Packet {
	dst := l.Gate.IPv4
	if source.Is6() {
		dst = l.Gate.IPv6
	}
	return Packet{
		SrcMAC: l.Peer.MAC, DstMAC: l.Gate.MAC,
		Src: source, Dst: dst, SrcPort: 40000, DstPort: port,
	}
}

// Frame builds the frame with all its checksums. It has at least the 60 bytes
// that Ethernet asks for.
func (p Packet) Frame() ([]byte, error) {
	if !p.Src.IsValid() || p.Src.Is4() != p.Dst.Is4() {
		return nil, fmt.Errorf("build packet %v to %v: source and destination must be of one family", p.Src, p.Dst)
	}
	tail := p.tail()
	const probe = 100 // long enough to be above Ethernet's minimum
	probed, err := p.serialize(make([]byte, probe))
	if err != nil {
		return nil, err
	}
	size := len(probed) - probe + len(p.Payload) + len(tail)
	if p.Length != 0 && p.Length < size {
		return nil, fmt.Errorf("build packet of %d bytes: its headers, payload and marker need %d", p.Length, size)
	}
	if p.Trailer {
		frame, err := p.serialize(p.Payload)
		return pad(frame, p.Length-len(tail), tail), err
	}
	return p.serialize(pad(p.Payload, max(p.Length, 60)-size+len(p.Payload), tail))
}

func (p Packet) tail() []byte {
	if p.Unmarked {
		return nil
	}
	return marker(p.Stream)
}

// pad returns head, zeros up to size, and tail.
func pad(head []byte, size int, tail []byte) []byte {
	head = bytes.Clone(head)
	if missing := size - len(head); missing > 0 {
		head = append(head, make([]byte, missing)...)
	}
	return append(head, tail...)
}

// MustFrame is Frame for packets that are written down in a test.
func (p Packet) MustFrame() []byte {
	frame, err := p.Frame()
	if err != nil {
		panic(err)
	}
	return frame
}

func (p Packet) serialize(payload []byte) ([]byte, error) {
	ip, network := p.network()
	stack := append(p.link(), ip...)
	if p.Fragment == nil || p.Fragment.Offset == 0 {
		transport, err := p.transport(network)
		if err != nil {
			return nil, err
		}
		stack = append(stack, transport...)
	}
	stack = append(stack, gopacket.Payload(payload))
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, stack...); err != nil {
		return nil, fmt.Errorf("build packet %v to %v: %w", p.Src, p.Dst, err)
	}
	return bytes.Clone(buf.Bytes()), nil
}

// link returns Ethernet and the tags.
func (p Packet) link() []gopacket.SerializableLayer {
	eth := &layers.Ethernet{SrcMAC: p.SrcMAC, DstMAC: p.DstMAC}
	if eth.SrcMAC == nil {
		eth.SrcMAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	}
	if eth.DstMAC == nil {
		eth.DstMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	}
	stack := []gopacket.SerializableLayer{eth}
	next := &eth.EthernetType
	for _, t := range p.Tags {
		*next = t.Type
		if t.Type == 0 {
			*next = layers.EthernetTypeDot1Q
		}
		tag := &layers.Dot1Q{VLANIdentifier: t.ID, Priority: t.Priority}
		stack = append(stack, tag)
		next = &tag.Type
	}
	*next = layers.EthernetTypeIPv6
	if p.Src.Is4() {
		*next = layers.EthernetTypeIPv4
	}
	return stack
}

// network returns the IP header, with what extends it, and the layer that
// checksums are taken over.
func (p Packet) network() ([]gopacket.SerializableLayer, gopacket.NetworkLayer) {
	if p.Src.Is4() {
		ip := p.ipv4()
		return []gopacket.SerializableLayer{ip}, ip
	}
	return p.ipv6()
}

// ipv4 hands options over as padding, which gopacket writes as it is.
func (p Packet) ipv4() *layers.IPv4 {
	ip := &layers.IPv4{
		Version: 4, TTL: p.ttl(), Protocol: p.protocol(),
		SrcIP: p.Src.AsSlice(), DstIP: p.Dst.AsSlice(),
		Padding: p.Options,
	}
	if f := p.Fragment; f != nil {
		ip.Id, ip.FragOffset = uint16(f.ID), f.Offset
		if f.More {
			ip.Flags = layers.IPv4MoreFragments
		}
	}
	return ip
}

// ipv6 chains the extension headers by hand: gopacket orders and pads those
// it knows, and tests want them as they are written.
func (p Packet) ipv6() ([]gopacket.SerializableLayer, gopacket.NetworkLayer) {
	headers := p.Headers
	if f := p.Fragment; f != nil {
		more := byte(0)
		if f.More {
			more = 1
		}
		body := []byte{
			byte(f.Offset >> 5), byte(f.Offset<<3) | more,
			byte(f.ID >> 24), byte(f.ID >> 16), byte(f.ID >> 8), byte(f.ID),
		}
		headers = append(headers[:len(headers):len(headers)], Header{layers.IPProtocolIPv6Fragment, body})
	}
	ip := &layers.IPv6{
		Version: 6, HopLimit: p.ttl(), NextHeader: p.protocol(),
		SrcIP: p.Src.AsSlice(), DstIP: p.Dst.AsSlice(),
	}
	stack := []gopacket.SerializableLayer{ip}
	for i, h := range headers {
		if i == 0 {
			ip.NextHeader = h.Protocol
		}
		next := p.protocol()
		if i+1 < len(headers) {
			next = headers[i+1].Protocol
		}
		stack = append(stack, gopacket.Payload(h.bytes(next)))
	}
	return stack, ip
}

func (h Header) bytes(next layers.IPProtocol) []byte {
	b := append([]byte{byte(next), 0}, h.Body...)
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	switch h.Protocol {
	case layers.IPProtocolIPv6Fragment: // RFC 8200, 4.5: reserved, not a length
	case layers.IPProtocolAH: // RFC 4302, 2.2: in 4 bytes, less 2
		b[1] = byte(len(b)/4 - 2)
	default: // RFC 8200, 4.2: in 8 bytes, the first not counted
		b[1] = byte(len(b)/8 - 1)
	}
	return b
}

func (p Packet) transport(network gopacket.NetworkLayer) ([]gopacket.SerializableLayer, error) {
	var layer interface {
		gopacket.SerializableLayer
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}
	switch p.protocol() {
	case layers.IPProtocolUDP:
		layer = &layers.UDP{SrcPort: layers.UDPPort(p.SrcPort), DstPort: layers.UDPPort(p.DstPort)}
	case layers.IPProtocolTCP:
		layer = &layers.TCP{
			SrcPort: layers.TCPPort(p.SrcPort), DstPort: layers.TCPPort(p.DstPort), Window: 64240,
			SYN: p.Flags.SYN, ACK: p.Flags.ACK, FIN: p.Flags.FIN, RST: p.Flags.RST, PSH: p.Flags.PSH,
		}
	case layers.IPProtocolICMPv6:
		layer = &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(p.Type, p.Code)}
	case layers.IPProtocolICMPv4:
		return []gopacket.SerializableLayer{&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(p.Type, p.Code)}}, nil
	default:
		return nil, nil
	}
	return []gopacket.SerializableLayer{layer}, layer.SetNetworkLayerForChecksum(network)
}

func (p Packet) protocol() layers.IPProtocol {
	if p.Protocol == 0 {
		return layers.IPProtocolUDP
	}
	return p.Protocol
}

func (p Packet) ttl() uint8 {
	if p.TTL == 0 {
		return 64
	}
	return p.TTL
}
