package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/load"
)

// smokeKeys are fewer than the connections of the loads, so that at least one is
// refused however slow the host is.
const smokeKeys, smokeConns = 4, 8

// proxies puts all products in place that this host has.
func proxies(t *testing.T) *proxyBench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the HTTP gate runs as another user")
	}
	b, err := newProxyBench(t.Context(), t.TempDir(), smokeKeys)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	for _, k := range proxyKinds {
		if err := k.here(); err != nil {
			t.Logf("%s is left out: %v", k.product, err)
			continue
		}
		if err := b.add(k); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// TestProxies drives all products for a moment: each relays, and one that refuses
// lets each key through once. Then it measures them, and every figure is there.
func TestProxies(t *testing.T) {
	b := proxies(t)
	for _, p := range b.proxies {
		d, err := b.drive(p, load.Load{Connections: smokeConns, For: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		passed, refused := d.Answers[200], d.Answers[429]
		switch {
		case !p.Refuse && refused > 0:
			t.Errorf("%s refused %d of %d", p.name(), refused, d.Sent)
		case p.Refuse && (passed == 0 || passed > 2*smokeKeys):
			t.Errorf("%s let %d of %d pass, want about one for each of %d keys", p.name(), passed, d.Sent, smokeKeys)
		}
	}
	results, err := b.measure(proxyPlan{
		rounds: 2, connections: smokeConns, round: 100 * time.Millisecond, shares: []float64{0.4},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := 6 * len(b.proxies); len(results) != want {
		t.Fatalf("%d results, want %d", len(results), want)
	}
	floors := 0
	for _, r := range results {
		// CPU time is counted in ticks: a moment may show none.
		if r.Value <= 0 && !strings.Contains(r.Name, "CPU") || r.Spread.Low > r.Value || r.Spread.High < r.Value {
			t.Errorf("%+v %+v", r, *r.Spread)
		}
		if r.Floor != "" {
			floors++
		}
	}
	if floors != 2 {
		t.Errorf("%d lines have a floor, want the rate and the p99 of headgate with rules", floors)
	}
}

// TestProxyResults checks who is compared to whom, within the rounds.
func TestProxyResults(t *testing.T) {
	under := func(k proxyKind, limits, refuse bool) *proxyUnder {
		return &proxyUnder{proxyKind: k, proxySetting: proxySetting{Limits: limits, Refuse: refuse}}
	}
	rate := func(status int, rates ...uint64) (list []driven) {
		for _, n := range rates {
			list = append(list, driven{Report: load.Report{Seconds: 2, Answers: map[int]uint64{status: 2 * n, 500: 7}}})
		}
		return list
	}
	own, other := proxyKinds[0], proxyKinds[1]
	r := proxyRounds{
		[]*proxyUnder{
			under(own, false, false), under(own, true, false), under(own, true, true),
			under(other, false, false), under(other, true, false), under(other, true, true),
		},
		[][]driven{
			rate(200, 100, 50, 200), rate(200, 90, 40, 190), rate(429, 300, 300, 300),
			rate(200, 300, 300, 300), rate(200, 270, 80, 380), rate(429, 600, 150, 300),
		},
	}
	got := r.results("rate", "req/s", perSecond, atLeast(0.95))
	want := []Result{
		{Name: "headgate, none", Value: 100},
		{Name: "headgate, 3 rules", Value: 90, Ratio: 0.9, To: "headgate, none", Floor: ">= 0.95"},
		{Name: "headgate, 3 rules, refused", Value: 300},
		{Name: "nginx, none", Value: 300, Ratio: 3, To: "headgate, none"},
		{Name: "nginx, 3 limit_req", Value: 270, Ratio: 2, To: "headgate, 3 rules"},
		{Name: "nginx, 3 limit_req, refused", Value: 300, Ratio: 1, To: "headgate, 3 rules, refused"},
	}
	const prefix = "http proxy, rate: "
	for i := range want {
		want[i].Name, want[i].Unit = prefix+want[i].Name, "req/s"
		if want[i].To != "" {
			want[i].To = prefix + want[i].To
		}
		if *got[i].Spread != *spread(r.values(i, perSecond)) {
			t.Errorf("%s spreads over %+v", got[i].Name, *got[i].Spread)
		}
		got[i].Spread = nil
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if got := r.slowest(); got != 90 {
		t.Errorf("the slowest does %v req/s, want 90", got)
	}
}

// A part's name runs it alone, and what goes on from it.
func TestPartNames(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range parts {
		if seen[p.name] {
			t.Errorf("part %s is there twice", p.name)
		}
		seen[p.name] = true
	}
	for name, want := range map[string]string{"http": "http, http-proxy", "http-proxy": "http-proxy", "flood": "flood", "": partNames()} {
		var got []string
		for _, p := range parts {
			if p.partOf(name) {
				got = append(got, p.name)
			}
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("part %q runs %s, want %s", name, got, want)
		}
	}
}
