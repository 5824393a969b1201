package preflight

import "fmt"

// Hidden says that VLAN tags do not reach the network gate, and what cures it.
// Neither mode of XDP sees a tag that is not in the frame: the kernel puts none
// back (netif_receive_generic_xdp, net/core/dev.c, Linux 6.18).
type Hidden struct {
	Interface string
	Sure      bool // every tag is hidden; else only some are
	Cure      string
}

// Why is the finding in one line, without its cure.
func (h *Hidden) Why() string {
	if h.Sure {
		return h.Interface + " takes the VLAN tag out of frames before the network gate sees them, so a rule by VLAN would never match"
	}
	return h.Interface + " may get frames whose VLAN tag is beside them, where the network gate does not see it: a rule by VLAN then does not match"
}

// Error is the finding in one line, with its cure.
func (h *Hidden) Error() string { return fmt.Sprintf("%s (cure: %s)", h.Why(), h.Cure) }

// HidesTags tells whether frames reach the network gate without their VLAN tag;
// nil: they have it. A network card with rxvlan on takes the tag out. A veth
// takes nothing out, but hands over a tag that its peer's VLAN devices or bridge
// left beside the frame, which they do while the peer has txvlan on; a tag that
// was sent in the frame stays there.
func (f *Facts) HidesTags() *Hidden {
	switch {
	case f.Kind == "veth" && f.Peer != nil:
		if f.Peer.Features["tx-vlan-hw-insert"] {
			return &Hidden{f.Name, false, fmt.Sprintf("ethtool -K %s txvlan off", f.Peer.Name)}
		}
	case f.Kind == "veth":
		// the peer cannot be asked: whoever has seen to it says so by rxvlan off
		if f.Features["rx-vlan-hw-parse"] {
			return &Hidden{f.Name, false, fmt.Sprintf("ethtool -K PEER txvlan off in its peer's namespace, then ethtool -K %s rxvlan off, which says that it is done", f.Name)}
		}
	case f.Features["rx-vlan-hw-parse"]:
		return &Hidden{f.Name, true, fmt.Sprintf("ethtool -K %s rxvlan off", f.Name)}
	}
	return nil
}
