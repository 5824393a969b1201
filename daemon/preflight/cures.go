package preflight

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// obstacle is one reason why native XDP is refused, and what cures it. when
// tells it beforehand, from the facts; text and errno tell it afterwards, from
// the kernel's answer. Of drivers that write to the kernel log alone, errno and
// facts together tell it.
type obstacle struct {
	driver string            // as `ethtool -i` names it; empty: the kernel itself
	when   func(*Facts) bool // nil: cannot be told from outside
	text   string            // a part of the kernel's answer that does not change
	errno  unix.Errno
	why    string
	cure   string // with names and numbers in braces, see remedy
	source string // where the kernel refuses, in the version that was read
}

// What XDP and the kernel keep of a buffer of one page, and what surrounds the
// payload of a frame; in bytes.
const (
	headroom   = 256 // XDP_PACKET_HEADROOM
	sharedInfo = 320 // struct skb_shared_info, aligned, on 64 bits
	ethernet   = 14
	vlanTag    = 4
	checksum   = 4

	intelMTU = 3072 - ethernet - checksum - vlanTag // for one receive buffer of Intel's drivers
)

// untaggedMTU is the largest MTU of drivers that give a frame one page.
func untaggedMTU() int { return os.Getpagesize() - headroom - sharedInfo - ethernet }

// taggedMTU is that of drivers that count a VLAN tag and the checksum too.
func taggedMTU() int { return untaggedMTU() - vlanTag - checksum }

// frags tells whether frames may come in several buffers. Where the driver does
// not say, they do not.
func (f *Facts) frags() bool { return f.XDP != nil && f.XDP.Frags }

// noNative tells whether the driver has no native XDP at all. Before Linux 6.3
// nobody says, but the kinds of link that never had it are known.
func (f *Facts) noNative() bool {
	if f.XDP != nil {
		return !f.XDP.Basic
	}
	switch f.Kind {
	case "vlan", "bridge", "macvlan", "ipvlan", "dummy", "vxlan", "ifb":
		return true
	}
	return f.Name == "lo"
}

// of tells whether the obstacle may be one of f.
func (o *obstacle) of(f *Facts) bool {
	switch o.driver {
	case "", f.Driver:
		return true
	case "veth":
		return f.Kind == "veth"
	case "bonding":
		return f.Kind == "bond"
	}
	return false
}

// remedy is the cure with its names and numbers.
func (o *obstacle) remedy(f *Facts) string {
	peer, peerTX := "PEER", "N"
	if f.Peer != nil {
		peer, peerTX = f.Peer.Name, fmt.Sprint(f.Peer.Channels.Send())
	}
	return strings.NewReplacer(
		"{if}", f.Name, "{peer}", peer, "{master}", f.Master,
		"{mtu}", fmt.Sprint(untaggedMTU()), "{tagged mtu}", fmt.Sprint(taggedMTU()),
		"{rx}", fmt.Sprint(f.Channels.Receive()), "{peer tx}", peerTX,
		"{half}", fmt.Sprint(max(1, f.Channels.MaxCombined/2)),
	).Replace(o.cure)
}

// foreseen is the first obstacle that the facts show.
func foreseen(f *Facts) *obstacle {
	for i := range obstacles {
		if o := &obstacles[i]; o.of(f) && o.when != nil && o.when(f) {
			return o
		}
	}
	return nil
}

// recognised is the obstacle that an answer of the kernel speaks of: by its
// text, else by its number where the facts agree, else by its number alone.
func recognised(f *Facts, errno unix.Errno, text string) *obstacle {
	fits := []func(*obstacle) bool{
		func(o *obstacle) bool { return text != "" && o.text != "" && strings.Contains(text, o.text) },
		func(o *obstacle) bool { return text == "" && o.errno == errno && o.when != nil && o.when(f) },
		func(o *obstacle) bool { return text == "" && o.errno == errno && o.driver != "" && o.when == nil },
	}
	for _, fit := range fits {
		for i := range obstacles {
			if o := &obstacles[i]; o.of(f) && fit(o) {
				return o
			}
		}
	}
	return nil
}
