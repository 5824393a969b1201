package l7

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/config"
)

// RC-039 (a): nearly all requests come from few addresses that are not declared
// proxies, and name other clients: clients are probably hidden. It is logged
// once, whatever comes.
func TestHiddenClients(t *testing.T) {
	t.Parallel()
	p := Policy{Rules: []config.Rule{written(t, "{name: all, match: {path: /**}, per: client, rate: 1000000/s}")}}
	named := func(i int) string { return fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i) }
	for _, tc := range []struct {
		what           string
		peers          int
		named, unnamed int // requests of each
		likely         bool
	}{
		{"a proxy that is not declared", 1, 120, 5, true},
		{"three of them", 3, 40, 0, true},
		{"clients with headers of their own", 7, 20, 0, false},
		{"a client among others", 1, 120, 120, false},
		{"clients without", 1, 0, 120, false},
		{"too few to tell", 1, 50, 0, false},
	} {
		r := newRig(t, p)
		for peer := range tc.peers {
			c := r.client(fmt.Sprintf("127.0.0.%d", 2+peer))
			for i := range tc.named {
				c.get(named(i))
			}
			other := r.client("127.0.1.1")
			for range tc.unnamed {
				other.get()
			}
		}
		if h := r.gate.Hidden(); h.Likely() != tc.likely || h.Requests != uint64(tc.peers*tc.named) {
			t.Errorf("%s: %+v", tc.what, h)
		}
		if n := strings.Count(r.logs.String(), "undeclared peer"); n > 1 {
			t.Errorf("%s: %d lines in the log", tc.what, n)
		}
	}
}

// Once the proxy is declared its clients are seen, and it counts anew.
func TestHiddenUntilDeclared(t *testing.T) {
	t.Parallel()
	p := Policy{Rules: []config.Rule{written(t, "{name: all, match: {path: /**}, per: client, rate: 1000000/s}")}}
	r := newRig(t, p)
	c := r.client("127.0.0.2")
	want(t, "through it", c.passed(120, "X-Forwarded-For: 203.0.113.1"), 120)
	want(t, "likely", r.gate.Hidden().Likely(), true)
	p.HTTP.Proxies = prefixes("127.0.0.2")
	r.set(p)
	want(t, "likely, once declared", r.gate.Hidden(), Hidden{})
	want(t, "through it", c.passed(120, "X-Forwarded-For: 203.0.113.1"), 120)
	want(t, "likely, once declared", r.gate.Hidden(), Hidden{Of: 120})
}
