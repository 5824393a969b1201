package l7

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

func topOf(t *testing.T, r *rig, rule, client, key string) Heavy {
	t.Helper()
	for _, h := range r.gate.Top(TopQuery{Window: time.Minute, Most: 100}).Heavy {
		if h.Rule == rule && (client == "" || h.Client == netip.MustParseAddr(client)) && h.Key == key {
			return h
		}
	}
	t.Fatalf("rule %s, client %s, key %s is not among %+v", rule, client, key, r.gate.Top(TopQuery{Window: time.Minute, Most: 100}).Heavy)
	return Heavy{}
}

// Who does most is named by what the rule counts: a client by its address, a key
// by how its hash begins, and never by itself.
func TestTop(t *testing.T) {
	p := Policy{Rules: []config.Rule{ruleOf(t, "clients", "client", "3/1m"), ruleOf(t, "keys", "key", "100/1m"), ruleOf(t, "watched", "client", "1/1m")}}
	p.HTTP.KeyHeader = "X-Api-Key"
	p.Rules[2].Mode = config.Watch
	r := newRig(t, p)
	for range 5 {
		r.client("127.0.0.2").get("X-Api-Key: very-secret")
	}
	r.client("127.0.0.3").get()
	sum := sha256.Sum256([]byte("very-secret"))
	h := topOf(t, r, "clients", "127.0.0.2", "")
	want(t, "passed, refused", fmt.Sprint(h.Passed, h.Refused), "3 2")
	if h.FullIn <= 0 || h.FullIn > time.Minute {
		t.Errorf("its bucket is full in %v, want up to a minute", h.FullIn)
	}
	h = topOf(t, r, "keys", "127.0.0.2", hex.EncodeToString(sum[:6]))
	want(t, "of the key", fmt.Sprint(h.Passed, h.Refused), "3 0")
	h = topOf(t, r, "watched", "127.0.0.2", "")
	want(t, "watched", fmt.Sprint(h.Passed, h.Watched), "1 4")

	top := r.gate.Top(TopQuery{Window: time.Minute, Most: 1, Clients: true})
	want(t, "at most", len(top.Heavy), 1)
	want(t, "the most refused", top.Heavy[0].Rule, "clients")
	want(t, "clients", fmt.Sprint(top.Clients), "[127.0.0.2 127.0.0.3]")
	refusals := 0
	for _, x := range top.Refusals {
		if !x.Watched {
			refusals++
			want(t, "refusal", fmt.Sprintln(x.Rule, x.Client, x.Method, x.Path, x.Stands), "clients 127.0.0.2 GET / 1\n")
		}
	}
	want(t, "refusals told", refusals, 2)
	last := top.Refusals[len(top.Refusals)-1].Number
	want(t, "nothing new", len(r.gate.Top(TopQuery{Since: last}).Refusals), 0)

	r.pass(2 * time.Minute)
	want(t, "after two minutes", len(r.gate.Top(TopQuery{Window: time.Minute, Most: 9}).Heavy), 0)
}

// A blocked client is among them under no rule.
func TestTopNamesTheBlocked(t *testing.T) {
	r := newRig(t, Policy{Block: []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32")}})
	want(t, "status", r.client("127.0.0.9").get().status, 403)
	want(t, "refused", topOf(t, r, "", "127.0.0.9", "").Refused, uint64(1))
}

// At a flood of decisions about a thousand a second are looked at, and they
// stand for all; when it has ended, all are again.
func TestGapWidens(t *testing.T) {
	var g gap
	const perSecond, seconds = 100_000, 3
	sampled, stood := 0, 0
	now := limit.FromDuration(time.Hour)
	for range perSecond * seconds {
		if n, ok := g.draws(now); ok {
			g.took(now)
			sampled++
			stood += int(n)
		}
		now += limit.FromDuration(time.Second / perSecond)
	}
	if sampled > 2000*seconds || stood < perSecond*seconds*7/10 || stood > perSecond*seconds*13/10 {
		t.Errorf("%d samples stand for %d of %d", sampled, stood, perSecond*seconds)
	}
	now += limit.FromDuration(2 * time.Second)
	for range 20 {
		if n, ok := g.draws(now); !ok || n != 1 {
			t.Fatalf("after the flood a decision stands for %d, %v", n, ok)
		}
		g.took(now)
		now += limit.FromDuration(10 * time.Millisecond)
	}
}

// What looking at a decision costs it.
func BenchmarkSaw(b *testing.B) {
	g := New(slog.New(slog.DiscardHandler))
	p := benchPolicy(b, 8)
	r := benchRequest(b)
	var a asker
	p.identify(r, &a)
	d := newDecision(p)
	defer d.release()
	began := time.Now()
	v := d.judge(p, r, &a, 0)
	b.ReportAllocs()
	for b.Loop() {
		g.saw(r, d, &a, limit.FromDuration(time.Since(began)), v)
	}
}
