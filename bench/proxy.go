package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

const (
	proxyRounds = 5               // of each contender, interleaved; the median counts
	proxyTime   = 2 * time.Second // that one measurement takes
	proxyConns  = 32
)

// proxyRun is one round of one contender.
type proxyRun struct {
	most          float64               // requests a second, as many as it can
	low, high     vegeta.LatencyMetrics // at fixed rates, admitted
	refused       vegeta.LatencyMetrics // at the lower rate, refused
	cpu, cpuOfNot time.Duration         // a request, admitted and refused
}

// proxyPart measures the reverse proxy without rules and with three, beside
// nginx and HAProxy without limits and with three: requests a second, latency at
// two open-loop rates, for admitted and for refused requests, and CPU a request.
func proxyPart(ctx context.Context, _ options) ([]Result, error) {
	binary, clean, err := buildHeadgate(ctx)
	if err != nil {
		return nil, err
	}
	defer clean()
	if _, err := exec.LookPath("nginx"); err != nil {
		return nil, errors.New("the upstream is nginx: install it (deploy/packages bench)")
	}
	up, err := serve(ctx, upstreamServer)
	if err != nil {
		return nil, err
	}
	defer up.stop()
	var kinds []proxyKind
	var servers []*server
	for _, k := range proxyKinds(binary) {
		if _, err := exec.LookPath(k.tool); err != nil {
			fmt.Fprintf(os.Stderr, "bench: without %s: %v (deploy/packages bench)\n", k.name, err)
			continue
		}
		s, err := serve(ctx, func(dir, address string) *exec.Cmd { return k.start(dir, address, up.address) })
		if err != nil {
			return nil, err
		}
		defer s.stop()
		kinds, servers = append(kinds, k), append(servers, s)
	}
	// The rates are those that the slowest bears.
	slowest := 0.0
	for _, s := range servers {
		if most, _, err := attack(ctx, s, "/", 0, proxyTime); err != nil {
			return nil, err
		} else if slowest == 0 || most < slowest {
			slowest = most
		}
	}
	low, high := int(slowest*0.3), int(slowest*0.6)
	runs := make([][]proxyRun, len(kinds))
	for round := range proxyRounds {
		for i := range kinds {
			at := (i + round) % len(kinds)
			r, err := oneProxyRound(ctx, kinds[at], servers[at], low, high)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kinds[at].name, err)
			}
			runs[at] = append(runs[at], r)
			fmt.Fprintf(os.Stderr, "\rproxies: round %d of %d, %-20s", round+1, proxyRounds, kinds[at].name)
		}
	}
	fmt.Fprintln(os.Stderr)
	return withRatios(proxyResults(kinds, runs, low, high)), nil
}

// buildHeadgate builds the binary as it is shipped.
func buildHeadgate(ctx context.Context) (path string, clean func(), err error) {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return "", nil, err
	}
	os.Chmod(dir, 0o755) // the HTTP gate's process is another user
	path = filepath.Join(dir, "headgate")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/headgate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", nil, fmt.Errorf("build headgate: %w\n%s", err, out)
	}
	return path, func() { os.RemoveAll(dir) }, nil
}

func oneProxyRound(ctx context.Context, k proxyKind, s *server, low, high int) (r proxyRun, err error) {
	var m *vegeta.Metrics
	before := s.cpu()
	if r.most, m, err = attack(ctx, s, "/", 0, proxyTime); err != nil {
		return r, err
	}
	r.cpu = (s.cpu() - before) / time.Duration(max(1, m.Requests))
	if _, m, err = attack(ctx, s, "/", low, proxyTime); err != nil {
		return r, err
	}
	r.low = m.Latencies
	if _, m, err = attack(ctx, s, "/", high, proxyTime); err != nil {
		return r, err
	}
	r.high = m.Latencies
	if !k.limited {
		return r, nil
	}
	if _, m, err = attack(ctx, s, "/refused", low, proxyTime); err != nil {
		return r, err
	}
	r.refused = m.Latencies
	before = s.cpu()
	if _, m, err = attack(ctx, s, "/refused", 0, proxyTime); err != nil {
		return r, err
	}
	r.cpuOfNot = (s.cpu() - before) / time.Duration(max(1, m.Requests))
	return r, nil
}

