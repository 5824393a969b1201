package l7

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/limit"
)

// SecretSize is the least size of the secret that request ids are sealed with.
const SecretSize = 32

// RequestID is what the id of a refused request says. The id describes itself:
// whoever has the secret can open it on any host, and nothing is stored.
type RequestID struct {
	Host    string    // that refused it, its first 64 bytes
	Rule    string    // the binding one; empty: the client is blocked
	Time    time.Time // to the second
	KeyHash [8]byte   // of the bucket key; see hashKey
}

const (
	idVersion    = 1
	longestHost  = 64
	longestIDHas = 512 // bytes, in base64
	nonceSize    = 12  // of GCM
)

// seal makes request ids. It is never used again with the same nonce: that is
// the second, and a number that is counted up from a random one.
type seal struct {
	host   string
	aead   cipher.AEAD
	keyed  []byte
	number *atomic.Uint64
}

// newSeal makes a seal from the fleet's secret, or the host's own.
func newSeal(secret []byte, host string) (seal, error) {
	aead, keyed, err := openSecret(secret)
	if err != nil {
		return seal{}, err
	}
	var first [8]byte
	rand.Read(first[:])
	s := seal{host: host[:min(len(host), longestHost)], aead: aead, keyed: keyed, number: new(atomic.Uint64)}
	s.number.Store(binary.BigEndian.Uint64(first[:]))
	return s, nil
}

// openSecret derives what seals ids and what hashes keys (RFC 5869).
func openSecret(secret []byte) (cipher.AEAD, []byte, error) {
	if len(secret) < SecretSize {
		return nil, nil, fmt.Errorf("the secret of request ids has %d bytes: give %d or more", len(secret), SecretSize)
	}
	keys, err := hkdf.Key(sha256.New, secret, nil, "headgate request id 1", 64)
	if err != nil {
		return nil, nil, fmt.Errorf("derive the keys of request ids: %w", err)
	}
	block, err := aes.NewCipher(keys[:32])
	if err != nil {
		return nil, nil, fmt.Errorf("derive the keys of request ids: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	return aead, keys[32:], err
}

// id returns the id of a request that rule refused at date; rule is empty for
// a blocked one.
func (s *seal) id(rule string, date time.Time, key [8]byte) string {
	b := make([]byte, 0, 256)
	b = binary.BigEndian.AppendUint32(append(b, idVersion), uint32(date.Unix()))
	b = binary.BigEndian.AppendUint64(b, s.number.Add(1))
	text := make([]byte, 0, 160)
	text = append(append(text, key[:]...), byte(len(rule)))
	text = append(append(text, rule...), s.host...)
	b = s.aead.Seal(b, b[1:1+nonceSize], text, b[:1])
	return base64.RawURLEncoding.EncodeToString(b)
}

// hashKey returns the first bytes of a keyed hash (HMAC-SHA-256) of what a rule
// counts by: the rule's name as a part 'r', then the parts of the bucket key.
func (s *seal) hashKey(rule string, parts []byte) (sum [8]byte) {
	m := hmac.New(sha256.New, s.keyed)
	m.Write(limit.AppendPart(nil, 'r', []byte(rule)))
	m.Write(parts)
	copy(sum[:], m.Sum(nil))
	return sum
}

// OpenRequestID reads an id that a host with this secret has made. It fails for
// anything else, whatever bytes it is made of.
func OpenRequestID(secret []byte, id string) (RequestID, error) {
	aead, _, err := openSecret(secret)
	if err != nil {
		return RequestID{}, err
	}
	if len(id) > longestIDHas {
		return RequestID{}, errors.New("open request id: it is too long to be one: copy the field Request-Id of the answer")
	}
	b, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || len(b) < 1+nonceSize+aead.Overhead() {
		return RequestID{}, errors.New("open request id: this is none: copy the field Request-Id of the answer")
	}
	if b[0] != idVersion {
		return RequestID{}, fmt.Errorf("open request id: it is of version %d, this headgate reads %d", b[0], idVersion)
	}
	text, err := aead.Open(nil, b[1:1+nonceSize], b[1+nonceSize:], b[:1])
	if err != nil {
		return RequestID{}, errors.New("open request id: it was made with another secret, or is not whole: copy it again, or ask on the host that answered")
	}
	return readID(b[1:5], text)
}

// readID reads what was sealed.
func readID(second, text []byte) (id RequestID, err error) {
	id.Time = time.Unix(int64(binary.BigEndian.Uint32(second)), 0).UTC()
	n := copy(id.KeyHash[:], text)
	if n < len(id.KeyHash) || len(text) < n+1 || len(text) < n+1+int(text[n]) {
		return RequestID{}, errors.New("open request id: what it holds is cut short")
	}
	rest := text[n+1:]
	id.Rule, id.Host = string(rest[:text[n]]), string(rest[text[n]:])
	return id, nil
}
