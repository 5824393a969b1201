package l7

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/config"
)

// RC-022 and its like: a policy with errors changes nothing and names them all.
func TestSetPolicyWholeOrNothing(t *testing.T) {
	good := Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "5/1m")}}
	r := newRig(t, good)
	c := r.client("127.0.0.2")
	c.passed(3)

	bytes := ruleOf(t, "bytes", "client", "5/1m")
	bytes.Rate.Unit = config.Bytes
	unknown := ruleOf(t, "unknown", "client", "5/1m")
	unknown.Algorithm = "leaky-bucket"
	lost := ruleOf(t, "lost", "client", "5/1m")
	lost.Anonymous = &config.Anonymous{Per: []config.Per{config.PerKey}, Rate: lost.Rate, Burst: 1}
	bad := Policy{
		HTTP: config.HTTP{ClientBits: 40, Exempt: []config.Exempt{{Path: "healthz"}}},
		Rules: []config.Rule{
			ruleOf(t, "zero", "client", "1/1s burst 0"), ruleOf(t, "fast", "client", "1000000001/1s"),
			ruleOf(t, "twice", "client", "5/1m"), ruleOf(t, "twice", "client", "5/1m"),
			ruleOf(t, "keys", "key", "5/1m"), ruleOf(t, "source", "source", "5/1m"), bytes, unknown, lost,
			at(ruleOf(t, "path", "client", "5/1m"), "/a/**/b"), ruleOf(t, "log", "client", "limit 0/1m"),
		},
	}
	err := r.gate.SetPolicy(bad)
	if err == nil {
		t.Fatal("taken")
	}
	for _, part := range []string{
		"rule zero: burst 0: the smallest is 1", "rule fast: rate 1000000001", "rule twice: the name is used twice",
		"rule keys: per key needs a header", "rule source: per source", "rule bytes: the HTTP gate counts requests",
		`rule unknown: algorithm "leaky-bucket"`, "rule lost: anonymous:", `rule path: path "/a/**/b"`,
		"rule log: limit 0", "/40", "exempt: path",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("no word of %q in:\n%v", part, err)
		}
	}
	want(t, "still in force", c.passed(9), 2)
	if diff := cmp.Diff(map[string]Counters{"all": {Passed: 5, Refused: 7}}, r.gate.Counters()); diff != "" {
		t.Error(diff)
	}
}

// The policy crosses a socket as JSON.
func TestPolicySurvivesJSON(t *testing.T) {
	rule := keyed(t, "5/1m", "2/1m")
	rule.Match = config.Match{Methods: []string{"GET"}, Paths: []string{"/a/**"}, Hosts: []string{"*.example"}}
	p := Policy{
		HTTP: config.HTTP{
			Proxies: prefixes("10.0.0.0/8", "2001:db8::/32"), KeyHeader: "X-Api-Key", KeyFile: "k",
			Exempt: []config.Exempt{{Path: "/healthz", From: prefixes("127.0.0.1")}}, ClientBits: 56,
		},
		Rules: []config.Rule{rule}, Allow: prefixes("192.0.2.1"), Block: prefixes("198.51.100.0/24"),
	}
	var back Policy
	if err := json.Unmarshal(mustJSON(t, p), &back); err != nil {
		t.Fatal(err)
	}
	same := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(p, back, same, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	var network Policy
	if err := json.Unmarshal([]byte(`{"Rules":[{"Name":"n","Gate":"network","Per":["source"]}]}`), &network); err != nil {
		t.Fatal(err)
	}
	if c := testPolicy(t, network); len(c.rules) != 0 {
		t.Error("a rule of the network gate is held in the HTTP gate")
	}
}

func TestServeNeedsPolicy(t *testing.T) {
	g := New(slog.New(slog.NewTextHandler(io.Discard, nil)))
	serve := func(l config.Listener) error {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		err = g.Serve(ln, l)
		if _, dial := net.Dial("tcp", ln.Addr().String()); dial == nil {
			t.Error("the listener was left open")
		}
		return err
	}
	l := config.Listener{Door: "proxy", Upstream: "http://127.0.0.1:1"}
	if err := serve(l); err == nil || !strings.Contains(err.Error(), "no policy") {
		t.Errorf("served without a policy: %v", err)
	}
	if err := g.SetPolicy(Policy{}); err != nil {
		t.Fatal(err)
	}
	if err := serve(config.Listener{Door: "window", Upstream: l.Upstream}); err == nil || !strings.Contains(err.Error(), `door "window"`) {
		t.Errorf("unknown door: %v", err)
	}
	if err := serve(config.Listener{Door: "proxy", Upstream: "x"}); err == nil || !strings.Contains(err.Error(), "upstream") {
		t.Errorf("bad upstream: %v", err)
	}
	if err := g.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := serve(l); err == nil || !strings.Contains(err.Error(), "shut down") {
		t.Errorf("served after shutdown: %v", err)
	}
}

// Requests in flight are answered after their listener was closed, also when
// the gate is shut down then; those that take too long are cut.
func TestShutdownDrains(t *testing.T) {
	for _, patient := range []bool{true, false} {
		arrived, release := make(chan struct{}), make(chan struct{})
		upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(arrived)
			<-release
			io.WriteString(w, "late")
		})
		up := &http.Server{Handler: upstream}
		upLn, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go up.Serve(upLn)
		g := New(slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err := g.SetPolicy(Policy{}); err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() {
			served <- g.Serve(ln, config.Listener{Door: "proxy", Upstream: "http://" + upLn.Addr().String()})
		}()
		bodies := make(chan string, 1)
		go func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			resp, err := client.Get("http://" + ln.Addr().String())
			if err != nil {
				bodies <- "cut"
				return
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			bodies <- string(b)
		}()
		<-arrived
		ln.Close()
		ctx, cancel := context.WithCancel(context.Background())
		down := make(chan error, 1)
		go func() { down <- g.Shutdown(ctx) }()
		body := "late"
		if patient {
			close(release)
			defer cancel()
		} else {
			body = "cut"
			cancel()
		}
		want(t, "body", <-bodies, body)
		if err := <-down; patient != (err == nil) || !patient && !errors.Is(err, context.Canceled) {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if !patient {
			close(release)
		}
		up.Close()
	}
}

// Buckets of idle clients are dropped by the sweep of every minute, which ends with the
// gate.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err := g.SetPolicy(Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "5/3m")}}); err != nil {
			t.Fatal(err)
		}
		go g.sweep()
		for range 5 {
			decideOnce(g.policy.Load(), benchRequest(t), g.now())
		}
		for i, keys := range []uint64{1, 0} {
			time.Sleep(sweepEvery + time.Minute)
			want(t, fmt.Sprint("keys after sweep ", i+1), g.Buckets().Keys, keys)
		}
		g.Shutdown(t.Context()) // synctest fails where the sweep goes on
	})
}
