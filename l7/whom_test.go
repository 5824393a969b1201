package l7

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// Two requests share a bucket of a rule if, and only if, what the rule counts by
// is the same for both: keys that are put together from parts tell that as well
// as the parts would.
func TestKeysTellWhomsApart(t *testing.T) {
	var rules []config.Rule
	for _, per := range []string{"client", "user", "key", "tenant", "total", "client,user", "key,tenant", "client,key,user"} {
		rules = append(rules, ruleOf(t, per, per, "10/1m"))
	}
	p := testPolicy(t, Policy{
		HTTP:  config.HTTP{KeyHeader: "X-Api-Key", KeyFile: "keys.yaml", Users: config.Users{Header: "X-User"}},
		Rules: rules,
	})
	type bucket struct{ rule, kind, parts string }
	keys, buckets := map[bucket]limit.Key{}, map[limit.Key]bucket{}
	rapid.Check(t, func(t *rapid.T) {
		d := newDecision(p)
		defer d.release()
		a := asker{client: prefixes(rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1"}).Draw(t, "client"))[0].Addr()}
		a.bucket = clientOf(a.client, p.clientBits)
		a.user = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "user")
		a.identity = rapid.SampledFrom([]identity{anonymous, claimed, verified}).Draw(t, "identity")
		a.tenant = rapid.SampledFrom([]string{"", "a"}).Draw(t, "tenant")
		if a.identity != anonymous {
			a.key[0] = rapid.Byte().Draw(t, "key")
		}
		d.begin(&a)
		for i := range p.rules {
			r := &p.rules[i]
			d.add(p, r, &a, 0)
			c, kind := d.charges[i], "own"
			if c.Limit == &r.spare {
				kind = "lost"
			}
			b := bucket{r.name, kind, string(a.appendParts(nil, d.per[i]))}
			if k, ok := keys[b]; ok && k != c.Key {
				t.Fatalf("%q has two keys", b)
			}
			if other, ok := buckets[c.Key]; ok && other != b {
				t.Fatalf("%q and %q share a key", b, other)
			}
			keys[b], buckets[c.Key] = c.Key, b
		}
	})
	if len(keys) < 50 {
		t.Errorf("only %d buckets were met", len(keys))
	}
}

// What a connection keeps of its peer's keys is what is made of any other client.
func TestOriginKeys(t *testing.T) {
	t.Parallel()
	p := testPolicy(t, Policy{HTTP: behind("10.0.0.2"), Rules: []config.Rule{ruleOf(t, "each", "client", "10/1m")}})
	key := func(peer, forwarded string) limit.Key {
		r := benchRequest(t)
		r.RemoteAddr = peer
		r.Header.Set("X-Forwarded-For", forwarded)
		var a asker
		p.identify(r, &a)
		d := newDecision(p)
		defer d.release()
		d.judge(p, r, &a, 0)
		return d.charges[0].Key
	}
	want(t, "key", key("192.0.2.7:1", "203.0.113.1"), key("10.0.0.2:1", "192.0.2.7"))
	if key("192.0.2.7:1", "") == key("10.0.0.2:1", "192.0.2.8") {
		t.Error("two clients have one key")
	}
}
