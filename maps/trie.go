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
	note := func(p netip.Prefix, value V) {
		t.held.Insert(p)
		each(p, value)
	}
	err := readEntries(t.v4, func(k bpfPrefix4Key, value V) {
		note(netip.PrefixFrom(netip.AddrFrom4(k.Address), int(k.Bits)), value)
	})
	if err != nil {
		return err
	}
	return readEntries(t.v6, func(k bpfPrefix6Key, value V) {
		note(netip.PrefixFrom(netip.AddrFrom16(k.Address), int(k.Bits)), value)
	})
}

// readEntries calls each for every entry of m, with as few system calls as the
// kernel allows: tables of a million are read at each start.
func readEntries[K, V any](m *ebpf.Map, each func(K, V)) error {
	const lot = 8192
	keys, values := make([]K, lot), make([]V, lot)
	var cursor ebpf.MapBatchCursor
	for first := true; ; first = false {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if first && errors.Is(err, ebpf.ErrNotSupported) {
			return iterateEntries(m, each)
		}
		end := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !end {
			return err
		}
		for i := range n {
			each(keys[i], values[i])
		}
		if end {
			return nil
		}
	}
}

// iterateEntries is readEntries one by one.
func iterateEntries[K, V any](m *ebpf.Map, each func(K, V)) error {
	var key K
	var value V
	entries := m.Iterate()
	for entries.Next(&key, &value) {
		each(key, value)
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
