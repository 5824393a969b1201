package config

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"unsafe"
)

// KeyPart is how much of an API key's SHA-256 is kept, in bytes: to meet 128
// bits of it is as hard as to guess a key of 128 bits.
const KeyPart = 16

// Holder is what the key file says of a key. All but Owner may be empty.
type Holder struct{ Owner, Tenant, Plan string }

// Keyring finds the holder of an API key among a million. It is one block of
// memory without a pointer, which the collector need not look through, and which
// crosses a socket as it is: 21 bytes a key, and 12 and the names for each
// holder. It is never changed. A nil Keyring has no keys.
//
// The block, all numbers little-endian: a head of 8 numbers of 32 bits, of which
// 5 are used (magic, keys, holders, bytes of names, bits of the directory); the
// directory, where the keys that begin with these bits start; the keys' parts in
// order; which holder each has; the holders, three places in the names each; the
// names, each after its length in a byte. Place 0 is the empty name.
type Keyring struct {
	block                       []byte
	keys, holders               int
	bits                        uint
	parts, refs, whose, namesAt int // where each section begins
}

const (
	keyringMagic  = 0x314b4748 // "HGK1"
	keyringHead   = 32
	holderSize    = 12
	keysADrawer   = 4       // of the directory, on average
	mostDirectory = 24      // bits
	largestRing   = 1 << 30 // bytes; a key file of largestKeyFile makes less
)

// NewKeyring returns keys as a Keyring. Of keys that are there twice the first
// counts.
func NewKeyring(keys []Key) *Keyring {
	b := newKeyringBuilder(len(keys))
	seen := make(map[[KeyPart]byte]bool, len(keys))
	for i := range keys {
		if part := [KeyPart]byte(keys[i].SHA256[:]); !seen[part] {
			seen[part] = true
			b.add(part, b.holder([]byte(keys[i].Owner), []byte(keys[i].Tenant), []byte(keys[i].Plan)), 0)
		}
	}
	ring, _, _ := b.ring()
	return ring
}

var errKeyring = errors.New("the keys do not read: they were cut, or are of another version")

// OpenKeyring returns the Keyring that has this block, which it keeps.
func OpenKeyring(block []byte) (*Keyring, error) {
	if len(block) < keyringHead || len(block) > largestRing {
		return nil, errKeyring
	}
	var head [keyringHead / 4]uint32
	for i := range head {
		head[i] = binary.LittleEndian.Uint32(block[4*i:])
	}
	if head[0] != keyringMagic || head[4] > mostDirectory || max(head[1], head[2], head[3]) > largestRing {
		return nil, errKeyring
	}
	k := layKeyring(int(head[1]), int(head[2]), int(head[3]), uint(head[4]))
	if k.size(int(head[3])) != len(block) {
		return nil, errKeyring
	}
	k.block = block
	return k, k.check()
}

// layKeyring says where the sections are. It has no block yet.
func layKeyring(keys, holders, names int, bits uint) *Keyring {
	k := &Keyring{keys: keys, holders: holders, bits: bits}
	k.parts = keyringHead + 4*(1<<bits+1)
	k.refs = k.parts + KeyPart*keys
	k.whose = k.refs + 4*keys
	k.namesAt = k.whose + holderSize*holders
	return k
}

func (k *Keyring) size(names int) int { return k.namesAt + names }

// check makes sure that no look-up leaves the block.
func (k *Keyring) check() error {
	before := uint32(0)
	for i := range 1<<k.bits + 1 {
		at := k.number(keyringHead, i)
		if at < before || at > uint32(k.keys) {
			return errKeyring
		}
		before = at
	}
	for i := range k.keys {
		if k.number(k.refs, i) >= uint32(k.holders) {
			return errKeyring
		}
	}
	names := k.block[k.namesAt:]
	for i := range 3 * k.holders {
		at := int(k.number(k.whose, i))
		if at >= len(names) || at+1+int(names[at]) > len(names) {
			return errKeyring
		}
	}
	return nil
}

func (k *Keyring) number(section, i int) uint32 {
	return binary.LittleEndian.Uint32(k.block[section+4*i:])
}

// Len returns how many keys there are.
func (k *Keyring) Len() int {
	if k == nil {
		return 0
	}
	return k.keys
}

// Block returns the memory that OpenKeyring makes the same Keyring of. It must
// not be changed.
func (k *Keyring) Block() []byte {
	if k == nil {
		return nil
	}
	return k.block
}

// Fingerprint tells two Keyrings apart, and gives no key away.
func (k *Keyring) Fingerprint() [sha256.Size]byte { return sha256.Sum256(k.Block()) }

// Equal reports whether both hold the same keys of the same holders. It is false
// for some that differ in the order of their files alone.
func (k *Keyring) Equal(other *Keyring) bool {
	return k == other || slices.Equal(k.Block(), other.Block())
}

// Find returns who holds the key of this hash.
func (k *Keyring) Find(sum [sha256.Size]byte) (h Holder, ok bool) {
	if k.Len() == 0 {
		return h, false
	}
	high, low := binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])
	drawer := int(high >> (64 - k.bits))
	from, to := int(k.number(keyringHead, drawer)), int(k.number(keyringHead, drawer+1))
	for from < to {
		i := int(uint(from+to) / 2)
		part := k.block[k.parts+KeyPart*i:]
		h, l := binary.BigEndian.Uint64(part), binary.BigEndian.Uint64(part[8:])
		switch {
		case h == high && l == low:
			return k.holder(int(k.number(k.refs, i))), true
		case h < high || h == high && l < low:
			from = i + 1
		default:
			to = i
		}
	}
	return h, false
}

func (k *Keyring) holder(i int) Holder {
	return Holder{k.name(3 * i), k.name(3*i + 1), k.name(3*i + 2)}
}

// name returns a name where it lies: the block is never changed, and a string
// keeps it.
func (k *Keyring) name(i int) string {
	at := k.namesAt + int(k.number(k.whose, i))
	n := int(k.block[at])
	if n == 0 {
		return ""
	}
	return unsafe.String(&k.block[at+1], n)
}

// Owned returns how the hashes of owner's keys begin, most of them at most, and
// how many there are.
func (k *Keyring) Owned(owner string, most int) (parts [][KeyPart]byte, n int) {
	if k == nil {
		return nil, 0
	}
	his := make([]bool, k.holders)
	for i := range his {
		his[i] = k.name(3*i) == owner
	}
	for i := range k.keys {
		if !his[k.number(k.refs, i)] {
			continue
		}
		if n++; n <= most {
			parts = append(parts, [KeyPart]byte(k.block[k.parts+KeyPart*i:]))
		}
	}
	return parts, n
}

// directoryBits is how many bits of the hash the directory of so many keys goes
// by.
func directoryBits(keys int) uint {
	return min(mostDirectory, uint(bits.Len(uint(keys/keysADrawer))))
}
