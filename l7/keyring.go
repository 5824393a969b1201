package l7

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/headgate/headgate/config"
)

// keyPart is how much of a key's hash is kept: 128 bits of it are as hard to
// meet as a key of 128 bits is to guess.
const keyPart = 16

// mostShared bounds the names that are looked for again when keys are packed and
// unpacked: where there are more, most have a single key.
const mostShared = 1 << 14

// keyring finds the holder of a key among a million, in some 40 bytes a key, and
// names that are kept once.
type keyring struct {
	at      map[[keyPart]byte]uint32 // in holders
	holders []holder
}

func newKeyring(keys []config.Key) *keyring {
	k := &keyring{at: make(map[[keyPart]byte]uint32, len(keys))}
	seen := map[holder]uint32{}
	for i := range keys {
		h := holder{keys[i].Owner, keys[i].Tenant, keys[i].Plan}
		at, ok := seen[h]
		if !ok {
			at = uint32(len(k.holders))
			seen[h] = at
			k.holders = append(k.holders, h)
		}
		k.at[[keyPart]byte(keys[i].SHA256[:keyPart])] = at
	}
	return k
}

// keyring returns the keys that p brings along.
func (p *Policy) keyring() (*keyring, error) {
	if p.PackedKeys != nil {
		return unpackKeys(p.PackedKeys)
	}
	return newKeyring(p.HTTP.Keys), nil
}

// find returns who holds the key of this hash.
func (k *keyring) find(sum [sha256.Size]byte) (h holder, ok bool) {
	at, ok := k.at[[keyPart]byte(sum[:keyPart])]
	if ok {
		h = k.holders[at]
	}
	return h, ok
}

// PackKeys writes keys in some 20 bytes each, for Policy.PackedKeys: the holders,
// then for each key what is kept of it and which holder it has. The same keys in
// the same order are the same bytes.
func PackKeys(keys []config.Key) []byte {
	var holders []byte
	seen, n := map[holder]uint64{}, uint64(0)
	refs := make([]byte, 0, (keyPart+3)*len(keys))
	for i := range keys {
		h := holder{keys[i].Owner, keys[i].Tenant, keys[i].Plan}
		at, ok := seen[h]
		if !ok {
			at = n
			if n++; len(seen) < mostShared {
				seen[h] = at
			}
			for _, name := range []string{h.owner, h.tenant, h.plan} {
				holders = append(binary.AppendUvarint(holders, uint64(len(name))), name...)
			}
		}
		refs = append(refs, keys[i].SHA256[:keyPart]...)
		refs = binary.AppendUvarint(refs, at)
	}
	b := binary.AppendUvarint(make([]byte, 0, len(holders)+len(refs)+20), n)
	b = binary.AppendUvarint(append(b, holders...), uint64(len(keys)))
	return append(b, refs...)
}

var errPacked = errors.New("the packed keys do not read: they were cut, or are of another version")

// unpackKeys reads what PackKeys wrote.
func unpackKeys(b []byte) (*keyring, error) {
	u := unpacker{rest: b}
	k := &keyring{holders: make([]holder, u.count(3))}
	names := map[string]string{}
	for i := range k.holders {
		k.holders[i] = holder{u.name(names), u.name(names), u.name(names)}
	}
	n := u.count(keyPart + 1)
	k.at = make(map[[keyPart]byte]uint32, n)
	for range n {
		part, at := u.bytes(keyPart), u.number()
		if u.bad || at >= uint64(len(k.holders)) {
			return nil, errPacked
		}
		k.at[[keyPart]byte(part)] = uint32(at)
	}
	if u.bad || len(u.rest) > 0 {
		return nil, errPacked
	}
	return k, nil
}

type unpacker struct {
	rest []byte
	bad  bool
}

func (u *unpacker) number() uint64 {
	v, n := binary.Uvarint(u.rest)
	if n <= 0 {
		u.bad, u.rest = true, nil
		return 0
	}
	u.rest = u.rest[n:]
	return v
}

// count reads how many things of at least size bytes follow.
func (u *unpacker) count(size int) int {
	n := u.number()
	if n > uint64(len(u.rest)/size) {
		u.bad, u.rest = true, nil
		return 0
	}
	return int(n)
}

func (u *unpacker) bytes(n int) []byte {
	if n > len(u.rest) {
		u.bad, u.rest = true, nil
		return make([]byte, n)
	}
	b := u.rest[:n]
	u.rest = u.rest[n:]
	return b
}

// name reads a name; tenants and plans come again and again.
func (u *unpacker) name(names map[string]string) string {
	b := u.bytes(u.count(1))
	if kept, ok := names[string(b)]; ok {
		return kept
	}
	name := string(b)
	if len(names) < mostShared {
		names[name] = name
	}
	return name
}
