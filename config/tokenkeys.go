package config

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

const (
	largestTokenKeys = 1 << 20
	mostTokenKeys    = 64 // a token that names no key is tried with all of its algorithm
)

// TokenKey verifies tokens under one algorithm (RFC 7518, RFC 8037), so that no
// token can choose how it is checked. It has a Public key or a Secret.
type TokenKey struct {
	ID        string // `kid`; empty: none
	Algorithm string // HS256 to HS512, RS, PS or ES likewise, or EdDSA
	Public    []byte // DER, as of RFC 5280
	Secret    []byte
}

// algorithms are those that a token may be signed with.
var algorithms = []string{
	"HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
}

func checkAlgorithm(s string) string {
	switch {
	case slices.Contains(algorithms, s):
		return ""
	case strings.EqualFold(s, "none"):
		return "algorithm none is no signature: anyone could be any user; use RS256, ES256 or EdDSA"
	}
	return oneOf("algorithms", s, algorithms)
}

// tokenKeys reads what the file of u holds. No message repeats any of it.
func tokenKeys(u Users, data []byte) ([]TokenKey, error) {
	if u.JWKSFile != "" {
		return readJWKS(data, u.Algorithms)
	}
	k, err := readTokenKey(data, u.Algorithms)
	if err != nil {
		return nil, err
	}
	return []TokenKey{k}, nil
}

// readTokenKey reads a public key or certificate in PEM, else data is a secret.
func readTokenKey(data []byte, allowed []string) (TokenKey, error) {
	if !bytes.Contains(data, []byte("-----BEGIN ")) {
		secret, _ := bytes.CutSuffix(data, []byte("\n"))
		secret, _ = bytes.CutSuffix(secret, []byte("\r"))
		return newSecret(secret, "", allowed)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return TokenKey{}, errors.New("the PEM block does not read: write the public key out anew")
	}
	public, err := publicKey(block)
	if err != nil {
		return TokenKey{}, err
	}
	return newPublic(public, "", allowed)
}

func publicKey(block *pem.Block) (any, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return c.PublicKey, nil
	case "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY":
		return nil, errors.New("it holds a private key, which does not belong here: write the public one (openssl pkey -pubout)")
	}
	return nil, errors.New("the PEM block is no PUBLIC KEY and no CERTIFICATE")
}

func newSecret(secret []byte, declared string, allowed []string) (TokenKey, error) {
	var fits []string
	for i, name := range []string{"HS256", "HS384", "HS512"} {
		if len(secret) >= 32+16*i { // RFC 7518, 3.2
			fits = append(fits, name)
		}
	}
	if len(fits) == 0 {
		return TokenKey{}, fmt.Errorf("a secret of %d bytes can be guessed: it needs 32 for HS256, 48 for HS384, 64 for HS512", len(secret))
	}
	alg, err := pin(fits, declared, allowed)
	return TokenKey{Algorithm: alg, Secret: secret}, err
}

func newPublic(key any, declared string, allowed []string) (TokenKey, error) {
	var fits []string
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < 2048 { // RFC 7518, 3.3
			return TokenKey{}, fmt.Errorf("an RSA key of %d bits can be broken: it needs 2048", k.N.BitLen())
		}
		fits = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case *ecdsa.PublicKey:
		fits = map[string][]string{"P-256": {"ES256"}, "P-384": {"ES384"}, "P-521": {"ES512"}}[k.Params().Name]
	case ed25519.PublicKey:
		fits = []string{"EdDSA"}
	}
	if fits == nil {
		return TokenKey{}, fmt.Errorf("a key of type %T cannot verify tokens: use RSA, P-256, P-384, P-521 or Ed25519", key)
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return TokenKey{}, err
	}
	alg, err := pin(fits, declared, allowed)
	return TokenKey{Algorithm: alg, Public: der}, err
}

// pin chooses the one algorithm of a key, out of those that fit its kind, what
// the key itself declares, and those that the config allows.
func pin(fits []string, declared string, allowed []string) (string, error) {
	if declared == "Ed25519" { // RFC 9864
		declared = "EdDSA"
	}
	switch {
	case len(allowed) > 0:
	case declared != "":
		allowed = fits
	default:
		allowed = fits[:1]
	}
	var left []string
	for _, a := range fits {
		if slices.Contains(allowed, a) && (declared == "" || declared == a) {
			left = append(left, a)
		}
	}
	switch {
	case len(left) == 0 && declared != "":
		return "", fmt.Errorf("its algorithm is %s, and not %s", quote(declared), list(allowed))
	case len(left) == 0:
		return "", fmt.Errorf("it is for %s, and `algorithms` has %s", list(fits), list(allowed))
	case len(left) > 1:
		return "", fmt.Errorf("it would do for %s, but a key has one algorithm: name the one in `algorithms`", list(left))
	}
	return left[0], nil
}

