package l7

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// A fault of the gate costs the request that meets it and no other, is counted
// and logged.
func TestFaultCostsOneRequest(t *testing.T) {
	var faulty atomic.Bool
	r := newTunedRig(t, Policy{Rules: []config.Rule{ruleOf(t, "a", "client", "100/1m")}}, "127.0.0.1:0", nil, func(g *Gate) {
		still := g.Clock
		g.Clock = func() time.Duration {
			if faulty.CompareAndSwap(true, false) {
				panic("a fault that the test makes")
			}
			return still()
		}
	})
	c := r.client("127.0.0.1")
	for i, want := range []int{200, 500, 200} {
		faulty.Store(want == http.StatusInternalServerError)
		if got := c.get().status; got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	if n := r.gate.Panics(); n != 1 {
		t.Errorf("%d faults are counted, want 1", n)
	}
	if log := r.logs.String(); !strings.Contains(log, "a fault that the test makes") {
		t.Errorf("the log does not tell: %s", log)
	}
}
