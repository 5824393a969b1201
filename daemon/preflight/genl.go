package preflight

import (
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of linux/netdev.h, which x/sys does not have.
const (
	netdevGet         = 1 // NETDEV_CMD_DEV_GET
	netdevIndex       = 1 // NETDEV_A_DEV_IFINDEX
	netdevXDPFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES

	xdpBasic = 1 << 0 // NETDEV_XDP_ACT_BASIC
	xdpFrags = 1 << 5 // NETDEV_XDP_ACT_RX_SG
)

// header begins a message of generic netlink. (The library's leaves the reserved
// bytes to chance, and newer families refuse what is not zero there.)
type header struct{ command, version uint8 }

func (header) Len() int            { return nl.SizeofGenlmsg }
func (h header) Serialize() []byte { return []byte{h.command, h.version, 0, 0} }

// ask sends one request of a generic netlink family and returns the attributes
// of the answer.
func ask(family string, version, command uint8, attr *nl.RtAttr) (map[uint16][]byte, error) {
	f, err := netlink.GenlFamilyGet(family)
	if err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(int(f.ID), 0)
	req.AddData(header{command, version})
	req.AddData(attr)
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil || len(answers) == 0 {
		return nil, err
	}
	return attributes(answers[0][nl.SizeofGenlmsg:])
}

// attributes splits a message; the flag of nested ones is taken off.
func attributes(data []byte) (map[uint16][]byte, error) {
	list, err := nl.ParseRouteAttr(data)
	if err != nil {
		return nil, err
	}
	out := make(map[uint16][]byte, len(list))
	for _, a := range list {
		out[a.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)] = a.Value
	}
	return out, nil
}

func word(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return nl.NativeEndian().Uint32(b)
}

// askEthtool asks about one interface; nothing where the driver has no answer.
func askEthtool(command uint8, head uint16, index int) map[uint16][]byte {
	attr := nl.NewRtAttr(int(head)|unix.NLA_F_NESTED, nil)
	attr.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(index)))
	out, err := ask("ethtool", 1, command, attr)
	if err != nil {
		return nil
	}
	return out
}

func channels(index int) Channels {
	a := askEthtool(unix.ETHTOOL_MSG_CHANNELS_GET, unix.ETHTOOL_A_CHANNELS_HEADER, index)
	return Channels{
		RX:          word(a[unix.ETHTOOL_A_CHANNELS_RX_COUNT]),
		TX:          word(a[unix.ETHTOOL_A_CHANNELS_TX_COUNT]),
		Combined:    word(a[unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT]),
		MaxRX:       word(a[unix.ETHTOOL_A_CHANNELS_RX_MAX]),
		MaxTX:       word(a[unix.ETHTOOL_A_CHANNELS_TX_MAX]),
		MaxCombined: word(a[unix.ETHTOOL_A_CHANNELS_COMBINED_MAX]),
	}
}

// features are those that are on, by name.
func features(index int) map[string]bool {
	a := askEthtool(unix.ETHTOOL_MSG_FEATURES_GET, unix.ETHTOOL_A_FEATURES_HEADER, index)
	set, err := attributes(a[unix.ETHTOOL_A_FEATURES_ACTIVE])
	if err != nil {
		return nil
	}
	bits, err := nl.ParseRouteAttr(set[unix.ETHTOOL_A_BITSET_BITS])
	if err != nil {
		return nil
	}
	on := map[string]bool{}
	for _, b := range bits {
		if bit, err := attributes(b.Value); err == nil {
			on[unix.ByteSliceToString(bit[unix.ETHTOOL_A_BITSET_BIT_NAME])] = true
		}
	}
	return on
}

func xdp(index int) *XDP {
	a, err := ask("netdev", 1, netdevGet, nl.NewRtAttr(netdevIndex, nl.Uint32Attr(uint32(index))))
	bits, ok := a[netdevXDPFeatures]
	if err != nil || !ok || len(bits) < 8 {
		return nil
	}
	n := nl.NativeEndian().Uint64(bits)
	return &XDP{Basic: n&xdpBasic != 0, Frags: n&xdpFrags != 0}
}
