package preflight

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/internal/rig"
	"golang.org/x/sys/unix"
)

// RC-033: what the drivers that people have say, with the facts of a host where
// they say it; there are no such cards here, so their texts stand in for them.
func TestWhatDriversSay(t *testing.T) {
	jumbo := func(driver string) Facts {
		return Facts{Name: "eth0", Driver: driver, Kind: "device", MTU: 9001, Ethernet: true, Up: true}
	}
	queues := jumbo("ena")
	queues.MTU, queues.Channels = 1500, Channels{Combined: 4, MaxCombined: 4}
	lro := func(driver string) Facts {
		f := jumbo(driver)
		f.MTU, f.Features = 1500, map[string]bool{"rx-lro": true}
		return f
	}
	for _, c := range []struct {
		name     string
		facts    Facts
		errno    unix.Errno
		text     string
		cure     string
		foreseen bool
	}{
		{"ena, jumbo", jumbo("ena"), unix.EINVAL, "ena: Failed to set xdp program, the current MTU is larger than the maximum allowed MTU. Check the dmesg for more info", "ip link set eth0 mtu 3498", true},
		{"ena, queues", queues, unix.EINVAL, "ena: Failed to set xdp program, there is no enough space for allocating XDP queues, Check the dmesg for more info", "ethtool -L eth0 combined 2", true},
		{"virtio_net, GRO", lro("virtio_net"), unix.EOPNOTSUPP, "virtio_net: Can't set XDP while host is implementing GRO_HW/CSUM, disable GRO_HW/CSUM first", "rx-gro-hw off", false},
		{"virtio_net, LRO", lro("virtio_net"), unix.EOPNOTSUPP, "virtio_net: Can't set XDP while host is implementing LRO, disable LRO first", "ethtool -K eth0 lro off", false},
		{"virtio_net, jumbo", jumbo("virtio_net"), unix.EINVAL, "virtio_net: MTU too large to enable XDP without frags", "ip link set eth0 mtu 3506", true},
		{"virtio_net, rings", lro("virtio_net"), unix.ENOMEM, "virtio_net: Too few free TX rings available", "ethtool -L eth0 combined", false},
		{"mlx5, LRO, in the log only", lro("mlx5_core"), unix.EINVAL, "", "ethtool -K eth0 lro off", true},
		{"mlx5, jumbo, in the log only", jumbo("mlx5_core"), unix.EINVAL, "", "ip link set eth0 mtu 3498", true},
		{"ixgbe, LRO, no text", lro("ixgbe"), unix.EINVAL, "", "ethtool -K eth0 lro off", true},
		{"ixgbe, jumbo, no text", jumbo("ixgbe"), unix.EINVAL, "", "ip link set eth0 mtu 3050", true},
		{"ixgbe, SR-IOV, no text", Facts{Name: "eth0", Driver: "ixgbe", MTU: 1500, Ethernet: true, Up: true}, unix.EINVAL, "", "sriov_numvfs", false},
		{"i40e, jumbo", jumbo("i40e"), unix.EINVAL, "i40e: MTU is too large for linear frames and XDP prog does not support frags", "ip link set eth0 mtu 3050", true},
		{"bonding, mode", Facts{Name: "bond0", Driver: "bonding", Kind: "bond", MTU: 1500, Ethernet: true}, unix.EOPNOTSUPP, "bond0: No native XDP support for the current bonding mode", "active-backup", false},
		{"bonding, member", Facts{Name: "bond0", Driver: "bonding", Kind: "bond", MTU: 1500, Ethernet: true}, unix.EEXIST, "Error: Slave has XDP program loaded, please unload before enslaving", "take it off the member", false},
		{"member of a bond", Facts{Name: "eth0", Driver: "ixgbe", MTU: 1500, Ethernet: true, Master: "bond0", MasterKind: "bond"}, unix.EEXIST, "Cannot attach when an upper device already has a program", "attach to bond0 alone", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := c.facts.explain(c.errno, c.text)
			if !strings.Contains(said, "cure: ") || !strings.Contains(said, c.cure) || !strings.Contains(said, c.text) || strings.ContainsAny(said, "{}\n") {
				t.Errorf("it says: %s", said)
			}
			f := c.facts.Forecast("auto")
			if c.foreseen != (f.Mode == Generic) || c.foreseen && !strings.Contains(f.Cure, c.cure) {
				t.Errorf("forecast: %s", f)
			}
			if f := c.facts.Forecast(Native); c.foreseen && f.Mode != Refused {
				t.Errorf("forecast of native alone: %s", f)
			}
		})
	}
	unknown := Facts{Name: "eth0", Driver: "newnic"}
	if said := unknown.explain(unix.EINVAL, ""); !strings.Contains(said, "dmesg") {
		t.Errorf("of an unknown driver: %s", said)
	}
}

