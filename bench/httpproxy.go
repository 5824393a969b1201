package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate/internal/load"
)

// proxyPlan is how much the proxies are measured.
type proxyPlan struct {
	rounds      int
	connections int
	warm, round time.Duration
	shares      []float64 // of the most that the slowest proxy takes, for the open loops
}

var fullProxyPlan = proxyPlan{
	rounds: 5, connections: 32,
	warm: 300 * time.Millisecond, round: 1500 * time.Millisecond,
	// more is more than the open loop's driver can send from one CPU
	shares: []float64{0.2, 0.4},
}

// proxyPart measures the whole proxy: with three rules and with none, beside
// nginx and HAProxy with and without limits on the same keys, and each of them
// refusing. First how many requests a second it takes in a closed loop, then how
// long they take in an open one, at rates that all of them can do.
func proxyPart(ctx context.Context, _ options) (results []Result, err error) {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, err := newProxyBench(ctx, dir, 1000)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.addAll(); err != nil {
		return nil, err
	}
	return b.measure(fullProxyPlan)
}

// measure runs the closed loop, then an open one for each share.
func (b *proxyBench) measure(plan proxyPlan) ([]Result, error) {
	closed, err := b.rounds(plan, 0)
	if err != nil {
		return nil, err
	}
	all := append(closed.results("closed loop, rate", "req/s", perSecond, atLeast(0.95)),
		closed.results("closed loop, CPU", "µs/req", cpuTime, "")...)
	most := closed.slowest()
	for _, share := range plan.shares {
		rate := int(most * share)
		opened, err := b.rounds(plan, rate)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%d req/s, ", rate)
		all = append(all, opened.results(name+"p50", "ms", p50, "")...)
		all = append(all, opened.results(name+"p99", "ms", p99, atMost(1.1))...)
		all = append(all, opened.results(name+"p99.9", "ms", p999, "")...)
		all = append(all, opened.results(name+"CPU", "µs/req", cpuTime, "")...)
	}
	return all, nil
}

// proxyRounds is what came of the rounds of one load: for each proxy, a report a
// round.
type proxyRounds struct {
	proxies []*proxyUnder
	reports [][]driven
}

// rounds drives all proxies in turn, so many times, at a rate or with 0 in a closed
// loop. Every other round goes backwards, so that none always follows the same one.
func (b *proxyBench) rounds(plan proxyPlan, rate int) (proxyRounds, error) {
	r := proxyRounds{b.proxies, make([][]driven, len(b.proxies))}
	l := load.Load{Connections: plan.connections, Rate: rate, Warm: plan.warm, For: plan.round}
	for round := range plan.rounds {
		for i := range b.proxies {
			if round%2 == 1 {
				i = len(b.proxies) - 1 - i
			}
			d, err := b.drive(b.proxies[i], l)
			if err != nil {
				return r, err
			}
			if sent := float64(total(d.Answers)) / d.Seconds; rate > 0 && sent < 0.95*float64(rate) {
				fmt.Fprintf(os.Stderr, "bench: http: the load on %s fell behind: %.0f of %d req/s\n", b.proxies[i].name(), sent, rate)
			}
			r.reports[i] = append(r.reports[i], d)
		}
	}
	return r, nil
}

func total(answers map[int]uint64) (n uint64) {
	for _, of := range answers {
		n += of
	}
	return n
}

// slowest returns the most requests a second of the proxy that takes the fewest.
func (r proxyRounds) slowest() float64 {
	var least float64
	for i, p := range r.proxies {
		if v := median(r.values(i, perSecond)); !p.Refuse && (least == 0 || v < least) {
			least = v
		}
	}
	return least
}

// values are one figure of a proxy, a round each.
func (r proxyRounds) values(i int, of figure) []float64 {
	list := make([]float64, len(r.reports[i]))
	for n, d := range r.reports[i] {
		list[n] = of(d, r.proxies[i].status())
	}
	return list
}

// figure is what is read from a report, of answers with a status.
type figure func(d driven, status int) float64

func perSecond(d driven, status int) float64 { return float64(d.Answers[status]) / d.Seconds }
func cpuTime(d driven, _ int) float64        { return float64(d.cpu.Nanoseconds()) / 1e3 }
func p50(d driven, status int) float64       { return d.Latencies[status].P50.Seconds() * 1e3 }
func p99(d driven, status int) float64       { return d.Latencies[status].P99.Seconds() * 1e3 }
func p999(d driven, status int) float64      { return d.Latencies[status].P999.Seconds() * 1e3 }

func atLeast(ratio float64) string { return fmt.Sprintf(">= %.2f", ratio) }
func atMost(ratio float64) string  { return fmt.Sprintf("<= %.2f", ratio) }

// results are the medians of a figure over the rounds, with how far they spread.
// Headgate with rules is compared to itself with none, which has a floor; the
// others to Headgate in the same setting. A ratio is the median of those within
// the rounds, each of two loads that ran soon after another.
func (r proxyRounds) results(name, unit string, of figure, floor string) []Result {
	prefix := "http proxy, " + name + ": "
	var all []Result
	for i, p := range r.proxies {
		values := r.values(i, of)
		result := Result{Name: prefix + p.name(), Value: median(values), Unit: unit, Spread: spread(values)}
		if to := r.comparedTo(i); to >= 0 {
			result.Ratio, result.To = median(ratios(values, r.values(to, of))), prefix+r.proxies[to].name()
			if p.tool == "" {
				result.Floor = floor
			}
		}
		all = append(all, result)
	}
	return all
}

// comparedTo returns the proxy that the i-th is compared to, or -1.
func (r proxyRounds) comparedTo(i int) int {
	p := r.proxies[i]
	for n, o := range r.proxies {
		own := p.tool == "" && p.Limits && !p.Refuse && !o.Limits
		other := p.tool != "" && o.Limits == p.Limits && o.Refuse == p.Refuse
		if o.tool == "" && (own || other) {
			return n
		}
	}
	return -1
}
