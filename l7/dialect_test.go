package l7

import (
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

func speaking(d config.Dialect, rules ...config.Rule) Policy {
	return Policy{HTTP: config.HTTP{Answers: config.Answers{Dialect: d}}, Rules: rules}
}

// newDatedRig has the time of day stand at date plus the rig's clock.
func newDatedRig(t testing.TB, p Policy, date time.Time) *rig {
	t.Helper()
	return newTunedRig(t, p, "127.0.0.1:0", nil, func(g *Gate) {
		g.Wall = func() time.Time { return date.Add(g.Clock()) }
	})
}

// limitFields are the names in h that tell limits, of any dialect.
func limitFields(h http.Header) (names []string) {
	for name := range h {
		if strings.Contains(name, "Ratelimit") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestDialects(t *testing.T) {
	half := time.Unix(1_700_000_000, 500_000_000)
	cases := []struct {
		answers       config.Answers
		first, refuse string
	}{
		{
			config.Answers{Dialect: config.IETF12},
			`Ratelimit="a";a=1;w=30;c=1, "b";a=8;w=54;c=1 Ratelimit-Partition="a";headgate-client, "b" Ratelimit-Policy="a";q=2;w=60, "b";q=9;w=60`,
			`Ratelimit="a";a=0;w=30;c=0, "b";a=7;w=47;c=0 Ratelimit-Partition="a";headgate-client, "b" Ratelimit-Policy="a";q=2;w=60, "b";q=9;w=60`,
		},
		{
			config.Answers{Dialect: config.XRateLimit},
			"X-Ratelimit-Limit=2 X-Ratelimit-Remaining=1 X-Ratelimit-Reset=30",
			"X-Ratelimit-Limit=2 X-Ratelimit-Remaining=0 X-Ratelimit-Reset=30 X-Ratelimit-Retry-After=30",
		},
		{
			config.Answers{Dialect: config.XRateLimit, Reset: config.ResetEpoch},
			"X-Ratelimit-Limit=2 X-Ratelimit-Remaining=1 X-Ratelimit-Reset=1700000031",
			"X-Ratelimit-Limit=2 X-Ratelimit-Remaining=0 X-Ratelimit-Reset=1700000031 X-Ratelimit-Retry-After=30",
		},
		{
			config.Answers{Dialect: config.GitHub},
			"X-Ratelimit-Limit=2 X-Ratelimit-Remaining=1 X-Ratelimit-Reset=1700000031 X-Ratelimit-Resource=a X-Ratelimit-Used=1",
			"X-Ratelimit-Limit=2 X-Ratelimit-Remaining=0 X-Ratelimit-Reset=1700000031 X-Ratelimit-Resource=a X-Ratelimit-Used=2",
		},
		{config.Answers{Dialect: config.NoDialect}, "", ""},
	}
	for _, k := range cases {
		t.Run(string(k.answers.Dialect)+string(k.answers.Reset), func(t *testing.T) {
			p := Policy{HTTP: config.HTTP{Answers: k.answers}, Rules: []config.Rule{
				ruleOf(t, "a", "client", "2/1m"), ruleOf(t, "b", "total", "9/1m"), watching(ruleOf(t, "w", "client", "1/1h")),
			}}
			c := newDatedRig(t, p, half).client("127.0.0.2")
			spelled := func(got reply) string {
				var parts []string
				for _, name := range limitFields(got.header) {
					parts = append(parts, name+"="+strings.Join(got.header[name], "|"))
				}
				return strings.Join(parts, " ")
			}
			want(t, "passed", spelled(c.get()), k.first)
			c.get()
			got := c.get()
			want(t, "status", got.status, 429)
			want(t, "Retry-After", got.header.Get("Retry-After"), "30")
			want(t, "refused", spelled(got), k.refuse)
		})
	}
}

// A partition key is the same for the same bucket, differs for another, and
// gives neither away; it survives a change of policy.
func TestPartitionKeys(t *testing.T) {
	p := Policy{Rules: []config.Rule{ruleOf(t, "a", "client", "9/1m"), ruleOf(t, "b", "client", "9/1m")}}
	r := newRig(t, p)
	one, two := r.client("127.0.0.2"), r.client("127.0.0.3")
	keys := func(c *client) string {
		items := parseLimits(t, c.get().header["Ratelimit"])
		if len(items) != 2 || len(items[0].pk) != 8 {
			t.Fatalf("items %+v", items)
		}
		return items[0].pk + items[1].pk
	}
	first := keys(one)
	r.set(p)
	want(t, "again", keys(one), first)
	if first[:8] == first[8:] || keys(two) == first {
		t.Error("two buckets have one partition key")
	}
}

func TestPartitionDimensions(t *testing.T) {
	rule := ruleOf(t, "a", "client,key", "9/1m")
	rule.Match.Methods = []string{"POST"}
	p := speaking(config.IETF12, rule, ruleOf(t, "b", "total", "9/1m"))
	p.HTTP.KeyHeader = "X-Api-Key"
	got := newRig(t, p).client("127.0.0.2").do("POST", "/", "X-Api-Key: k")
	want(t, "partition", got.header.Get("RateLimit-Partition"), `"a";headgate-client;client_id;method=POST, "b"`)
	if _, err := httpsfv.UnmarshalList(got.header["Ratelimit-Partition"]); err != nil {
		t.Error(err)
	}
}

// A listener has a dialect of its own, else that of all.
func TestDialectOfAListener(t *testing.T) {
	p := speaking(config.IETF, ruleOf(t, "a", "client", "9/1m"))
	own := newListenerRig(t, p, config.Listener{Door: "proxy", Dialect: config.GitHub}, nil)
	want(t, "own", fmt.Sprint(limitFields(own.client("127.0.0.2").get().header)),
		"[X-Ratelimit-Limit X-Ratelimit-Remaining X-Ratelimit-Reset X-Ratelimit-Resource X-Ratelimit-Used]")
	all := newRig(t, p)
	want(t, "of all", fmt.Sprint(limitFields(all.client("127.0.0.2").get().header)), "[Ratelimit Ratelimit-Policy]")
}

// Two values of one old-style field are read as either: the gate's replaces the
// upstream's. With `none` the upstream's stay.
func TestUpstreamsOwnLimits(t *testing.T) {
	upstream := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-RateLimit-Limit", "77") })
	for d, limit := range map[config.Dialect]string{config.XRateLimit: "9", config.GitHub: "9", config.NoDialect: "77", config.IETF: "77"} {
		r := newRigOn(t, speaking(d, ruleOf(t, "a", "client", "9/1m")), "127.0.0.1:0", upstream)
		want(t, string(d), strings.Join(r.client("127.0.0.2").get().header["X-Ratelimit-Limit"], "|"), limit)
	}
}

// What remains over the time it is for is never more than the rule's rate, and
// that time is no shorter than it takes to be told the truth.
func TestPaceNeverPromisesTooMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l limit.Limit
		var err error
		amount, interval := rapid.Int64Range(1, 1_000_000).Draw(t, "amount"), time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(24*time.Hour)).Draw(t, "interval"))
		if rapid.Bool().Draw(t, "bucket") {
			l, err = limit.NewRate(amount, interval, rapid.Int64Range(1, 1_000_000).Draw(t, "burst"))
		} else {
			l, err = limit.NewWindow(limit.SlidingCounter, amount, interval)
		}
		if err != nil {
			t.Skip(err)
		}
		left := rapid.Int64Range(0, l.Quota()).Draw(t, "left")
		reset := rapid.Uint64Range(0, limit.FromDuration(l.Window())).Draw(t, "reset")
		pace := paceOf(&limit.Charge{Limit: &l, Answer: limit.Answer{Remaining: left, Wait: 1, Reset: reset}})
		// left/pace <= quota/window, all in seconds
		promised := new(big.Rat).SetFrac64(left, pace)
		rate := new(big.Rat).SetFrac(big.NewInt(l.Quota()), big.NewInt(int64(l.Window())))
		rate.Mul(rate, big.NewRat(int64(time.Second), 1))
		if promised.Cmp(rate) > 0 || left > 0 && pace < seconds(limit.ToDuration(reset)) {
			t.Fatalf("%d left for %d s of %d in %v", left, pace, l.Quota(), l.Window())
		}
	})
}

