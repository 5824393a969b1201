package l7

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// eight rules of all algorithms, with overrides, one that watches and one that
// counts what is refused.
func eight(t testing.TB) []config.Rule {
	t.Helper()
	var rules []config.Rule
	for _, text := range []string{
		`{name: bucket, per: client, rate: 40/h, overrides: [{owner: acme, rate: 50/h}]}`,
		`{name: log, per: key, limit: 30/h, overrides: [{owner: acme, limit: 20/h}]}`,
		`{name: counter, per: client, limit: 60/h, algorithm: sliding-counter}`,
		`{name: window, gate: http, per: total, limit: 70/h, algorithm: fixed-window}`,
		`{name: quota, per: key, quota: 25/day, overrides: [{plan: paid, quota: 80/day}]}`,
		`{name: watcher, per: client, limit: 5/h, mode: watch}`,
		`{name: abuse, per: [client, key], rate: 90/h, count_refused: true}`,
		`{name: path, match: {path: "/**", method: GET}, per: total, rate: 100/h}`,
	} {
		rules = append(rules, written(t, text))
	}
	return rules
}

// All or nothing over eight rules of every kind: the one that is spent refuses,
// is named alone, and the others keep what they have. RC-059.
func TestEightRules(t *testing.T) {
	at := time.Date(2027, 3, 30, 9, 0, 0, 0, time.UTC)
	tune := func(g *Gate) { g.Wall = func() time.Time { return at.Add(g.Clock()) } }
	r := newTunedRig(t, Policy{HTTP: owned(), Rules: eight(t)}, "127.0.0.1:0", nil, tune)
	acme, bob := r.client("127.0.0.2"), r.client("127.0.0.3")
	// Bound by the override of the log, which is below the rule's own.
	want(t, "acme", acme.passed(30, "X-Api-Key: acme-1"), 20)
	got := acme.get("X-Api-Key: acme-1")
	want(t, "status", got.status, 429)
	if !strings.Contains(got.body, `"violated-policies":["log"]`) {
		t.Errorf("refused in the words %s, want log alone named", got.body)
	}
	if first := got.header.Get("RateLimit"); !strings.HasPrefix(first, `"log";r=0;`) || strings.Contains(first, "watcher") {
		t.Errorf("RateLimit %s, want log first and no rule that watches", first)
	}
	for name, n := range r.gate.Counters() {
		switch name {
		case "log":
			want(t, name, n, Counters{Passed: 20, Refused: 11})
		case "watcher":
			want(t, name, n, Counters{Passed: 5, Watched: 26})
		default:
			want(t, name, n, Counters{Passed: 20})
		}
	}
	// Bound by the quota without an override.
	want(t, "bob", bob.passed(40, "X-Api-Key: bob-1"), 25)
	if got := bob.get("X-Api-Key: bob-1"); !strings.Contains(got.body, `"violated-policies":["quota"]`) {
		t.Errorf("refused in the words %s, want quota alone named", got.body)
	}
	// 45 are charged to the window of all, which has 70.
	want(t, "what the window has left", r.client("127.0.0.4").passed(40), 25)
}

// The same requests in the same order get the same answers, also where several
// rules refuse at once.
func TestSameOrderSameAnswers(t *testing.T) {
	secret := regexp.MustCompile(`;pk=:[^:]*:`) // made with the seeds of one gate
	var first []string
	for round := range 3 {
		rules := []config.Rule{
			written(t, `{name: b, per: client, limit: 3/h}`), written(t, `{name: a, per: client, limit: 3/h}`),
			written(t, `{name: c, gate: http, per: total, rate: 3/h}`),
		}
		r := newRig(t, Policy{Rules: rules})
		var answers []string
		c := r.client("127.0.0.2")
		for range 6 {
			got := c.get()
			answers = append(answers, secret.ReplaceAllString(got.header.Get("RateLimit"), "")+got.header.Get("Retry-After"))
		}
		if round == 0 {
			first = answers
		}
		want(t, "answers", strings.Join(answers, "\n"), strings.Join(first, "\n"))
	}
}
