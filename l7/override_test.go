package l7

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/config"
)

// owned is a key file with one key of acme, on plan paid, and one of bob.
func owned() config.HTTP {
	return config.HTTP{KeyHeader: "X-Api-Key", KeyFile: "keys.yaml", Keys: keyringOf(
		keyOf("acme-1", "acme", "shop", "paid"), keyOf("bob-1", "bob", "bank", "free"),
	)}
}

// RC-030 in memory: an override changes the figures at once and keeps what is
// spent, and so does its end; of every algorithm.
func TestOverrideKeepsWhatIsSpent(t *testing.T) {
	for _, c := range []struct{ kind, figures, more, less string }{
		{"token bucket", "rate: 10/h", "rate: 25/h", "rate: 3/h"},
		{"sliding log", "limit: 10/h", "limit: 25/h", "limit: 3/h"},
		{"sliding counter", "limit: 10/h, algorithm: sliding-counter", "limit: 25/h", "limit: 3/h"},
	} {
		with := func(override string) Policy {
			list := ""
			if override != "" {
				list = fmt.Sprintf(", overrides: [{owner: acme, %s}]", override)
			}
			return Policy{HTTP: owned(), Rules: []config.Rule{written(t, "{name: daily, per: key, "+c.figures+list+"}")}}
		}
		r := newRig(t, with(""))
		acme, bob := r.client("127.0.0.2"), r.client("127.0.0.3")
		want(t, c.kind, acme.passed(15, "X-Api-Key: acme-1"), 10)
		r.set(with(c.more))
		if got := acme.passed(30, "X-Api-Key: acme-1"); got < 14 || got > 15 {
			t.Errorf("%s: raised from 10 to 25, %d more passed, want 15", c.kind, got)
		}
		want(t, c.kind+": another owner", bob.passed(15, "X-Api-Key: bob-1"), 10)
		r.set(with(c.less))
		got := acme.get("X-Api-Key: acme-1")
		want(t, c.kind+": lowered", got.status, 429)
		r.set(with(""))
		want(t, c.kind+": ended", acme.passed(5, "X-Api-Key: acme-1"), 0)
		r.pass(25 * time.Hour)
		want(t, c.kind+": a window later", acme.passed(15, "X-Api-Key: acme-1"), 10)
	}
}

// RC-030: so do overrides for a user and for a tenant.
func TestOverrideOfUserAndTenantKeepsWhatIsSpent(t *testing.T) {
	t.Parallel()
	base := owned()
	base.Users.Header, base.Proxies = "X-User", prefixes("127.0.0.0/8")
	for _, c := range []struct{ per, whom, his, other string }{
		{"user", "user: alice", "X-User: alice", "X-User: bob"},
		{"tenant", "tenant: shop", "X-Api-Key: acme-1", "X-Api-Key: bob-1"},
		{"[tenant, user]", "tenant: shop, user: alice", "X-Api-Key: acme-1\r\nX-User: alice", "X-Api-Key: acme-1\r\nX-User: bob"},
	} {
		for _, kind := range []string{"rate", "limit", "quota"} {
			unit := map[string]string{"rate": "h", "limit": "h", "quota": "day"}[kind]
			with := func(override int) Policy {
				list := ""
				if override > 0 {
					list = fmt.Sprintf(", overrides: [{%s, %s: %d/%s}]", c.whom, kind, override, unit)
				}
				return Policy{HTTP: base, Rules: []config.Rule{written(t, fmt.Sprintf("{name: daily, per: %s, %s: 10/%s%s}", c.per, kind, unit, list))}}
			}
			what := kind + " per " + c.per
			r := newRig(t, with(0))
			client := r.client("127.0.0.2")
			want(t, what, client.passed(15, c.his), 10)
			r.set(with(15))
			if got := client.passed(9, c.his); got != 5 && (kind != "rate" || got != 4) { // a bucket's debt is rounded up
				t.Errorf("%s: raised by 5, %d more passed", what, got)
			}
			want(t, what+": another's stays", client.passed(15, c.other), 10)
			r.set(with(3))
			want(t, what+": lowered", client.passed(3, c.his), 0)
			r.set(with(0))
			want(t, what+": ended", client.passed(3, c.his), 0)
		}
	}
}

// A token's signature is not checked for an override's sake while a rule that
// goes by the address refuses, and a made-up token has no one's figures.
func TestOverrideOfUserByToken(t *testing.T) {
	t.Parallel()
	sign, verify := tokenKey(t, "", "ES256")
	h := config.HTTP{Users: config.Users{Claim: "sub", Keys: []config.TokenKey{verify}}}
	r := newTunedRig(t, Policy{HTTP: h, Rules: []config.Rule{
		written(t, "{name: all, per: client, limit: 9/h}"),
		written(t, "{name: some, match: {path: /**}, per: client, limit: 1/h, overrides: [{user: alice, limit: 4/h}]}"),
	}}, "127.0.0.1:0", nil, func(g *Gate) { g.Wall = func() time.Time { return today } })
	alice := "Authorization: Bearer " + tokenOf(t, "ES256", sign, nil, jwt.MapClaims{"sub": "alice"})
	want(t, "a made-up token", r.client("127.0.0.2").passed(3, alice[:len(alice)-8]+"AAAAAAAA"), 1)
	want(t, "no token", r.client("127.0.0.3").passed(3), 1)
	want(t, "alice", r.client("127.0.0.4").passed(6, alice), 4)
	want(t, "alice, over her own", r.client("127.0.0.4").get(alice).status, 429)
}