// attack asks for a path at a rate, or with rate 0 as fast as it is answered,
// and returns the requests a second. All must be answered as the path says.
func attack(ctx context.Context, s *server, path string, rate int, length time.Duration) (float64, *vegeta.Metrics, error) {
	options := []func(*vegeta.Attacker){vegeta.Connections(proxyConns), vegeta.MaxConnections(proxyConns), vegeta.KeepAlive(true), vegeta.Timeout(10 * time.Second)}
	pace := vegeta.Rate{Freq: rate, Per: time.Second}
	if rate == 0 {
		options = append(options, vegeta.Workers(proxyConns), vegeta.MaxWorkers(proxyConns))
	} else {
		options = append(options, vegeta.Workers(proxyConns))
	}
	a := vegeta.NewAttacker(options...)
	defer a.Stop()
	to := vegeta.NewStaticTargeter(vegeta.Target{
		Method: "GET", URL: "http://" + s.address + path, Header: map[string][]string{"X-Api-Key": {"one"}},
	})
	var m vegeta.Metrics
	for r := range a.Attack(to, pace, length, "bench") {
		if ctx.Err() != nil {
			return 0, nil, ctx.Err()
		}
		m.Add(r)
	}
	m.Close()
	want := "200"
	if path == "/refused" {
		want = "429"
	}
	// The first request to a path that refuses may still pass.
	if n := m.StatusCodes[want]; uint64(n)+2 < m.Requests {
		return 0, nil, fmt.Errorf("%s answered %v, not %s: %v", path, m.StatusCodes, want, m.Errors)
	}
	return m.Throughput + float64(m.StatusCodes["429"])/(m.Duration+m.Wait).Seconds(), &m, nil
}

// proxyResults are the medians of all rounds.
func proxyResults(kinds []proxyKind, runs [][]proxyRun, low, high int) (all []Result) {
	add := func(i int, what, unit string, value func(proxyRun) float64) {
		var values []float64
		for _, r := range runs[i] {
			values = append(values, value(r))
		}
		slices.Sort(values)
		r := Result{Name: "proxy/" + kinds[i].name + "/" + what, Value: values[len(values)/2], Unit: unit}
		switch {
		case strings.HasPrefix(what, "refused") && kinds[i].name != "nginx-limit-req":
			r.To = "proxy/nginx-limit-req/" + what
		case kinds[i].to != "":
			r.To = "proxy/" + kinds[i].to + "/" + what
		}
		all = append(all, r)
	}
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	for i, k := range kinds {
		add(i, "most", "requests/s", func(r proxyRun) float64 { return r.most })
		add(i, "cpu", "µs a request", func(r proxyRun) float64 { return us(r.cpu) })
		for _, at := range []struct {
			rate string
			of   func(proxyRun) vegeta.LatencyMetrics
		}{
			{fmt.Sprintf("at-%d/s", low), func(r proxyRun) vegeta.LatencyMetrics { return r.low }},
			{fmt.Sprintf("at-%d/s", high), func(r proxyRun) vegeta.LatencyMetrics { return r.high }},
			{fmt.Sprintf("refused-at-%d/s", low), func(r proxyRun) vegeta.LatencyMetrics { return r.refused }},
		} {
			if !k.limited && at.rate[0] == 'r' {
				continue
			}
			add(i, at.rate+"/p50", "µs", func(r proxyRun) float64 { return us(at.of(r).P50) })
			add(i, at.rate+"/p99", "µs", func(r proxyRun) float64 { return us(at.of(r).P99) })
			add(i, at.rate+"/p99.9", "µs", func(r proxyRun) float64 { return us(time.Duration(at.of(r).Quantile(0.999))) })
		}
		if k.limited {
			add(i, "refused-cpu", "µs a request", func(r proxyRun) float64 { return us(r.cpuOfNot) })
		}
	}
	return all
}
