package config

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIdentityFaults(t *testing.T) {
	const users = "version: 1\nhttp: {proxies: [10.0.0.1], identities: {user: {"
	for _, tc := range []struct{ in, want string }{
		{"version: 1\nhttp: {identities: {}}\n", "c.yaml:2:20: `key` is missing in `http.identities`: say where the API key is, or who the `user` is"},
		{"version: 1\nhttp: {client_from: x-real-ip}\n", "c.yaml:2:21: \"x-real-ip\" is no `client_from`: use x-forwarded-for or forwarded"},
		{"version: 1\nhttp: {client_from: Forwarded}\n", "c.yaml:2:21: \"Forwarded\" is no `client_from`: did you mean `forwarded`?"},
		{"version: 1\nhttp: {upstream: \"http://a\", listeners: [{address: \":80\", proxy_protocol: true}]}\n", "c.yaml:2:41: listener \":80\" has `proxy_protocol`, which only declared proxies may speak"},
		{"version: 1\nhttp: {identities: {key: {bearer: false}}}\n", "c.yaml:2:35: no place is left for the key"},
		{"version: 1\nhttp: {identities: {key: {file: k}}}\n", "c.yaml:2:26: `header` is missing"},
		{"version: 1\nhttp: {identities: {key: {query: \"a&b\"}}}\n", "c.yaml:2:34: \"a&b\" is no parameter name"},
		{users + "header: X-User, jwt: sub}}}\n", "c.yaml:2:49: a user is known by `header` or by `jwt`"},
		{users + "issuer: a}}}\n", "c.yaml:2:48: `jwt` is missing in `http.identities.user`: name the claim"},
		{users + "header: Authorization}}}\n", "c.yaml:2:57: Authorization is set by the client itself"},
		{users + "header: X-User, issuer: a}}}\n", "c.yaml:2:65: `issuer` is about tokens"},
		{users + "header: X-Key}, key: {header: x-key}}}\n", "c.yaml:2:57: header X-Key carries the API key already"},
		{"version: 1\nhttp: {identities: {user: {header: X-User}}}\n", "c.yaml:2:36: header X-User counts only where a declared proxy sets it"},
		{users + "jwt: sub}}}\n", "c.yaml:2:48: `jwks_file` is missing"},
		{users + "jwt: sub, key_file: a, jwks_file: b}}}\n", "c.yaml:2:59: keys come from `key_file` or from `jwks_file`: remove one"},
		{users + "jwt: sub, key_file: nowhere.pem}}}\n", "c.yaml:2:69: read keys of tokens: open nowhere.pem: "},
		{users + "jwt: sub, algorithms: [none], key_file: nowhere.pem}}}\n", "c.yaml:2:72: algorithm none is no signature"},
		{"version: 1\nrules: [{name: a, per: user, rate: 1/s}]\n", "c.yaml:2:9: rule \"a\" counts per user, but nothing says who the user is"},
		{"version: 1\nhttp: {identities: {key: {header: K}}}\nrules: [{name: a, per: tenant, rate: 1/s}]\n", "c.yaml:3:9: rule \"a\" counts per tenant, but no key file"},
	} {
		_, err := Parse("c.yaml", []byte(tc.in))
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s\n got: %v\nwant: %s", tc.in, err, tc.want)
		}
	}
}

