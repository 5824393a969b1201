package limit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"

	"github.com/dchest/siphash"
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

// Hasher makes keys. Those of two hashers have nothing in common, unless both
// are of one secret.
type Hasher struct {
	hi, lo maphash.Seed
	secret *[2]uint64
}

// NewHasher returns a hasher with secret seeds of its own.
func NewHasher() Hasher { return Hasher{hi: maphash.MakeSeed(), lo: maphash.MakeSeed()} }

// NewSecretHasher returns the hasher of a secret: all hosts that have it make
// the same keys. It is SipHash-2-4 with 128 bits (Aumasson, Bernstein 2012),
// keyed with HMAC-SHA-256 of the secret.
func NewSecretHasher(secret []byte) Hasher {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("headgate bucket keys"))
	sum := mac.Sum(nil)
	return Hasher{secret: &[2]uint64{binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:])}}
}

// Sum returns the key of parts, which were put together by AppendPart and
// Key.Append.
func (h *Hasher) Sum(parts []byte) Key {
	if h.secret != nil {
		hi, lo := siphash.Hash128(h.secret[0], h.secret[1], parts)
		return Key{hi, max(lo, 1)}
	}
	k := Key{maphash.Bytes(h.hi, parts), maphash.Bytes(h.lo, parts)}
	if k == (Key{}) {
		k.lo = 1 // the zero key marks an empty place
	}
	return k
}

// Fraction returns a number from 0 up to, not including, 1 that follows from k:
// a lot that its holder draws once.
func (k Key) Fraction() float64 { return float64(k.hi>>11) / (1 << 53) }

// Shared returns the 14 bytes of k that do not tell of the account it is in:
// where keys are made with one secret, all hosts have the same.
func (k Key) Shared() (b [14]byte) {
	binary.BigEndian.PutUint64(b[:], k.hi)
	lo := binary.BigEndian.AppendUint64(nil, k.lo)
	copy(b[8:], lo[:6])
	return b
}
