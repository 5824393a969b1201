package preflight

import "golang.org/x/sys/unix"

// obstacles are in the order in which the drivers look.
var obstacles = []obstacle{
	{
		driver: "veth", text: "Cannot set XDP when peer is detached", errno: unix.ENOTCONN,
		why: "the other end of the veth has gone", cure: "make the pair anew (ip link add {if} type veth peer name {peer})",
		source: "drivers/net/veth.c veth_xdp_set, Linux 6.3",
	},
	{
		driver: "veth", text: "Peer MTU is too large", errno: unix.ERANGE,
		when: func(f *Facts) bool { return f.Peer != nil && !f.frags() && f.Peer.MTU > untaggedMTU() },
		why:  "frames of the peer do not fit into one buffer", cure: "ip link set {peer} mtu {mtu}",
		source: "drivers/net/veth.c veth_xdp_set, Linux 6.3",
	},
	{
		driver: "veth", text: "number of rx queues not less than peer tx queues", errno: unix.ENOSPC,
		when: func(f *Facts) bool { return f.Peer != nil && f.Channels.Receive() < f.Peer.Channels.Send() },
		why:  "it receives on fewer queues than its peer sends on", cure: "ethtool -L {peer} tx {rx}, or ethtool -L {if} rx {peer tx}",
		source: "drivers/net/veth.c veth_xdp_set, Linux 6.3",
	},
	{
		driver: "virtio_net", text: "disable GRO_HW", errno: unix.EOPNOTSUPP,
		why:    "the hypervisor joins packets and the guest cannot switch it off while XDP is on",
		cure:   "ethtool -K {if} rx-gro-hw off; if it is fixed: guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off for the device in the hypervisor",
		source: "drivers/net/virtio_net.c virtnet_xdp_set, Linux 6.3",
	},
	{
		driver: "virtio_net", text: "disable LRO", errno: unix.EOPNOTSUPP,
		why:    "the hypervisor joins packets",
		cure:   "ethtool -K {if} lro off; if it is fixed: guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,guest_csum=off for the device in the hypervisor",
		source: "drivers/net/virtio_net.c virtnet_xdp_set, Linux 4.19",
	},
	{
		driver: "virtio_net", text: "any_header_sg required", errno: unix.EINVAL,
		why: "the virtual device cannot put header and data into one page", cure: "give the guest a device of virtio 1.0 (disable-legacy=on)",
		source: "drivers/net/virtio_net.c virtnet_xdp_set, Linux 6.3",
	},
	{
		driver: "virtio_net", text: "MTU too large to enable XDP", errno: unix.EINVAL,
		when: func(f *Facts) bool { return !f.frags() && f.MTU > untaggedMTU() },
		why:  "frames do not fit into one buffer", cure: "ip link set {if} mtu {mtu}",
		source: "drivers/net/virtio_net.c virtnet_xdp_set, Linux 6.1 (frames of several buffers: since 6.3)",
	},
	{
		driver: "virtio_net", text: "Too few free TX rings", errno: unix.ENOMEM,
		why: "it wants a queue pair more for each CPU, for packets that are sent back", cure: "ethtool -L {if} combined {half}, or give the guest twice the queues; Linux 5.13 does without",
		source: "drivers/net/virtio_net.c virtnet_xdp_set, Linux 5.10",
	},
	{
		driver: "ena", text: "current MTU is larger", errno: unix.EINVAL,
		when: func(f *Facts) bool { return f.MTU > taggedMTU() },
		why:  "frames do not fit into one buffer", cure: "ip link set {if} mtu {tagged mtu}",
		source: "drivers/net/ethernet/amazon/ena/ena_xdp.h ena_xdp_allowed, Linux 6.8",
	},
	{
		driver: "ena", text: "no enough space for allocating XDP queues", errno: unix.EINVAL,
		when: func(f *Facts) bool {
			return f.Channels.MaxCombined > 0 && 2*f.Channels.Combined > f.Channels.MaxCombined
		},
		why: "it wants twice the queues, one more of each for packets that are sent back", cure: "ethtool -L {if} combined {half}",
		source: "drivers/net/ethernet/amazon/ena/ena_xdp.h ena_xdp_legal_queue_count, Linux 6.8",
	},
	{
		driver: "mlx5_core", text: "disable LRO", errno: unix.EINVAL,
		when: func(f *Facts) bool { return f.Features["rx-lro"] },
		why:  "LRO joins packets before XDP sees them", cure: "ethtool -K {if} lro off",
		source: "drivers/net/ethernet/mellanox/mlx5/core/en_main.c mlx5e_xdp_allowed (text in the kernel log), Linux 6.1",
	},
	{
		driver: "mlx5_core", text: "MTU", errno: unix.EINVAL,
		when: func(f *Facts) bool { return !f.frags() && f.MTU > taggedMTU() },
		why:  "frames do not fit into one buffer", cure: "ip link set {if} mtu {tagged mtu}",
		source: "drivers/net/ethernet/mellanox/mlx5/core/en_main.c mlx5e_xdp_allowed (text in the kernel log), Linux 6.1",
	},
	{
		driver: "ixgbe", errno: unix.EINVAL,
		when: func(f *Facts) bool { return f.Features["rx-lro"] },
		why:  "RSC (LRO) joins packets before XDP sees them", cure: "ethtool -K {if} lro off",
		source: "drivers/net/ethernet/intel/ixgbe/ixgbe_main.c ixgbe_xdp_setup, Linux 6.3 (it gives no text)",
	},
	{
		driver: "ixgbe", errno: unix.EINVAL,
		when: func(f *Facts) bool { return f.MTU > intelMTU },
		why:  "frames do not fit into one receive buffer of 3072 bytes", cure: "ip link set {if} mtu 3050",
		source: "drivers/net/ethernet/intel/ixgbe/ixgbe_main.c ixgbe_xdp_setup, Linux 6.3 (it gives no text)",
	},
	{
		driver: "ixgbe", errno: unix.EINVAL,
		why:    "SR-IOV or DCB is on, or another setting that it does not tell",
		cure:   "echo 0 > /sys/class/net/{if}/device/sriov_numvfs; switch DCB off",
		source: "drivers/net/ethernet/intel/ixgbe/ixgbe_main.c ixgbe_xdp_setup, Linux 6.3 (it gives no text)",
	},
	{
		driver: "i40e", text: "MTU", errno: unix.EINVAL,
		when: func(f *Facts) bool { return !f.frags() && f.MTU > intelMTU },
		why:  "frames do not fit into one receive buffer of 3072 bytes", cure: "ip link set {if} mtu 3050",
		source: "drivers/net/ethernet/intel/i40e/i40e_main.c i40e_xdp_setup, Linux 6.4 (frames of several buffers: since 6.4)",
	},
	{
		driver: "ice", text: "MTU is too large", errno: unix.EOPNOTSUPP,
		when: func(f *Facts) bool { return !f.frags() && f.MTU > intelMTU },
		why:  "frames do not fit into one receive buffer of 3072 bytes", cure: "ip link set {if} mtu 3050",
		source: "drivers/net/ethernet/intel/ice/ice_main.c ice_xdp_setup_prog, Linux 6.3",
	},
	{
		driver: "bonding", text: "current bonding mode", errno: unix.EOPNOTSUPP,
		why: "this mode of the bond has no native XDP", cure: "use mode balance-rr, active-backup, balance-xor or 802.3ad (with xmit_hash_policy other than vlan+srcmac), or attach to the members",
		source: "drivers/net/bonding/bond_main.c bond_xdp_check, Linux 6.13",
	},
	{
		driver: "bonding", text: "does not support XDP", errno: unix.EOPNOTSUPP,
		why: "the driver of a member has no native XDP", cure: "take the member out of the bond, or use generic mode",
		source: "drivers/net/bonding/bond_main.c bond_xdp_set, Linux 6.13",
	},
	{
		driver: "bonding", text: "Slave has XDP program loaded", errno: unix.EEXIST,
		why: "a member of the bond has a program of its own", cure: "take it off the member, or attach to the members and not to the bond",
		source: "drivers/net/bonding/bond_main.c bond_xdp_set, Linux 6.13",
	},
	{
		text: "upper device already has a program", errno: unix.EEXIST,
		why: "the bond that it belongs to has a program", cure: "attach to {master} alone, or take that program off",
		source: "net/core/dev.c dev_xdp_attach, Linux 5.15",
	},
	{
		text: "does not support XDP in native mode", errno: unix.EOPNOTSUPP,
		when: (*Facts).noNative,
		why:  "its driver has no native XDP", cure: "nothing: generic mode works, slower",
		source: "net/core/dev.c dev_xdp_attach, Linux 5.15",
	},
}
