package l7

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

func wording(kind, text string, rules ...config.Rule) Policy {
	return Policy{
		HTTP:  config.HTTP{Answers: config.Answers{Body: config.Body{File: "refused", Type: kind, Text: text}}},
		Rules: rules,
	}
}

// A body of the user's own takes the place of problem+json for all who do not
// ask for JSON alone; headers stay. It has nothing that names the client.
func TestOwnBody(t *testing.T) {
	text := "{{.Status}}|{{.Title}}|{{.Detail}}|{{.Rule}}|{{range .Rules}}{{.}},{{end}}|{{.RetryAfter}}|{{.RequestID}}"
	r := newRig(t, wording("text/plain; charset=utf-8", text, ruleOf(t, "a", "client", "1/1m"), ruleOf(t, "b", "client", "1/1h")))
	c := r.client("127.0.0.2")
	c.get()
	got := c.get("Accept: text/html, */*;q=0.1")
	want(t, "body", got.body, "429|Request cannot be satisfied as assigned quota has been exceeded|over b, a: try again in 3600 s|b|b,a,|3600|"+got.header.Get("Request-Id"))
	for name, value := range map[string]string{
		"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store", "Retry-After": "3600", "Content-Length": strconv.Itoa(len(got.body)),
	} {
		want(t, name, got.header.Get(name), value)
	}
	if strings.Contains(fmt.Sprint(got), "127.0.0.2") {
		t.Errorf("the client's address is told: %+v", got)
	}
	for accept, kind := range map[string]string{
		"application/json":             "application/problem+json",
		"application/problem+json":     "application/problem+json",
		"text/plain, application/json": "text/plain; charset=utf-8",
		"application/json, */*;q=0.5":  "text/plain; charset=utf-8",
		"text/html":                    "text/plain; charset=utf-8",
		"*/*":                          "text/plain; charset=utf-8",
	} {
		want(t, accept, c.get("Accept: "+accept).header.Get("Content-Type"), kind)
	}
	want(t, "HEAD", c.do("HEAD", "/").body, "")
	call := c.do("POST", "/", "Content-Type: application/grpc-web", "Content-Length: 0")
	want(t, "a call", call.header.Get("Content-Type"), "application/grpc-web")
	if err := r.gate.SetPolicy(wording("text/html", "{{")); err == nil || !strings.Contains(err.Error(), "body of refusals") {
		t.Errorf("a body that cannot be read: %v", err)
	}
	want(t, "as before", c.get().header.Get("Content-Type"), "text/plain; charset=utf-8")
}

// herd refuses n clients of one rule at once and has each come back when it was
// told, again and again until it is served. It returns when each was served,
// and how many came in each second.
func herd(t *testing.T, p Policy, n int) (served []int64, came map[int64]int) {
	t.Helper()
	p.HTTP.Proxies = prefixes("127.0.0.2")
	r := newRig(t, p)
	c := r.client("127.0.0.2")
	came = map[int64]int{}
	for c.get(xff("203.0.113.1")).status == 200 {
	}
	back := map[int64][]int{0: nil}
	for i := range n {
		back[0] = append(back[0], i)
	}
	for at := int64(0); len(served) < n; at++ {
		for _, i := range back[at] {
			came[at]++
			got := c.get(xff(fmt.Sprintf("198.51.%d.%d", i/250, i%250)))
			if got.status == 200 {
				served = append(served, at)
				continue
			}
			wait := number(t, got.header, "Retry-After")
			back[at+wait] = append(back[at+wait], i)
		}
		r.pass(time.Second)
		if at > 10_000 {
			t.Fatalf("%d of %d are served", len(served), n)
		}
	}
	return served, came
}

// RC-101: who obeys Retry-After is served in 1.5 times the ideal time, and the
// bucket is never idle meanwhile.
func TestHerdIsServed(t *testing.T) {
	served, _ := herd(t, Policy{Rules: []config.Rule{ruleOf(t, "shared", "total", "100/1s")}}, 500)
	if last := slices.Max(served); last > 7 {
		t.Errorf("the last of 500 is served after %d s", last)
	}
	for second := int64(1); second <= 5; second++ {
		n := 0
		for _, at := range served {
			if at == second {
				n++
			}
		}
		want(t, fmt.Sprintf("served in second %d", second), n, 100)
	}
}

// RC-101: with jitter those who were refused together come back spread out, in
// whole seconds as Retry-After has it, and none too early.
func TestJitterSpreads(t *testing.T) {
	p := Policy{Rules: []config.Rule{ruleOf(t, "shared", "total", "limit 1000/1m")}}
	p.HTTP.Answers.Jitter = 50
	_, came := herd(t, p, 1000)
	delete(came, 0) // when all were refused
	total := 0
	for at, n := range came {
		if at < 60 || at > 90 {
			t.Errorf("%d come after %d s, told to wait 60 to 90", n, at)
		}
		total += n
	}
	want(t, "came", total, 1000)
	for at, n := range came {
		if n > 2*1000/30 {
			t.Errorf("%d of 1000 come in second %d, the mean is 33", n, at)
		}
	}
	if len(came) < 25 {
		t.Errorf("they come in %d different seconds", len(came))
	}
}

// Asking again draws no other lot: the moment to come back never gets earlier,
// but by what rounding and the shorter wait take off.
func TestJitterIsNoLottery(t *testing.T) {
	p := Policy{HTTP: config.HTTP{Answers: config.Answers{Jitter: 100}}, Rules: []config.Rule{ruleOf(t, "a", "client", "limit 1/1000s")}}
	r := newRig(t, p)
	c := r.client("127.0.0.2")
	c.get()
	first := number(t, c.get().header, "Retry-After")
	for range 50 {
		want(t, "at the same moment", number(t, c.get().header, "Retry-After"), first)
	}
	for at := int64(1); at < 1000; at += 37 {
		r.clock.Store(at * int64(time.Second))
		wait := 1000 - at
		n := number(t, c.get().header, "Retry-After")
		share := float64(first-1000) / 1000
		if least := float64(wait) * (1 + share); n < wait || float64(n) < least-2 || float64(n) > least+2 {
			t.Fatalf("after %d s: told %d s, its lot was %.3f of %d", at, n, share, wait)
		}
	}
	r.clock.Store(int64(time.Second) * (1000 + first))
	want(t, "obeyed", c.get().status, 200)
}