func TestFirstOverrideThatFits(t *testing.T) {
	hash := sha256.Sum256([]byte("bob-1"))
	r := newRig(t, Policy{HTTP: owned(), Rules: []config.Rule{written(t, `{name: daily, per: key, limit: 2/h, overrides: [
		{plan: paid, from: 127.0.0.9, limit: 3/h}, {owner: acme, limit: 4/h}, {plan: paid, limit: 5/h},
		{key: `+hex.EncodeToString(hash[:])[:9]+`, limit: 6/h}, {from: [127.0.1.0/24, 127.0.2.0/24], limit: 7/h}]}`)}})
	for _, c := range []struct {
		what, from, key string
		want            int
	}{
		{"nobody, no key", "127.0.0.2", "", 2},
		{"owner before plan", "127.0.0.2", "X-Api-Key: acme-1", 4},
		{"key", "127.0.1.2", "X-Api-Key: bob-1", 6},
		{"prefix", "127.0.1.2", "", 7},
		{"second prefix", "127.0.2.2", "X-Api-Key: unknown", 7},
	} {
		var headers []string
		if c.key != "" {
			headers = []string{c.key}
		}
		want(t, c.what, r.client(c.from).passed(9, headers...), c.want)
	}
	// The bucket is the key's: four of its three are spent from there.
	want(t, "all that an override says must fit", r.client("127.0.0.9").passed(9, "X-Api-Key: acme-1"), 0)
	r.pass(2 * time.Hour)
	want(t, "all that an override says must fit", r.client("127.0.0.9").passed(9, "X-Api-Key: acme-1"), 3)
}

// DESIGN's example: requests without a key have figures of their own, which no
// override changes.
func TestAnonymousKeepsItsFigures(t *testing.T) {
	r := newRig(t, Policy{HTTP: owned(), Rules: []config.Rule{written(t, `{name: daily, per: key, limit: 10/h,
		anonymous: {per: client, limit: 3/h}, overrides: [{owner: acme, limit: 20/h}, {from: 127.0.0.0/8, limit: 15/h}]}`)}})
	want(t, "without a key", r.client("127.0.0.2").passed(9), 3)
	want(t, "acme", r.client("127.0.0.2").passed(30, "X-Api-Key: acme-1"), 20)
	want(t, "bob", r.client("127.0.0.2").passed(30, "X-Api-Key: bob-1"), 15)
}

// An override ends by the clock, without a reload.
func TestOverrideEnds(t *testing.T) {
	day := time.Date(2027, 3, 31, 23, 0, 0, 0, time.UTC)
	tune := func(g *Gate) { g.Wall = func() time.Time { return day.Add(g.Clock()) } }
	r := newTunedRig(t, Policy{HTTP: owned(), Rules: []config.Rule{
		written(t, `{name: daily, per: key, limit: 2/10min, overrides: [{owner: acme, limit: 5/10min, until: 2027-03-31}]}`),
	}}, "127.0.0.1:0", nil, tune)
	c := r.client("127.0.0.2")
	want(t, "on its last day", c.passed(9, "X-Api-Key: acme-1"), 5)
	r.pass(59 * time.Minute)
	want(t, "a minute before its end", c.passed(4, "X-Api-Key: acme-1"), 4)
	r.pass(time.Minute)
	want(t, "after its end", c.passed(1, "X-Api-Key: acme-1"), 0)
	r.pass(10 * time.Minute)
	want(t, "a window later", c.passed(9, "X-Api-Key: acme-1"), 2)
}

// Requests with and without an override that share a client's bucket take turns:
// the ones do not lose the others' debt.
func TestOverridesShareABucket(t *testing.T) {
	for _, figures := range []string{"rate", "limit"} {
		r := newRig(t, Policy{HTTP: owned(), Rules: []config.Rule{
			written(t, fmt.Sprintf(`{name: a, per: client, %s: 5/h, overrides: [{plan: paid, %s: 20/h}]}`, figures, figures)),
		}})
		c := r.client("127.0.0.2")
		passed := 0
		for range 40 {
			passed += c.passed(1, "X-Api-Key: acme-1") + c.passed(1)
		}
		if passed < 19 || passed > 20 {
			t.Errorf("%s: %d passed, want 20", figures, passed)
		}
	}
}
