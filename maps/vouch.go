package maps

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
)

// Vouch makes a source known until end: what unknown sources take together
// does not concern it. IPv6 sources are vouched for by their /64.
func (g *Gate) Vouch(source netip.Addr, end time.Time) error {
	key := sourceOf(source)
	if err := g.objects.Vouches.Put(&key, g.ticksAt(end)); err != nil {
		return fmt.Errorf("vouch for %s: %w (there is room for %d)", source, err, g.objects.Vouches.MaxEntries())
	}
	return nil
}

// Unvouch ends a vouch. One that is not there is no error.
func (g *Gate) Unvouch(source netip.Addr) error {
	key := sourceOf(source)
	if err := g.objects.Vouches.Delete(&key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("end the vouch for %s: %w", source, err)
	}
	return nil
}

// Vouches returns who is vouched for, with the ends, and removes what has
// ended.
func (g *Gate) Vouches() (map[netip.Addr]time.Time, error) {
	all := map[netip.Addr]time.Time{}
	var ended []bpfSourceKey
	var key bpfSourceKey
	var end uint64
	now := g.now()
	entries := g.objects.Vouches.Iterate()
	for entries.Next(&key, &end) {
		left := int64(end - now)
		if left <= 0 {
			ended = append(ended, key)
			continue
		}
		all[key.address()] = time.Now().Add(time.Duration(left / ticksPerNano))
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("read the vouches: %w", err)
	}
	for _, key := range ended {
		if err := g.objects.Vouches.Delete(&key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("remove a vouch that has ended: %w", err)
		}
	}
	return all, nil
}

// sourceOf is source_key of bpf/take.h.
func sourceOf(a netip.Addr) bpfSourceKey {
	hi, lo := sourceKey(a, 64)
	return bpfSourceKey{Hi: hi, Lo: lo}
}

// address is the source, the first address of its /64 for IPv6.
func (k bpfSourceKey) address() netip.Addr {
	if k.Hi == 0 && k.Lo>>32 == 0xffff {
		v := uint32(k.Lo)
		return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
	}
	var b [16]byte
	for i := range 8 {
		b[i] = byte(k.Hi >> (56 - 8*i))
	}
	return netip.AddrFrom16(b)
}

// prefix is the source as what a block of it covers.
func (k bpfSourceKey) prefix() netip.Prefix {
	a := k.address()
	if a.Is4() {
		return netip.PrefixFrom(a, 32)
	}
	return netip.PrefixFrom(a, 64)
}
