package l7

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/config"
)

const (
	longestToken = 8 << 10
	tokenLeeway  = 30 * time.Second // by which clocks may differ

	tokenShards = 16
	shardTokens = 4096
)

// tokens verifies JWTs (RFC 7519) and remembers those that are good, by their
// hash and until they expire: a signature costs some 100 µs, a look less than 1.
type tokens struct {
	from   config.Users
	keys   []jwt.VerificationKey // those of from
	parser *jwt.Parser
	now    func() time.Time // of day; set before the first use
	known  [tokenShards]tokenShard
}

type tokenShard struct {
	mu    sync.Mutex
	users map[[sha256.Size]byte]tokenUser
}

type tokenUser struct {
	name string
	end  int64 // Unix s
}

// newTokens returns what verifies tokens as u says, nil if nothing does.
func newTokens(u config.Users) (*tokens, error) {
	if u.Claim == "" {
		return nil, nil
	}
	if len(u.Keys) == 0 {
		return nil, errors.New("no key verifies the users' tokens: name a key_file or jwks_file")
	}
	t := &tokens{from: u}
	var algorithms []string
	for _, k := range u.Keys {
		key, err := verifier(k)
		if err != nil {
			return nil, err
		}
		t.keys = append(t.keys, key)
		algorithms = append(algorithms, k.Algorithm)
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods(algorithms), jwt.WithExpirationRequired(), jwt.WithLeeway(tokenLeeway),
		jwt.WithTimeFunc(func() time.Time { return t.now() }), jwt.WithJSONNumber(), jwt.WithStrictDecoding(),
	}
	if u.Issuer != "" {
		options = append(options, jwt.WithIssuer(u.Issuer))
	}
	if u.Audience != "" {
		options = append(options, jwt.WithAudience(u.Audience))
	}
	t.parser = jwt.NewParser(options...)
	for i := range t.known {
		t.known[i].users = map[[sha256.Size]byte]tokenUser{}
	}
	return t, nil
}

// same reports whether t and o verify alike, so that what one has learned holds
// for the other.
func (t *tokens) same(o *tokens) bool {
	return t != nil && o != nil && reflect.DeepEqual(t.from, o.from)
}

// looksLikeToken reports whether s has the three parts of a signed token. What
// has not is no token, and may be an API key.
func looksLikeToken(s string) bool {
	return len(s) <= longestToken && strings.Count(s, ".") == 2 && strings.HasPrefix(s, "ey")
}

// recall returns the user of a token that was verified before.
func (t *tokens) recall(token string) (user string, ok bool) {
	sum := hashOf(token)
	sh := &t.known[sum[0]%tokenShards]
	now := t.now().Unix()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	u, ok := sh.users[sum]
	if ok && now >= u.end {
		delete(sh.users, sum)
		return "", false
	}
	return u.name, ok
}

// hashOf allocates nothing for a token of usual length.
func hashOf(token string) [sha256.Size]byte {
	var text [2 << 10]byte
	if len(token) > len(text) {
		return sha256.Sum256([]byte(token))
	}
	return sha256.Sum256(text[:copy(text[:], token)])
}

// verify returns the user of a good token, else none.
func (t *tokens) verify(token string) string {
	claims := jwt.MapClaims{}
	if _, err := t.parser.ParseWithClaims(token, claims, t.keyOf); err != nil {
		return ""
	}
	user := claimText(claims[t.from.Claim])
	end, err := claims.GetExpirationTime()
	if user == "" || err != nil || end == nil {
		return ""
	}
	t.remember(token, tokenUser{user, min(end.Unix(), math.MaxInt64/2) + int64(tokenLeeway/time.Second)})
	return user
}

// remember keeps a good token; where there is no room, any other gives way.
func (t *tokens) remember(token string, u tokenUser) {
	sum := hashOf(token)
	sh := &t.known[sum[0]%tokenShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.users) >= shardTokens {
		for other := range sh.users {
			delete(sh.users, other)
			break
		}
	}
	sh.users[sum] = u
}

// keyOf returns what may verify a token: the keys of its algorithm, and of its
// `kid` where both have one.
func (t *tokens) keyOf(token *jwt.Token) (any, error) {
	if _, ok := token.Header["crit"]; ok {
		return nil, errors.New("the token has critical extensions") // RFC 7515, 4.1.11
	}
	id, _ := token.Header["kid"].(string)
	var set jwt.VerificationKeySet
	for i, k := range t.from.Keys {
		if k.Algorithm != token.Method.Alg() || id != "" && k.ID != "" && id != k.ID {
			continue
		}
		set.Keys = append(set.Keys, t.keys[i])
	}
	return set, nil
}

// verifier returns k as the library takes it.
func verifier(k config.TokenKey) (jwt.VerificationKey, error) {
	if jwt.GetSigningMethod(k.Algorithm) == nil || strings.EqualFold(k.Algorithm, "none") {
		return nil, fmt.Errorf("algorithm %q of a token's key is not known", k.Algorithm)
	}
	if len(k.Secret) > 0 {
		return k.Secret, nil
	}
	key, err := x509.ParsePKIXPublicKey(k.Public)
	if err != nil {
		return nil, fmt.Errorf("read the public key for tokens: %w", err)
	}
	return key, nil
}

// claimText returns a claim that names someone: a string, or a number as it was
// written.
func claimText(v any) string {
	switch c := v.(type) {
	case string:
		if len(c) <= longestKey {
			return c
		}
	case json.Number:
		return c.String()
	}
	return ""
}
