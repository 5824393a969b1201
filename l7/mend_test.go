package l7

import (
	"crypto/sha256"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/config"
)

func TestMend(t *testing.T) {
	r := newRig(t, Policy{HTTP: owned(), Rules: []config.Rule{
		written(t, `{name: client, match: {path: /client}, per: client, limit: 5/h}`),
		written(t, `{name: key, match: {path: /key}, per: key, limit: 5/h, anonymous: {limit: 2/h}, overrides: [{owner: acme, limit: 9/h}]}`),
		written(t, `{name: both, match: {path: /both}, per: [client, key], rate: 5/h}`),
		written(t, `{name: all, match: {path: /all}, per: total, limit: 5/h, algorithm: sliding-counter}`),
	}})
	a, b := r.client("127.0.0.2"), r.client("127.0.0.3")
	spend := func(c *client, path string, headers ...string) (passed int) {
		for range 12 {
			if c.do("GET", path, headers...).status == 200 {
				passed++
			}
		}
		return passed
	}
	acme := "X-Api-Key: acme-1"
	for _, path := range []string{"/client", "/key", "/both"} {
		spend(a, path)
		spend(b, path)
		spend(a, path, acme)
		spend(b, path, acme)
	}
	spend(a, "/all")
	here, key := netip.MustParseAddr("127.0.0.2"), partsOf("acme-1")
	for _, c := range []struct {
		mend  Mend
		done  Mended
		path  string
		key   bool
		again int // a passes then
	}{
		{Mend{Rule: "client", Client: here}, Mended{1, 1, 0, 5, 5, false}, "/client", false, 5},
		{Mend{Rule: "client", Client: here, Grant: 2}, Mended{1, 1, 0, 2, 5, false}, "/client", false, 2},
		{Mend{Rule: "client", Client: here, Grant: 100}, Mended{1, 1, 0, 5, 5, false}, "/client", false, 5},
		{Mend{Rule: "key", Client: here}, Mended{1, 1, 0, 2, 2, true}, "/key", false, 2},
		{Mend{Rule: "key", Keys: key}, Mended{1, 1, 0, 9, 9, false}, "/key", true, 9},
		{Mend{Rule: "key", Keys: key, Grant: 3}, Mended{1, 1, 0, 3, 9, false}, "/key", true, 3},
		{Mend{Rule: "both", Keys: key, Client: here}, Mended{1, 1, 0, 5, 5, false}, "/both", true, 5},
		{Mend{Rule: "all"}, Mended{1, 1, 0, 5, 5, false}, "/all", false, 5},
		{Mend{Rule: "client", Client: netip.MustParseAddr("::ffff:127.0.0.2")}, Mended{1, 1, 0, 5, 5, false}, "/client", false, 5},
	} {
		done, err := r.gate.Mend(c.mend)
		if err != nil || done != c.done {
			t.Errorf("%+v: %+v %v, want %+v", c.mend, done, err, c.done)
		}
		var headers []string
		if c.key {
			headers = []string{acme}
		}
		want(t, c.mend.Rule, spend(a, c.path, headers...), c.again)
	}
	for _, path := range []string{"/client", "/key"} {
		want(t, "another client at "+path, spend(b, path), 0)
	}
	for _, c := range []struct {
		mend Mend
		want string
	}{
		{Mend{Rule: "none"}, `no rule "none"`},
		{Mend{Rule: "client"}, "name the client's address too"},
		{Mend{Rule: "key"}, "name the key too"},
		{Mend{Rule: "both", Keys: key}, "name the client's address too"},
		{Mend{Rule: "key", Keys: partsOf("unknown")}, "not in the key file"},
	} {
		if _, err := r.gate.Mend(c.mend); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.mend, err, c.want)
		}
	}
}

// A claimed key's bucket is the client's and the key's together.
func TestMendClaimedKey(t *testing.T) {
	r := newRig(t, Policy{HTTP: config.HTTP{KeyHeader: "X-Api-Key"}, Rules: []config.Rule{written(t, `{name: key, per: key, limit: 5/h}`)}})
	c := r.client("127.0.0.2")
	want(t, "spent", c.passed(9, "X-Api-Key: mine"), 5)
	m := Mend{Rule: "key", Keys: partsOf("mine")}
	if _, err := r.gate.Mend(m); err == nil {
		t.Error("a claimed key alone names no bucket, yet one was reset")
	}
	m.Client = netip.MustParseAddr("127.0.0.2")
	if _, err := r.gate.Mend(m); err != nil {
		t.Error(err)
	}
	want(t, "reset", c.passed(9, "X-Api-Key: mine"), 5)
}

// partsOf is an API key as Mend names it.
func partsOf(key string) [][config.KeyPart]byte {
	sum := sha256.Sum256([]byte(key))
	return [][config.KeyPart]byte{[config.KeyPart]byte(sum[:])}
}
