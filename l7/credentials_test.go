package l7

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/config"
)

func keyOf(key, owner, tenant, plan string) config.Key {
	return config.Key{SHA256: sha256.Sum256([]byte(key)), Owner: owner, Tenant: tenant, Plan: plan}
}

// A key is the same wherever a request has it and however it is spelled; one in
// two places, or spelled so that nobody can read it, is none (RC-017).
func TestKeyPlaces(t *testing.T) {
	t.Parallel()
	h := config.HTTP{KeyHeader: "X-Api-Key", KeyBearer: true, KeyQuery: "api_key", KeyFile: "keys.yaml"}
	h.Keys = keyringOf(keyOf("s3 cret", "acme", "", ""), keyOf("b64+/=", "zenith", "", ""))
	_, key := tokenKey(t, "", "ES256")
	h.Users = usersOf(key)
	long := strings.Repeat("k", longestKey+1)
	for i, c := range []struct {
		name    string
		target  string
		headers []string
		found   bool
	}{
		{"header", "/", []string{"X-Api-Key: s3 cret"}, true},
		{"bearer", "/", []string{"Authorization: Bearer s3 cret"}, true},
		{"bearer in lower case", "/", []string{"Authorization: bearer b64+/="}, true},
		{"query", "/?a=b&api_key=s3+cret", nil, true},
		{"query, escaped", "/?api_key=%73%33%20cret&c", nil, true},
		{"query, base64", "/?api_key=b64%2b/%3D", nil, true},
		{"an empty header beside a query", "/?api_key=s3+cret", []string{"X-Api-Key: "}, true},
		{"a token beside a header", "/", []string{"X-Api-Key: s3 cret", "Authorization: Bearer eyJ.e30.x"}, true},
		{"header and bearer", "/", []string{"X-Api-Key: s3 cret", "Authorization: Bearer s3 cret"}, false},
		{"header and query", "/?api_key=s3+cret", []string{"X-Api-Key: b64+/="}, false},
		{"query twice", "/?api_key=s3+cret&api_key=s3+cret", nil, false},
		{"another parameter", "/?API_KEY=s3+cret", nil, false},
		{"another spelling of the parameter", "/?api%5Fkey=s3+cret", nil, false},
		{"half an escape", "/?api_key=s3+cret%2", nil, false},
		{"no escape", "/?api_key=s3+cret%zz", nil, false},
		{"endless query", "/?api_key=" + long, nil, false},
		{"endless bearer", "/", []string{"Authorization: Bearer " + long}, false},
		{"bearer twice", "/", []string{"Authorization: Bearer s3 cret", "Authorization: Bearer s3 cret"}, false},
		{"another scheme", "/", []string{"Authorization: Basic s3 cret"}, false},
		{"unknown", "/?api_key=made-up", nil, false},
		{"none", "/?api_key=&api_key", nil, false},
	} {
		rule := ruleOf(t, fmt.Sprint("keys-", i), "key", "5/1m")
		rule.Anonymous = &config.Anonymous{Per: []config.Per{config.PerClient}, Rate: config.Rate{Amount: 2, Interval: 60e9, Unit: config.Count}, Burst: 2}
		r := newRig(t, Policy{HTTP: h, Rules: []config.Rule{rule}})
		client, passed := r.client("127.0.0.2"), 0
		for range 7 {
			if client.do("GET", c.target, c.headers...).status == 200 {
				passed++
			}
		}
		most := 2
		if c.found {
			most = 5
		}
		want(t, c.name, passed, most)
	}
}

// A key and its tenant bind both, and a tenant's keys share what it has. A key
// of nobody's, or none, counts for the client.
func TestTenants(t *testing.T) {
	t.Parallel()
	h := config.HTTP{KeyHeader: "X-Api-Key", KeyFile: "keys.yaml", Keys: keyringOf(
		keyOf("a", "ann", "acme", ""), keyOf("b", "bob", "acme", ""), keyOf("c", "cyd", "zenith", ""), keyOf("d", "dan", "", ""),
	)}
	r := newRig(t, Policy{HTTP: h, Rules: []config.Rule{ruleOf(t, "keys", "key", "4/1m"), ruleOf(t, "tenants", "tenant", "6/1m")}})
	c := r.client("127.0.0.2")
	want(t, "a is bound by its key", c.passed(9, "X-Api-Key: a"), 4)
	refused := c.get("X-Api-Key: a")
	want(t, "named", strings.Contains(refused.body, `"violated-policies":["keys"]`), true)
	want(t, "b by its tenant", r.client("127.0.0.3").passed(9, "X-Api-Key: b"), 2)
	refused = c.get("X-Api-Key: b")
	want(t, "named", strings.Contains(refused.body, `"violated-policies":["tenants"]`), true)
	want(t, "b's refusals took nothing of its key", strings.Contains(refused.header.Get("RateLimit"), `"keys";r=2`), true)
	want(t, "c has another tenant", c.passed(9, "X-Api-Key: c"), 4)
	want(t, "d has none", c.passed(9, "X-Api-Key: d"), 4)
	want(t, "nor has who has no key", c.passed(9), 2)
	want(t, "elsewhere", r.client("127.0.0.4").passed(9), 4)
}

func keyringOf(keys ...config.Key) *config.Keyring { return config.NewKeyring(keys) }

// A policy that brings no keys goes on with those in force, which change by
// themselves.
func TestSameKeys(t *testing.T) {
	t.Parallel()
	h := config.HTTP{KeyHeader: "X-Api-Key", KeyFile: "keys.yaml", Keys: keyringOf(keyOf("a", "ann", "", ""))}
	p := Policy{HTTP: h, Rules: []config.Rule{keyed(t, "4/1m", "2/1m")}}
	r := newRig(t, p)
	c := r.client("127.0.0.2")
	want(t, "a", c.passed(3, "X-Api-Key: a"), 3)
	p.HTTP.Keys, p.SameKeys = nil, true
	r.set(p)
	want(t, "a goes on", c.passed(3, "X-Api-Key: a"), 1)
	if err := r.gate.SetKeys(keyringOf(keyOf("a", "ann", "", ""), keyOf("b", "ben", "", ""))); err != nil {
		t.Fatal(err)
	}
	want(t, "a, after a change", c.passed(3, "X-Api-Key: a"), 0)
	want(t, "b, after a change", c.passed(6, "X-Api-Key: b"), 4)
	p.SameKeys = false
	r.set(p)
	want(t, "without a", c.passed(3, "X-Api-Key: a"), 2)
	fresh := New(r.gate.log)
	if err := fresh.SetPolicy(Policy{SameKeys: true}); err == nil || !strings.Contains(err.Error(), "no keys to go on with") {
		t.Errorf("the same keys as none: %v", err)
	}
	if err := fresh.SetKeys(nil); err == nil || !strings.Contains(err.Error(), "no policy yet") {
		t.Errorf("keys before a policy: %v", err)
	}
}

func FuzzQueryKey(f *testing.F) {
	for _, s := range []string{"", "api_key=a", "api_key=%61", "&&=&api_key", "api_key=%", "api_key=a&api_key=b", "api_key=+ +"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		key, ok := queryKey(make([]byte, 0, longestKey), query, "api_key")
		if ok && len(key) > longestKey || !ok && key != nil {
			t.Errorf("%q gives %q, %v", query, key, ok)
		}
	})
}