// jwk is one key of a JWKS (RFC 7517, RFC 7518, RFC 8037).
type jwk struct {
	KeyType string   `json:"kty"`
	ID      string   `json:"kid"`
	Use     string   `json:"use"`
	Ops     []string `json:"key_ops"`
	Alg     string   `json:"alg"`
	Curve   string   `json:"crv"`
	N, E    string
	X, Y    string
	K       string // of a secret
	D       string // of a private key
}

// readJWKS reads the keys that may verify a token, and passes over others, as
// RFC 7517 (5) has it; at least one must be left.
func readJWKS(data []byte, allowed []string) ([]TokenKey, error) {
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, errors.New("it is no JWKS: write {\"keys\": [...]} as of RFC 7517, or name a PEM file in key_file")
	}
	var keys []TokenKey
	var skipped error
	for i, j := range set.Keys {
		if j.D != "" {
			return nil, fmt.Errorf("key %d is a private key, which does not belong here: write the public ones", i+1)
		}
		if j.Use == "enc" || len(j.Ops) > 0 && !slices.Contains(j.Ops, "verify") {
			continue
		}
		k, err := j.key(allowed)
		if err != nil {
			skipped = fmt.Errorf("key %d: %w", i+1, err)
			continue
		}
		k.ID = j.ID
		keys = append(keys, k)
	}
	switch {
	case len(keys) == 0 && skipped != nil:
		return nil, fmt.Errorf("no key can verify tokens: %w", skipped)
	case len(keys) == 0:
		return nil, errors.New("it holds no key that verifies tokens")
	case len(keys) > mostTokenKeys:
		return nil, fmt.Errorf("%d keys: the most is %d", len(keys), mostTokenKeys)
	}
	return keys, nil
}

func (j *jwk) key(allowed []string) (TokenKey, error) {
	var bad error
	read := func(name, s string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
		if err != nil || len(b) == 0 {
			bad = fmt.Errorf("its `%s` is not base64url", name)
		}
		return b
	}
	switch j.KeyType {
	case "RSA":
		n, e := new(big.Int).SetBytes(read("n", j.N)), new(big.Int).SetBytes(read("e", j.E))
		if bad == nil && (!e.IsInt64() || e.Int64() > 1<<31-1 || e.Int64() < 3 || e.Bit(0) == 0 || n.BitLen() > 16384) {
			bad = errors.New("its figures are no RSA key's")
		}
		if bad != nil {
			return TokenKey{}, bad
		}
		return newPublic(&rsa.PublicKey{N: n, E: int(e.Int64())}, j.Alg, allowed)
	case "EC":
		return j.curve(read("x", j.X), read("y", j.Y), allowed)
	case "OKP":
		if x := read("x", j.X); j.Curve == "Ed25519" && len(x) == ed25519.PublicKeySize {
			return newPublic(ed25519.PublicKey(x), j.Alg, allowed)
		}
		return TokenKey{}, errors.New("it is no Ed25519 key")
	case "oct":
		k := read("k", j.K)
		if bad != nil {
			return TokenKey{}, bad
		}
		return newSecret(k, j.Alg, allowed)
	}
	return TokenKey{}, fmt.Errorf("its type %s is not known: use RSA, EC, OKP or oct", quote(j.KeyType))
}

func (j *jwk) curve(x, y []byte, allowed []string) (TokenKey, error) {
	curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[j.Curve]
	if curve == nil {
		return TokenKey{}, fmt.Errorf("its curve %s is not known: use P-256, P-384 or P-521", quote(j.Curve))
	}
	size := (curve.Params().BitSize + 7) / 8
	if len(x) != size || len(y) != size {
		return TokenKey{}, errors.New("its figures are not of its curve's length")
	}
	key, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
	if err != nil {
		return TokenKey{}, errors.New("its point is not on its curve")
	}
	return newPublic(key, j.Alg, allowed)
}
