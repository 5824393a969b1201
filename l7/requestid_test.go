package l7

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

var testSecret = bytes.Repeat([]byte{7}, SecretSize)

// The id of a refusal says which rule refused whom, where and when, to who has
// the secret, and it is the same in header and body.
func TestRequestID(t *testing.T) {
	date := time.Unix(1_800_000_000, 999)
	p := Policy{Host: "edge-7", Secret: testSecret, Rules: []config.Rule{ruleOf(t, "login.v2", "client", "1/1m"), ruleOf(t, "all", "total", "limit 2/1h")}}
	p.Block = prefixes("127.0.0.9")
	r := newDatedRig(t, p, date)
	one, two := r.client("127.0.0.2"), r.client("127.0.0.3")
	one.get()
	open := func(got reply) RequestID {
		t.Helper()
		text := got.header.Get("Request-Id")
		if !strings.Contains(got.body, `"request-id":"`+text+`"`) {
			t.Errorf("body %s, id %s", got.body, text)
		}
		id, err := OpenRequestID(testSecret, text)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "host", id.Host, "edge-7")
		want(t, "time", id.Time.Unix(), r.gate.Wall().Unix())
		id.Time = time.Time{}
		return id
	}
	first, again := open(one.get()), open(one.get())
	want(t, "rule", first.Rule, "login.v2")
	want(t, "the same client", again, first)
	two.get()
	other := open(two.get())
	want(t, "rule that binds", other.Rule, "all")
	if other.KeyHash == first.KeyHash {
		t.Error("two bucket keys have one hash")
	}
	r.pass(2 * time.Minute)
	r.set(p) // the same secret: a change of policy changes nothing
	again = open(one.get())
	want(t, "after a change", again.Rule, "all")
	want(t, "a total's key is one for all", again.KeyHash, other.KeyHash)
	want(t, "blocked", open(r.client("127.0.0.9").get()).Rule, "")
}

// No two ids are the same, nor do they show what they hold or open with another
// secret or a bit changed.
func TestRequestIDsAreSealed(t *testing.T) {
	s, err := newSeal(testSecret, strings.Repeat("h", 200))
	if err != nil {
		t.Fatal(err)
	}
	rule := strings.Repeat("r", 63)
	seen := map[string]bool{}
	for range 1000 {
		id := s.id(rule, time.Unix(1e9, 0), [8]byte{1})
		raw, err := base64.RawURLEncoding.DecodeString(id)
		if err != nil || seen[id] || len(id) > 256 || bytes.Contains(raw, []byte("rrrrrr")) || bytes.Contains(raw, []byte("hhhhhh")) {
			t.Fatalf("id %s, seen %v, %v", id, seen[id], err)
		}
		seen[id] = true
	}
	id := s.id(rule, time.Unix(1e9, 0), [8]byte{1})
	got, err := OpenRequestID(testSecret, id)
	if err != nil || got != (RequestID{strings.Repeat("h", 64), rule, time.Unix(1e9, 0).UTC(), [8]byte{1}}) {
		t.Errorf("%+v, %v", got, err)
	}
	raw, _ := base64.RawURLEncoding.DecodeString(id)
	for i := range raw {
		bad := bytes.Clone(raw)
		bad[i] ^= 1
		if _, err := OpenRequestID(testSecret, base64.RawURLEncoding.EncodeToString(bad)); err == nil {
			t.Errorf("byte %d may be changed", i)
		}
	}
	for text, part := range map[string]string{
		"": "this is none", "AQ": "this is none", "????": "this is none", strings.Repeat("A", 1000): "too long", "Ag" + id[2:]: "version 2",
	} {
		if _, err := OpenRequestID(testSecret, text); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if _, err := OpenRequestID(bytes.Repeat([]byte{8}, SecretSize), id); err == nil || !strings.Contains(err.Error(), "another secret") {
		t.Errorf("another secret: %v", err)
	}
	if _, err := OpenRequestID(testSecret[:31], id); err == nil || !strings.Contains(err.Error(), "give 32 or more") {
		t.Errorf("short secret: %v", err)
	}
	if err := New(nil).SetPolicy(Policy{Secret: testSecret[:31]}); err == nil {
		t.Error("a policy with a short secret was taken")
	}
}
