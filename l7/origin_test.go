package l7

import (
	"testing"

	"github.com/headgate/headgate/config"
)

// What a connection is known for is found out once: a peer that becomes a
// declared proxy, or ceases to be one, must be taken for it at once all the same.
func TestConnectionFollowsPolicy(t *testing.T) {
	t.Parallel()
	rules := []config.Rule{ruleOf(t, "each", "client", "1/1h")}
	r := newRig(t, Policy{Rules: rules})
	c := r.client("127.0.0.2")
	for i, step := range []struct {
		proxies config.HTTP
		names   string
		passed  int
		chain   string // what the upstream was told last
	}{
		{behind(), "203.0.113.1", 1, "127.0.0.2"}, // the peer's own bucket
		{behind(), "203.0.113.1", 0, ""},
		{behind("127.0.0.2"), "203.0.113.1", 1, "203.0.113.1, 127.0.0.2"},
		{behind("127.0.0.2"), "203.0.113.1", 0, ""},
		{behind("127.0.0.2"), "203.0.113.2", 1, "203.0.113.2, 127.0.0.2"},
		{behind("127.0.0.3"), "203.0.113.3", 0, ""}, // the peer's own again, which is spent
	} {
		r.set(Policy{HTTP: step.proxies, Rules: rules})
		if got := c.passed(1, xff(step.names)); got != step.passed {
			t.Errorf("step %d: %d passed, want %d", i, got, step.passed)
		}
		if step.passed > 0 {
			want(t, "chain", r.last().Header.Get("X-Forwarded-For"), step.chain)
		}
	}
}

// A change of the prefix that makes a client holds for connections that are open.
func TestConnectionFollowsClientPrefix(t *testing.T) {
	t.Parallel()
	r := benchRequest(t)
	r.RemoteAddr = "[2001:db8:0:1::7]:4711"
	for _, bits := range []int{48, 64, 48} {
		p := testPolicy(t, Policy{HTTP: config.HTTP{ClientBits: bits}})
		for range 2 {
			var a asker
			p.identify(r, &a)
			want(t, "bucket", a.bucket, clientOf(peerOf(r.RemoteAddr), bits))
		}
	}
}