// RC-082: whatever field a client reads, it waits the same.
func TestAllReadTheSameWait(t *testing.T) {
	now := time.Unix(1_700_000_000, 250_000_000)
	// As the draft's clients, Go's retryablehttp and urllib3, and Faraday's
	// middleware read it.
	retryAfter := func(h http.Header) int64 { return number(t, h, "Retry-After") }
	state := func(parameter string) func(http.Header) int64 {
		return func(h http.Header) int64 { return parseLimits(t, h["Ratelimit"])[0].n[parameter] }
	}
	delta := func(h http.Header) int64 { return number(t, h, "X-Ratelimit-Reset") }
	epoch := func(h http.Header) int64 { return number(t, h, "X-Ratelimit-Reset") - now.Unix() }
	cases := []struct {
		answers config.Answers
		readers []func(http.Header) int64
	}{
		{config.Answers{Dialect: config.IETF}, []func(http.Header) int64{retryAfter, state("t")}},
		{config.Answers{Dialect: config.IETF12}, []func(http.Header) int64{retryAfter, state("w")}},
		{config.Answers{Dialect: config.XRateLimit}, []func(http.Header) int64{retryAfter, delta}},
		{config.Answers{Dialect: config.XRateLimit, Reset: config.ResetEpoch}, []func(http.Header) int64{retryAfter, epoch}},
		{config.Answers{Dialect: config.GitHub}, []func(http.Header) int64{retryAfter, epoch}},
		{config.Answers{Dialect: config.NoDialect}, []func(http.Header) int64{retryAfter}},
	}
	for _, jitter := range []int{0, 100} {
		for _, k := range cases {
			k.answers.Jitter = jitter
			p := Policy{HTTP: config.HTTP{Answers: k.answers}, Rules: []config.Rule{ruleOf(t, "a", "client", "limit 1/6m"), ruleOf(t, "b", "client", "1/1s")}}
			c := newDatedRig(t, p, now).client("127.0.0.2")
			c.get()
			h := c.get().header
			first := retryAfter(h)
			if first < 360 || first > 360+int64(jitter)*360/100+1 {
				t.Errorf("%+v: Retry-After %d", k.answers, first)
			}
			for i, read := range k.readers {
				if n := read(h); n < first || n > first+1 {
					t.Errorf("%+v: reader %d waits %d s, others %d", k.answers, i, n, first)
				}
			}
		}
	}
}

