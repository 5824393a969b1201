package limit

import (
	"encoding/binary"
	"hash/maphash"
)

// Key names a bucket: 128 bits of a keyed hash, so that who chooses what is
// hashed can neither find two that meet nor learn anything from it.
type Key struct{ hi, lo uint64 }

// Append appends k's bytes to b: a key may be part of another.
func (k Key) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, k.hi)
	return binary.LittleEndian.AppendUint64(b, k.lo)
}

// AppendPart appends one part of what a key is made of, in a form that no other
// list of parts shares, whatever bytes a part holds: kind, length, bytes.
func AppendPart(b []byte, kind byte, part []byte) []byte {
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// Hasher makes keys. Those of two hashers have nothing in common.
type Hasher struct{ hi, lo maphash.Seed }

// NewHasher returns a hasher with secret seeds of its own.
func NewHasher() Hasher { return Hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

// Sum returns the key of parts, which were put together by AppendPart and
// Key.Append.
func (h *Hasher) Sum(parts []byte) Key {
	k := Key{maphash.Bytes(h.hi, parts), maphash.Bytes(h.lo, parts)}
	if k == (Key{}) {
		k.lo = 1 // the zero key marks an empty place
	}
	return k
}

// Fraction returns a number from 0 up to, not including, 1 that follows from k:
// a lot that its holder draws once.
func (k Key) Fraction() float64 { return float64(k.hi>>11) / (1 << 53) }