// Each obstacle says where it was read, and how it is told.
func TestObstaclesAreComplete(t *testing.T) {
	for _, o := range obstacles {
		if o.why == "" || o.cure == "" || !strings.Contains(o.source, "Linux ") || o.errno == 0 {
			t.Errorf("incomplete: %+v", o)
		}
	}
}

// RC-033 for real: a veth that receives on fewer queues than its peer sends on
// has no native XDP. It is foreseen, and the kernel's own words are found by
// asking again; nothing is attached by that, and what is attached stays.
func TestKernelRefusesForReal(t *testing.T) {
	n := rig.Net(t)
	inside := func(do func() error) {
		t.Helper()
		if err := rig.Run(n.Gate, do); err != nil {
			t.Fatal(err)
		}
	}
	add := rig.Command(n.Gate, "ip", "link", "add", "narrow", "numrxqueues", "1", "numtxqueues", "4", "type", "veth", "peer", "name", "wide", "numrxqueues", "4", "numtxqueues", "4")
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	inside(func() error {
		f, err := Look("narrow")
		if err != nil {
			return err
		}
		if f.Driver != "veth" || f.Peer == nil || f.Channels.Receive() != 1 || f.Peer.Channels.Send() != 4 {
			t.Errorf("facts %+v", f)
		}
		if c := f.Forecast("auto"); c.Mode != Generic || !strings.Contains(c.String(), "ethtool -L wide tx 1") {
			t.Errorf("forecast: %s", c)
		}
		_, refused := link.AttachXDP(link.XDPOptions{Program: p, Interface: f.Index, Flags: link.XDPDriverMode})
		if refused == nil {
			t.Fatal("the kernel takes the program: this test needs one that it refuses")
		}
		said := f.Explain(p.FD(), refused)
		for _, want := range []string{"XDP expects number of rx queues not less than peer tx queues", "ethtool -L narrow rx 4"} {
			if !strings.Contains(said, want) {
				t.Errorf("%q is not in: %s", want, said)
			}
		}
		if f, err = Look("narrow"); err != nil || f.Attached != "" {
			t.Errorf("afterwards: %+v %v", f, err)
		}

		// where the kernel would take it, asking leaves nothing attached
		wide, err := Look("wide")
		if err != nil {
			return err
		}
		if c := wide.Forecast("auto"); c.Mode != Native {
			t.Errorf("forecast: %s", c)
		}
		wide.Explain(p.FD(), unix.EINVAL)
		if wide, err = Look("wide"); err != nil || wide.Attached != "" {
			t.Errorf("afterwards: %+v %v", wide, err)
		}
		// and where something is attached it stays
		l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: wide.Index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		defer l.Close()
		before, err := Look("wide")
		if err != nil {
			return err
		}
		wide.Explain(p.FD(), unix.EINVAL)
		if after, err := Look("wide"); err != nil || after.Attached != Native || after.Program != before.Program {
			t.Errorf("before %d, afterwards %+v %v", before.Program, after, err)
		}
		return nil
	})
}

// Interfaces that have no native XDP, and those that the gate cannot read.
func TestOtherInterfaces(t *testing.T) {
	n := rig.Net(t)
	if out, err := rig.Command(n.Gate, "ip", "tuntap", "add", "plain0", "mode", "tun").CombinedOutput(); err != nil {
		t.Skipf("no tun here: %v %s", err, out)
	}
	err := rig.Run(n.Gate, func() error {
		for name, want := range map[string]string{"lo": Generic, "plain0": Refused, n.Links[0].Gate.Interface: Native} {
			f, err := Look(name)
			if err != nil {
				return err
			}
			if c := f.Forecast("auto"); c.Mode != want || (c.Why == "") != (want == Native) {
				t.Errorf("%s", c)
			}
		}
		_, err := Look("nosuch0")
		if err == nil || !strings.Contains(err.Error(), "nosuch0") {
			t.Errorf("of an interface that is not there: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
