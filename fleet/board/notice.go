package board

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
)

const (
	// Most is how many notices a fleet has at most, those taken down included.
	Most = 20_000

	// MostText is how many bytes a notice says at most.
	MostText = 8 << 10

	// Remembered is how long it is remembered that something without an end was
	// taken down or given one: a host that was away for less learns of it.
	Remembered = 90 * 24 * time.Hour

	// Grace is how long a notice is kept beyond its end at least.
	Grace = time.Minute

	// Ever is the Keep of what has no end. Redis' Lua holds it exactly.
	Ever = 1<<53 - 1
)

// Notice is one thing that holds on all hosts, or was taken down.
type Notice struct {
	ID      string `json:"id"`                // tells it from others; says nothing of what it is
	Version int64  `json:"version,omitempty"` // when it was posted, microseconds of Redis' clock; each later than all before
	End     int64  `json:"end,omitempty"`     // by the same clock; 0: never
	Keep    int64  `json:"keep,omitempty"`    // when all forget it: not before all that it took the place of has ended
	Gone    bool   `json:"gone,omitempty"`    // it was taken down
	Sealed  []byte `json:"sealed,omitempty"`  // what it says
}

// over reports whether n is to be forgotten at now.
func (n *Notice) over(now int64) bool { return n.Keep <= now }

// keep sets until when n, posted at now in the place of what was kept until
// before, is to be kept.
func (n *Notice) keep(now int64, before ...int64) {
	switch n.Keep = now + Grace.Microseconds(); {
	case n.Gone:
	case n.End == 0:
		n.Keep = Ever
	default:
		n.Keep = n.End + Grace.Microseconds()
	}
	for _, b := range before {
		n.Keep = max(n.Keep, min(b, now+Remembered.Microseconds()))
	}
}

// Sealer makes and reads what notices say. Hosts of one secret read each
// other's.
type Sealer struct {
	names []byte
	seal  cipher.AEAD
}

// NewSealer returns the one of a fleet's secret.
func NewSealer(secret []byte) *Sealer {
	block, err := aes.NewCipher(derive(secret, "headgate board seal"))
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return &Sealer{derive(secret, "headgate board names"), aead}
}

func derive(secret []byte, what string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(what))
	return h.Sum(nil)
}

// ID names what is called name among things of a kind.
func (s *Sealer) ID(kind, name string) string {
	sum := derive(s.names, kind+"\x00"+name)
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

// Seal returns text for a notice of that id alone. It fails where text is
// longer than MostText.
func (s *Sealer) Seal(id string, text []byte) ([]byte, error) {
	if len(text) > MostText {
		return nil, fmt.Errorf("it takes %d bytes, and what goes to all hosts may take %d", len(text), MostText)
	}
	return s.seal.Seal(nil, nil, text, []byte(id)), nil
}

// Open returns what n says. It fails where n was sealed with another secret,
// for another id, or by nobody.
func (s *Sealer) Open(n *Notice) ([]byte, error) {
	text, err := s.seal.Open(nil, nil, n.Sealed, []byte(n.ID))
	if err != nil {
		return nil, errors.New("it was not sealed with this fleet's secret")
	}
	return text, nil
}
