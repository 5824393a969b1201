package spray

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
)

// Listed draws n IPv4 prefixes, the same ones for the same n: three of four are
// single addresses, the others networks from /12 to /31, as published lists
// have them. Sources of Random meet hardly any of them, but have three lengths
// each among their neighbours.
func Listed(n int) []netip.Prefix {
	random := rand.New(rand.NewPCG(11, uint64(n)))
	seen := make(map[netip.Prefix]bool, n)
	all := make([]netip.Prefix, 0, n)
	add := func(p netip.Prefix) {
		if !seen[p] && len(all) < n {
			seen[p] = true
			all = append(all, p)
		}
	}
	for network := range byte(16) { // 10.0.0.0/12
		for bits := 30; bits <= 32; bits++ {
			add(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, network, 100, byte(bits) * 4}), bits))
		}
	}
	for len(all) < n {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 0x0b000000+random.Uint32N(0xd4000000)) // 11.0.0.0 to 222.255.255.255
		bits := 32
		if random.IntN(4) == 0 {
			bits = 12 + random.IntN(20)
		}
		add(netip.PrefixFrom(netip.AddrFrom4(b), bits).Masked())
	}
	return all
}
