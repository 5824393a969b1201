package l7

import (
	"crypto/sha256"

	"github.com/headgate/headgate/config"
)

// keyring finds the holder of a key among a million: 16 bytes of each key's
// hash, and names that are kept once.
type keyring struct {
	at      map[[16]byte]uint32 // in holders
	holders []holder
}

func newKeyring(keys []config.Key) *keyring {
	k := &keyring{at: make(map[[16]byte]uint32, len(keys))}
	seen := map[holder]uint32{}
	for _, key := range keys {
		h := holder{key.Owner, key.Tenant, key.Plan}
		at, ok := seen[h]
		if !ok {
			at = uint32(len(k.holders))
			seen[h] = at
			k.holders = append(k.holders, h)
		}
		k.at[[16]byte(key.SHA256[:16])] = at
	}
	return k
}

// find returns who holds the key of this hash. 128 bits of it are as hard to
// meet as a key of 128 bits is to guess.
func (k *keyring) find(sum [sha256.Size]byte) (h holder, ok bool) {
	at, ok := k.at[[16]byte(sum[:16])]
	if ok {
		h = k.holders[at]
	}
	return h, ok
}
