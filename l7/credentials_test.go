package l7

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	h.Keys = []config.Key{keyOf("s3 cret", "acme", "", ""), keyOf("b64+/=", "zenith", "", "")}
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
	h := config.HTTP{KeyHeader: "X-Api-Key", KeyFile: "keys.yaml", Keys: []config.Key{
		keyOf("a", "ann", "acme", ""), keyOf("b", "bob", "acme", ""), keyOf("c", "cyd", "zenith", ""), keyOf("d", "dan", "", ""),
	}}
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

// Many keys are found by half of their hash, and names are kept once.
func TestKeyring(t *testing.T) {
	t.Parallel()
	keys := make([]config.Key, 100_000)
	for i := range keys {
		keys[i] = keyOf(fmt.Sprint("key-", i), fmt.Sprint("owner-", i%1000), "acme", "paid")
	}
	packed := PackKeys(keys)
	ring, err := unpackKeys(packed)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "holders", len(ring.holders), 1000)
	want(t, "bytes a key, packed", len(packed)/len(keys) < 20, true)
	for n := range 2000 {
		if _, err := unpackKeys(packed[:len(packed)*n/2000]); err == nil {
			t.Fatalf("half of the keys at %d read as all", n)
		}
	}
	for i := range keys {
		if h, ok := ring.find(keys[i].SHA256); !ok || h != (holder{fmt.Sprint("owner-", i%1000), "acme", "paid"}) {
			t.Fatalf("key %d: %v, %v", i, h, ok)
		}
	}
	_, ok := ring.find(sha256.Sum256([]byte("none")))
	want(t, "found", ok, false)
	if diff := cmp.Diff(newKeyring(keys[:9]), must(unpackKeys(PackKeys(keys[:9]))), cmp.AllowUnexported(keyring{}, holder{})); diff != "" {
		t.Errorf("in place (-) and packed (+):\n%s", diff)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A policy that brings no keys goes on with those in force.
func TestSameKeys(t *testing.T) {
	t.Parallel()
	h := config.HTTP{KeyHeader: "X-Api-Key", KeyFile: "keys.yaml"}
	p := Policy{HTTP: h, PackedKeys: PackKeys([]config.Key{keyOf("a", "ann", "", "")}), Rules: []config.Rule{keyed(t, "4/1m", "2/1m")}}
	r := newRig(t, p)
	c := r.client("127.0.0.2")
	want(t, "a", c.passed(3, "X-Api-Key: a"), 3)
	p.PackedKeys, p.SameKeys = nil, true
	r.set(p)
	want(t, "a goes on", c.passed(3, "X-Api-Key: a"), 1)
	p.SameKeys, p.PackedKeys = false, PackKeys(nil)
	r.set(p)
	want(t, "without a", c.passed(3, "X-Api-Key: a"), 2)
	if err := New(r.gate.log).SetPolicy(Policy{SameKeys: true}); err == nil || !strings.Contains(err.Error(), "no keys to go on with") {
		t.Errorf("the same keys as none: %v", err)
	}
}

func BenchmarkMillionKeys(b *testing.B) {
	keys := make([]config.Key, 1_000_000)
	for i := range keys {
		keys[i] = keyOf(fmt.Sprint("key-", i), fmt.Sprint("owner-", i), fmt.Sprint("tenant-", i%1000), "paid")
	}
	var packed []byte
	b.Run("pack", func(b *testing.B) {
		for b.Loop() {
			packed = PackKeys(keys)
		}
	})
	b.Run("unpack", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must(unpackKeys(packed))
		}
	})
	b.Logf("%d bytes packed", len(packed))
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
