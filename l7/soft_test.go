package l7

import (
	"testing"

	"github.com/headgate/headgate/config"
)

// Above the line a request passes up to the soft part, counted and marked for
// the upstream, by whom the mark cannot be had from elsewhere.
func TestSoftIsMarked(t *testing.T) {
	soft, watched := ruleOf(t, "soft", "client", "limit 10/1h"), watching(ruleOf(t, "watched", "client", "limit 10/1h"))
	soft.Soft, watched.Soft = 20, 50
	p := Policy{HTTP: behind("127.0.0.2"), Rules: []config.Rule{soft, watched}}
	r := newRig(t, p)
	c := r.client("127.0.0.2")
	forged := []string{"Headgate-Over: made-up", "Headgate_Over: made-up"}
	for i := range 12 {
		got := c.get(forged...)
		want(t, "status", got.status, 200)
		marked := ""
		if i >= 10 {
			marked = "soft"
			want(t, "limits", unnamed(got.header), `"soft";r=0;t=3600`)
		}
		want(t, "mark", r.last().Header.Get("Headgate-Over"), marked)
		if _, there := r.last().Header["Headgate_over"]; there {
			t.Error("the forged mark went on")
		}
	}
	got := c.get()
	want(t, "status", got.status, 429)
	want(t, "Retry-After", got.header.Get("Retry-After"), "3600")
	want(t, "soft", r.gate.Counters()["soft"], Counters{Passed: 12, Refused: 1, Over: 2})
	want(t, "watched", r.gate.Counters()["watched"].Over, 2)
}
