package preflight

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/internal/rig"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// setFeature is `ethtool -K`.
func setFeature(index int, name string, on bool) error {
	f, err := netlink.GenlFamilyGet("ethtool")
	if err != nil {
		return err
	}
	bit := nl.NewRtAttr(unix.ETHTOOL_A_BITSET_BITS_BIT|unix.NLA_F_NESTED, nil)
	bit.AddRtAttr(unix.ETHTOOL_A_BITSET_BIT_NAME, nl.ZeroTerminated(name))
	if on {
		bit.AddRtAttr(unix.ETHTOOL_A_BITSET_BIT_VALUE, nil)
	}
	bits := nl.NewRtAttr(unix.ETHTOOL_A_BITSET_BITS|unix.NLA_F_NESTED, nil)
	bits.AddChild(bit)
	wanted := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_WANTED|unix.NLA_F_NESTED, nil)
	wanted.AddChild(bits)
	head := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_HEADER|unix.NLA_F_NESTED, nil)
	head.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(index)))
	req := nl.NewNetlinkRequest(int(f.ID), unix.NLM_F_ACK)
	req.AddData(header{unix.ETHTOOL_MSG_FEATURES_SET, 1})
	req.AddData(head)
	req.AddData(wanted)
	_, err = req.Execute(unix.NETLINK_GENERIC, 0)
	return err
}

// pushTag is a tc program that sets a VLAN tag as a VLAN device does: beside
// the frame.
var pushTag = asm.Instructions{
	asm.Mov.Imm(asm.R2, 0x0081), // ETH_P_8021Q, in network order on a little-endian machine
	asm.Mov.Imm(asm.R3, 10),
	asm.FnSkbVlanPush.Call(),
	asm.Mov.Imm(asm.R0, 0),
	asm.Return(),
}

// dropTagged drops frames that begin with a VLAN tag.
var dropTagged = asm.Instructions{
	asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
	asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
	asm.Mov.Reg(asm.R4, asm.R2),
	asm.Add.Imm(asm.R4, 14),
	asm.Mov.Imm(asm.R0, 2),
	asm.JGT.Reg(asm.R4, asm.R3, "out"),
	asm.LoadMem(asm.R5, asm.R2, 12, asm.Half),
	asm.JNE.Imm(asm.R5, 0x0081, "out"),
	asm.Mov.Imm(asm.R0, 1),
	asm.Return().WithSymbol("out"),
}

// RC-135, for real: what HidesTags says of a veth is what XDP sees. A tag that
// the peer leaves beside the frame is seen in neither mode, whatever rxvlan is;
// with the cure, and where the tag was sent in the frame, it is.
func TestHiddenTags(t *testing.T) {
	n := rig.Net(t)
	gate, peer := n.Links[0].Gate, n.Links[0].Peer
	load := func(kind ebpf.ProgramType, code asm.Instructions) *ebpf.Program {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, License: "GPL", Instructions: code})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	in := func(ns *rig.Namespace, do func() error) {
		t.Helper()
		if err := rig.Run(ns, do); err != nil {
			t.Fatal(err)
		}
	}
	tagger, dropper := load(ebpf.SchedCLS, pushTag), load(ebpf.XDP, dropTagged)
	// tagging lets the peer tag what it sends, until the link is closed
	tagging := func() (l link.Link) {
		t.Helper()
		in(peer.NS, func() (err error) {
			l, err = link.AttachTCX(link.TCXOptions{Interface: peer.Index, Program: tagger, Attach: ebpf.AttachTCXEgress})
			if errors.Is(err, ebpf.ErrNotSupported) {
				t.Skip("this kernel has no tcx")
			}
			return err
		})
		return l
	}
	// seen tells whether XDP sees the tag of frames that the peer has tagged
	seen := func(mode link.XDPAttachFlags) bool {
		t.Helper()
		var l link.Link
		in(gate.NS, func() (err error) {
			l, err = link.AttachXDP(link.XDPOptions{Program: dropper, Interface: gate.Index, Flags: mode})
			return err
		})
		defer l.Close()
		r := rig.Receive(t, n.Links[0])
		tags := tagging()
		const packets = 50
		source := netip.MustParseAddr("203.0.113.5")
		if _, err := rig.Send(context.Background(), peer, rig.Stream{
			Frames: [][]byte{n.Links[0].UDP(source, 9000).MustFrame()}, Count: packets, Rate: 10000,
		}); err != nil {
			t.Fatal(err)
		}
		tags.Close() // the receiver's fence goes untagged
		got := r.Stop(t).From(source).Packets
		if got != 0 && got != packets {
			t.Fatalf("%d of %d packets arrived", got, packets)
		}
		return got == 0
	}
	look := func() (f Facts) {
		in(gate.NS, func() (err error) {
			f, err = Look(gate.Interface)
			return err
		})
		return f
	}
	modes := map[string]link.XDPAttachFlags{Native: link.XDPDriverMode, Generic: link.XDPGenericMode}
	for _, rxvlan := range []bool{true, false} {
		in(gate.NS, func() error { return setFeature(gate.Index, "rx-vlan-hw-parse", rxvlan) })
		f := look()
		if h := f.HidesTags(); (h != nil) != rxvlan || h != nil && (h.Sure || !strings.Contains(h.Error(), "ethtool -K PEER txvlan off")) {
			t.Errorf("rxvlan %v: it says %v", rxvlan, h)
		}
		for name, mode := range modes {
			if seen(mode) {
				t.Errorf("rxvlan %v, %s mode: the tag is seen", rxvlan, name)
			}
		}
	}
	in(peer.NS, func() error { return setFeature(peer.Index, "tx-vlan-hw-insert", false) })
	for name, mode := range modes {
		if !seen(mode) {
			t.Errorf("with the cure, %s mode: the tag is not seen", name)
		}
	}
}

// Where the peer can be asked, it is; and a card that takes tags out hides all.
func TestWhoHidesTags(t *testing.T) {
	on := map[string]bool{"rx-vlan-hw-parse": true, "tx-vlan-hw-insert": true}
	for _, c := range []struct {
		name  string
		facts Facts
		says  string
	}{
		{"card", Facts{Name: "eth0", Kind: "device", Driver: "mlx5_core", Features: on}, "ethtool -K eth0 rxvlan off"},
		{"card, switched off", Facts{Name: "eth0", Kind: "device", Driver: "mlx5_core"}, ""},
		{"veth, peer on", Facts{Name: "v0", Kind: "veth", Peer: &Facts{Name: "v1", Features: on}}, "ethtool -K v1 txvlan off"},
		{"veth, peer off", Facts{Name: "v0", Kind: "veth", Features: on, Peer: &Facts{Name: "v1"}}, ""},
		{"bridge", Facts{Name: "br0", Kind: "bridge"}, ""},
	} {
		h := c.facts.HidesTags()
		if (h != nil) != (c.says != "") || h != nil && (!strings.Contains(h.Error(), c.says) || h.Sure != (c.facts.Kind == "device")) {
			t.Errorf("%s: %v", c.name, h)
		}
	}
}