func TestIdentityWarnings(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "headgate.yaml")
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(strings.Repeat("s", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	const head = "version: 1\nhttp: {listen: \":80\", upstream: \"http://a\", client_from: forwarded, identities: {key: {header: K}, user: {jwt: sub, key_file: secret}}}\n"
	c, err := Parse(name, []byte(head+"rules: [{name: a, per: user, match: {path: /a}, rate: 9/s}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	var starts []string
	for _, w := range Warnings(c) {
		starts = append(starts, strings.Join(strings.Fields(w)[:5], " "))
	}
	want := []string{
		"http.identities.key has no file: keys", "http.client_from does nothing: nobody may", "http.identities.user has no audience: a",
		"no rule per client stands",
	}
	if diff := cmp.Diff(want, starts); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func pemOf(t *testing.T, kind string, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Each key has one algorithm, by its kind and by what the config allows.
func TestTokenKeyFile(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long := []byte(strings.Repeat("s", 64) + "\n")
	for _, tc := range []struct {
		name    string
		data    []byte
		allowed []string
		want    string // algorithm, or a part of the error
	}{
		{"rsa", pemOf(t, "PUBLIC KEY", &r.PublicKey), nil, "RS256"},
		{"rsa as PS512", pemOf(t, "PUBLIC KEY", &r.PublicKey), []string{"PS512", "ES256"}, "PS512"},
		{"rsa as either", pemOf(t, "PUBLIC KEY", &r.PublicKey), []string{"PS512", "RS256"}, "it would do for RS256 or PS512, but a key has one algorithm"},
		{"rsa as HS256", pemOf(t, "PUBLIC KEY", &r.PublicKey), []string{"HS256"}, "it is for RS256, RS384, "},
		{"P-384", pemOf(t, "PUBLIC KEY", &e.PublicKey), nil, "ES384"},
		{"Ed25519", pemOf(t, "PUBLIC KEY", ed), nil, "EdDSA"},
		{"secret", long, nil, "HS256"},
		{"secret as HS512", long, []string{"HS512"}, "HS512"},
		{"secret as RS256", long, []string{"RS256"}, "it is for HS256, HS384 or HS512, and `algorithms` has RS256"},
		{"short secret", []byte(strings.Repeat("s", 31) + "\n"), nil, "a secret of 31 bytes can be guessed"},
		{"private", pemOf(t, "RSA PRIVATE KEY", ed), nil, "it holds a private key"},
		{"other PEM", pemOf(t, "X", ed), nil, "the PEM block is no PUBLIC KEY"},
		{"broken PEM", []byte("-----BEGIN PUBLIC KEY-----\n"), nil, "the PEM block does not read"},
	} {
		keys, err := tokenKeys(Users{KeyFile: "k", Algorithms: tc.allowed}, tc.data)
		switch {
		case err != nil && !strings.Contains(err.Error(), tc.want), err == nil && keys[0].Algorithm != tc.want:
			t.Errorf("%s: %+v, %v; want %s", tc.name, keys, err, tc.want)
		case err == nil && (len(keys[0].Public) == 0) == (len(keys[0].Secret) == 0):
			t.Errorf("%s: %+v", tc.name, keys)
		}
	}
}

func TestJWKS(t *testing.T) {
	data, err := os.ReadFile("../docs/reference-jwks.json")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := tokenKeys(Users{JWKSFile: "j"}, data)
	if err != nil || len(keys) != 2 || keys[0].ID != "2026-11" || keys[0].Algorithm != "ES256" || keys[1].Algorithm != "RS256" {
		t.Errorf("%+v, %v", keys, err)
	}
	if keys, err := tokenKeys(Users{JWKSFile: "j", Algorithms: []string{"RS256"}}, data); err != nil || len(keys) != 1 {
		t.Errorf("one is not allowed: %+v, %v", keys, err)
	}
	const ed = `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"`
	for _, tc := range []struct{ in, want string }{
		{`{"keys":[` + ed + `}]}`, "EdDSA"},
		{`{"keys":[` + ed + `,"alg":"Ed25519"}]}`, "EdDSA"},
		{`{"keys":[{"kty":"oct","k":"` + strings.Repeat("A", 64) + `"}]}`, "HS256"},
		{`{"keys":[{"kty":"new"},` + ed + `}]}`, "EdDSA"},
		{`{"keys":[` + ed + `,"alg":"RS256"}]}`, `key 1: its algorithm is "RS256", and not EdDSA`},
		{`{"keys":[` + ed + `,"alg":"none"}]}`, `its algorithm is "none", and not EdDSA`},
		{`{"keys":[` + ed + `,"use":"enc"}]}`, "it holds no key that verifies"},
		{`{"keys":[` + ed + `,"d":"AAAA"}]}`, "key 1 is a private key"},
		{`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`, "an RSA key of 17 bits"},
		{`{"keys":[{"kty":"RSA","n":"!","e":"AQAB"}]}`, "its `n` is not base64url"},
		{`{"keys":[{"kty":"EC","crv":"P-256","x":"` + strings.Repeat("A", 43) + `","y":"` + strings.Repeat("A", 43) + `"}]}`, "its point is not on its curve"},
		{`{"keys":[{"kty":"oct","k":"AAAA"}]}`, "a secret of 3 bytes"},
		{`{"keys":[]}`, "it holds no key"},
		{`[]`, "it is no JWKS"},
	} {
		keys, err := tokenKeys(Users{JWKSFile: "j"}, []byte(tc.in))
		if err != nil && !strings.Contains(err.Error(), tc.want) || err == nil && keys[0].Algorithm != tc.want {
			t.Errorf("%s: %+v, %v; want %s", tc.in, keys, err, tc.want)
		}
	}
}
