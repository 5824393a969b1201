package maps

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/gaissmai/bart"
)

// trie is a pair of LPM tries, one a family, and which prefixes they hold.
type trie struct {
	v4, v6 *ebpf.Map
	held   bart.Lite
}

// readTrie calls each for every entry and notes what is held.
func readTrie[V any](t *trie, each func(netip.Prefix, V)) error {
	var value V
	var key4 bpfPrefix4Key
	entries := t.v4.Iterate()
	for entries.Next(&key4, &value) {
		p := netip.PrefixFrom(netip.AddrFrom4(key4.Address), int(key4.Bits))
		t.held.Insert(p)
		each(p, value)
	}
	if err := entries.Err(); err != nil {
		return err
	}
	var key6 bpfPrefix6Key
	entries = t.v6.Iterate()
	for entries.Next(&key6, &value) {
		p := netip.PrefixFrom(netip.AddrFrom16(key6.Address), int(key6.Bits))
		t.held.Insert(p)
		each(p, value)
	}
	return entries.Err()
}

func (t *trie) entry(p netip.Prefix) (*ebpf.Map, any) {
	if p.Addr().Is4() {
		return t.v4, &bpfPrefix4Key{Bits: uint32(p.Bits()), Address: p.Addr().As4()}
	}
	return t.v6, &bpfPrefix6Key{Bits: uint32(p.Bits()), Address: p.Addr().As16()}
}

// put writes an entry; the program sees the old value or the new one.
func (t *trie) put(p netip.Prefix, value any) error {
	m, key := t.entry(p)
	if err := m.Put(key, value); err != nil {
		return fmt.Errorf("write prefix %s: %w (the table has room for %d)", p, err, m.MaxEntries())
	}
	t.held.Insert(p)
	return nil
}

func (t *trie) remove(p netip.Prefix) error {
	m, key := t.entry(p)
	if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove prefix %s: %w", p, err)
	}
	t.held.Delete(p)
	return nil
}
