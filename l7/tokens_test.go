package l7

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// today is when the tokens of the tests are made.
var today = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// tokenKey makes a key of an algorithm: what signs, and what verifies.
func tokenKey(t testing.TB, id, algorithm string) (sign any, verify config.TokenKey) {
	t.Helper()
	verify = config.TokenKey{ID: id, Algorithm: algorithm}
	var public any
	var err error
	switch algorithm[:2] {
	case "HS":
		verify.Secret = make([]byte, 64)
		rand.Read(verify.Secret)
		return verify.Secret, verify
	case "ES":
		curve := map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()}[algorithm]
		var k *ecdsa.PrivateKey
		k, err = ecdsa.GenerateKey(curve, rand.Reader)
		sign, public = k, &k.PublicKey
	case "Ed":
		public, sign, err = ed25519.GenerateKey(rand.Reader)
	default:
		var k *rsa.PrivateKey
		k, err = rsa.GenerateKey(rand.Reader, 2048)
		sign, public = k, &k.PublicKey
	}
	if err != nil {
		t.Fatal(err)
	}
	if verify.Public, err = x509.MarshalPKIXPublicKey(public); err != nil {
		t.Fatal(err)
	}
	return sign, verify
}

// tokenOf signs claims, which are good ones but for changes.
func tokenOf(t testing.TB, algorithm string, key any, head map[string]any, changes jwt.MapClaims) string {
	t.Helper()
	claims := jwt.MapClaims{"sub": "alice", "iss": "https://id.example", "aud": []string{"shop", "mail"}, "exp": today.Add(time.Hour).Unix()}
	for name, v := range changes {
		if claims[name] = v; v == nil {
			delete(claims, name)
		}
	}
	token := jwt.NewWithClaims(jwt.GetSigningMethod(algorithm), claims)
	for name, v := range head {
		token.Header[name] = v
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func usersOf(keys ...config.TokenKey) config.Users {
	return config.Users{Claim: "sub", JWKSFile: "jwks.json", Issuer: "https://id.example", Audience: "shop", Keys: keys}
}

// newUserRig is a rig with 4/min a user and, without one, 2/min a client. The
// time of day stands still at today plus later.
func newUserRig(t *testing.T, users config.Users, later *atomic.Int64) *rig {
	t.Helper()
	rule := ruleOf(t, "users", "user", "4/1m")
	rule.Anonymous = &config.Anonymous{Per: []config.Per{config.PerClient}, Rate: config.Rate{Amount: 2, Interval: time.Minute, Unit: config.Count}, Burst: 2}
	return newTunedRig(t, Policy{HTTP: config.HTTP{Users: users}, Rules: []config.Rule{rule}}, "127.0.0.1:0", nil, func(g *Gate) {
		g.Wall = func() time.Time { return today.Add(time.Duration(later.Load())) }
	})
}

func bearer(token string) string { return "Authorization: Bearer " + token }

// Users are counted by their own name, wherever they come from, under each
// algorithm.
func TestUsers(t *testing.T) {
	t.Parallel()
	var users config.Users
	signs := map[string]any{}
	for _, a := range []string{"HS256", "HS384", "HS512", "RS256", "RS512", "PS256", "PS384", "ES256", "ES384", "ES512", "EdDSA"} {
		sign, verify := tokenKey(t, "", a)
		signs[a] = sign
		users = usersOf(append(users.Keys, verify)...)
	}
	r := newUserRig(t, users, new(atomic.Int64))
	for a, sign := range signs {
		token := bearer(tokenOf(t, a, sign, nil, jwt.MapClaims{"sub": "user of " + a}))
		want(t, a+" from here", r.client("127.0.0.2").passed(3, token), 3)
		want(t, a+" from there", r.client("127.0.0.3").passed(3, token), 1)
	}
	want(t, "without a token", r.client("127.0.0.2").passed(5), 2)
}

// A token that is not good makes its sender nobody: it is counted as one without
// a token is, never let through.
func TestBadTokens(t *testing.T) {
	t.Parallel()
	rs, rsKey := tokenKey(t, "a", "RS256")
	es, esKey := tokenKey(t, "b", "ES256")
	other, _ := tokenKey(t, "", "RS256")
	r := newUserRig(t, usersOf(rsKey, esKey), new(atomic.Int64))
	good := tokenOf(t, "RS256", rs, map[string]any{"kid": "a"}, nil)
	parts := strings.Split(good, ".")
	unix := func(d time.Duration) int64 { return today.Add(d).Unix() }
	none := tokenOf(t, "none", jwt.UnsafeAllowNoneSignatureType, nil, nil)
	changed := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"sub":"root","iss":"https://id.example","aud":"shop","exp":%d}`, unix(time.Hour)))
	for i, c := range []struct {
		name    string
		headers []string
		good    bool
	}{
		{"good", []string{bearer(good)}, true},
		{"without kid", []string{bearer(tokenOf(t, "RS256", rs, nil, nil))}, true},
		{"scheme in lower case", []string{"Authorization: bearer " + good}, true},
		{"within the leeway", []string{bearer(tokenOf(t, "RS256", rs, nil, jwt.MapClaims{"exp": unix(-20 * time.Second)}))}, true},
		{"one audience", []string{bearer(tokenOf(t, "ES256", es, nil, jwt.MapClaims{"aud": "shop"}))}, true},

		{"none", []string{bearer(none)}, false},
		{"NONE", []string{bearer(strings.Replace(none, "eyJhbGciOiJub25lIi", "eyJhbGciOiJOT05FIi", 1))}, false},
		{"no signature", []string{bearer(parts[0] + "." + parts[1] + ".")}, false},
		{"changed claims", []string{bearer(parts[0] + "." + changed + "." + parts[2])}, false},
		{"another key", []string{bearer(tokenOf(t, "RS256", other, nil, nil))}, false},
		{"another key's kid", []string{bearer(tokenOf(t, "RS256", rs, map[string]any{"kid": "b"}, nil))}, false},
		{"unknown kid", []string{bearer(tokenOf(t, "RS256", rs, map[string]any{"kid": "z"}, nil))}, false},
		{"a key under another algorithm", []string{bearer(tokenOf(t, "PS256", rs, nil, nil))}, false},
		{"the public key as a secret", []string{bearer(tokenOf(t, "HS256", rsKey.Public, nil, nil))}, false},
		{"expired", []string{bearer(tokenOf(t, "RS256", rs, nil, jwt.MapClaims{"exp": unix(-31 * time.Second)}))}, false},
		{"without an end", []string{bearer(tokenOf(t, "RS256", rs, nil, jwt.MapClaims{"exp": nil}))}, false},
		{"not yet", []string{bearer(tokenOf(t, "RS256", rs, nil, jwt.MapClaims{"nbf": unix(time.Minute)}))}, false},
		{"another issuer", []string{bearer(tokenOf(t, "RS256", rs, nil, jwt.MapClaims{"iss": "https://evil.example"}))}, false},
		{"no issuer", []string{bearer(tokenOf(t, "RS256", rs, nil, jwt.MapClaims{"iss": nil}))}, false},
		{"another audience", []string{bearer(tokenOf(t, "RS256", rs, nil, jwt.MapClaims{"aud": "mail"}))}, false},
		{"no name", []string{bearer(tokenOf(t, "RS256", rs, nil, jwt.MapClaims{"sub": nil}))}, false},
		{"empty name", []string{bearer(tokenOf(t, "RS256", rs, nil, jwt.MapClaims{"sub": ""}))}, false},
		{"endless name", []string{bearer(tokenOf(t, "RS256", rs, nil, jwt.MapClaims{"sub": strings.Repeat("a", 513)}))}, false},
		{"a list of names", []string{bearer(tokenOf(t, "RS256", rs, nil, jwt.MapClaims{"sub": []string{"alice"}}))}, false},
		{"critical extension", []string{bearer(tokenOf(t, "RS256", rs, map[string]any{"crit": []string{"exp"}}, nil))}, false},
		{"endless", []string{bearer(tokenOf(t, "RS256", rs, nil, jwt.MapClaims{"x": strings.Repeat("a", 8<<10)}))}, false},
		{"given twice", []string{bearer(good), bearer(good)}, false},
		{"another scheme", []string{"Authorization: Basic " + good}, false},
		{"not in its place", []string{"X-Token: " + good}, false},
		{"junk", []string{bearer("eyJ.eyJ.eyJ")}, false},
	} {
		r.set(Policy{HTTP: config.HTTP{Users: usersOf(rsKey, esKey)}, Rules: []config.Rule{
			// A rule of its own each time: all buckets are full.
			func() config.Rule {
				rule := ruleOf(t, fmt.Sprint("users-", i), "user", "4/1m")
				rule.Anonymous = &config.Anonymous{Per: []config.Per{config.PerClient}, Rate: config.Rate{Amount: 2, Interval: time.Minute, Unit: config.Count}, Burst: 2}
				return rule
			}(),
		}})
		most := 2
		if c.good {
			most = 4
		}
		want(t, c.name, r.client("127.0.0.2").passed(6, c.headers...), most)
	}
}

// A signature is checked only if the rules that go by the address let the
// request pass; a good token is remembered until it expires, and no longer than
// its key is there.
func TestTokensAreCheckedLate(t *testing.T) {
	t.Parallel()
	sign, key := tokenKey(t, "", "ES256")
	later := new(atomic.Int64)
	r := newUserRig(t, usersOf(key), later)
	rules := []config.Rule{ruleOf(t, "users", "user", "100/1m"), ruleOf(t, "clients", "client", "3/1m")}
	policy := Policy{HTTP: config.HTTP{Users: usersOf(key)}, Rules: rules, Block: prefixes("127.0.0.66")}
	r.set(policy)
	c, token := r.client("127.0.0.2"), tokenOf(t, "ES256", sign, nil, nil)
	remembered := func() bool {
		_, ok := r.gate.policy.Load().tokens.recall(token)
		return ok
	}
	want(t, "without a token", c.passed(4), 3)
	refused := c.get(bearer(token))
	want(t, "over the client's limit", refused.status, 429)
	want(t, "limits told", strings.Contains(refused.header.Get("RateLimit"), `"clients";r=0`), true)
	want(t, "checked", remembered(), false)
	want(t, "blocked", r.client("127.0.0.66").get(bearer(token)).status, 403)
	want(t, "checked", remembered(), false)
	want(t, "counted", r.gate.Counters()["users"].Refused, 0)

	want(t, "from elsewhere", r.client("127.0.0.3").get(bearer(token)).status, 200)
	want(t, "remembered", remembered(), true)
	r.set(policy)
	want(t, "remembered over a reload", remembered(), true)
	later.Store(int64(time.Hour + tokenLeeway))
	want(t, "remembered when it has expired", remembered(), false)
	later.Store(0)
	r.client("127.0.0.4").get(bearer(token))
	want(t, "remembered", remembered(), true)
	_, another := tokenKey(t, "", "ES256")
	policy.HTTP.Users = usersOf(another)
	r.set(policy)
	want(t, "remembered under another key", remembered(), false)
}

// userPolicy is a policy with one rule per user.
func userPolicy(t testing.TB, key config.TokenKey) *policy {
	t.Helper()
	p := Policy{HTTP: config.HTTP{Users: usersOf(key)}, Rules: []config.Rule{ruleOf(t, "users", "user", "1000000/1s")}}
	c, err := p.compile(limit.NewStore(1<<20), func(string) *counts { return new(counts) })
	if err != nil {
		t.Fatal(err)
	}
	c.tokens.now = func() time.Time { return today }
	return c
}

// What is remembered is bounded, and a remembered token costs no allocation.
func TestTokensAreBounded(t *testing.T) {
	sign, key := tokenKey(t, "", "ES256")
	p := userPolicy(t, key)
	for i := range tokenShards*shardTokens + 10_000 {
		p.tokens.remember(fmt.Sprint(i), tokenUser{"a", today.Unix() + 60})
	}
	n := 0
	for i := range p.tokens.known {
		n += len(p.tokens.known[i].users)
	}
	want(t, "remembered", n <= tokenShards*shardTokens && n > tokenShards*shardTokens/2, true)

	r := benchRequest(t)
	r.Header.Set("Authorization", "Bearer "+tokenOf(t, "ES256", sign, nil, nil))
	decideOnce(p, r, 0)
	allocations := testing.AllocsPerRun(1000, func() { decideOnce(p, r, 0) })
	if allocations >= 1 && !raceEnabled {
		t.Errorf("%v allocations a decision", allocations)
	}
	var a asker
	p.identify(r, &a)
	want(t, "recalled", p.recallUser(&a) && a.user == "alice", true)
}

// A user's name from a header counts where a declared proxy has set it.
func TestUserHeader(t *testing.T) {
	t.Parallel()
	h := behind("127.0.0.2")
	h.Users.Header = "X-User"
	r := newRig(t, Policy{HTTP: h, Rules: []config.Rule{ruleOf(t, "users", "user", "4/1m")}})
	proxy, stranger := r.client("127.0.0.2"), r.client("127.0.0.3")
	want(t, "alice", proxy.passed(6, "X-User: alice", xff("203.0.113.1")), 4)
	want(t, "alice from elsewhere", proxy.passed(6, "X-User: alice", xff("203.0.113.2")), 0)
	want(t, "bob", proxy.passed(1, "X-User: bob", xff("203.0.113.1")), 1)
	want(t, "to the upstream", r.last().Header.Get("X-User"), "bob")
	want(t, "two names are none", proxy.passed(6, "X-User: carol", "X-User: dave", xff("203.0.113.1")), 4)

	passed := 0
	for i := range 6 {
		passed += stranger.passed(1, fmt.Sprintf("X-User: made-up-%d", i), fmt.Sprintf("X_User: made-up-%d", i))
	}
	want(t, "made-up names of one client", passed, 4)
	for name := range r.last().Header {
		if strings.Contains(strings.ToLower(name), "user") && name != "User-Agent" {
			t.Errorf("%s reaches the upstream", name)
		}
	}
	proxy.get("X_User: root", xff("203.0.113.9"))
	for name := range r.last().Header {
		if strings.EqualFold(name, "x_user") {
			t.Errorf("%s reaches the upstream through a proxy", name)
		}
	}
}

func BenchmarkDecideUser(b *testing.B) {
	sign, key := tokenKey(b, "", "RS256")
	p := userPolicy(b, key)
	r := benchRequest(b)
	r.Header.Set("Authorization", "Bearer "+tokenOf(b, "RS256", sign, nil, nil))
	b.ReportAllocs()
	for b.Loop() {
		decideOnce(p, r, 0)
	}
}