func number(t testing.TB, h http.Header, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(h.Get(name), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// RC-082, with the clients themselves: one retry, which comes too early unless
// they wait as told.
func TestRealClientsWait(t *testing.T) {
	t.Parallel()
	commands := map[string][]string{
		"curl": {"curl", "-sS", "--fail", "--retry", "1"},
		"urllib3": {"/usr/bin/python3", "-c", // Debian's, which has Debian's urllib3
			"import sys, urllib3; r = urllib3.PoolManager().request('GET', sys.argv[1], retries=urllib3.Retry(1, status_forcelist=[429])); print(r.data.decode())"},
	}
	for name, args := range commands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "urllib3" && exec.Command(args[0], "-c", "import urllib3").Run() != nil {
				t.Skip("needs python3-urllib3 (deploy/packages test)")
			}
			begin := time.Now()
			r := newTunedRig(t, Policy{Rules: []config.Rule{ruleOf(t, "a", "client", "1/2s")}}, "127.0.0.1:0", nil, func(g *Gate) {
				g.Clock = func() time.Duration { return time.Since(begin) }
			})
			r.client("127.0.0.1").get()
			_, port, _ := net.SplitHostPort(r.addr)
			out, err := exec.Command(args[0], append(args[1:], "http://127.0.0.1:"+port+"/")...).CombinedOutput()
			if err != nil || !regexp.MustCompile(`(?m)^ok$`).Match(out) {
				t.Errorf("%v: %s", err, out)
			}
			want(t, "counters", r.gate.Counters()["a"].Passed, 2)
		})
	}
}
