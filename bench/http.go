package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// httpPart measures decisions of the HTTP gate on two goroutines: one rule for
// so many keys beside other limiters in Go, all in one run, then whole decisions
// for one request that 1, 8 and 10 000 rules are looked through for. The best of
// three rounds counts.
func httpPart(ctx context.Context, _ options) ([]Result, error) {
	peers, err := goBench(ctx, "bench/http", ".")
	if err != nil {
		return nil, err
	}
	whole, err := goBench(ctx, "l7", "^Benchmark(TimeRate|Decide1|Decide8|Decide10000|Match10000)$")
	if err != nil {
		return nil, err
	}
	for i := range peers {
		r := &peers[i]
		if at := strings.LastIndexByte(r.Name, '/'); at >= 0 {
			r.To = "http/Decide/x-time-rate" + r.Name[at:]
		}
	}
	for i := range whole {
		whole[i].Name = strings.Replace(whole[i].Name, "http/", "http/request/", 1)
		whole[i].To = "http/request/TimeRate"
	}
	return withRatios(append(peers, whole...)), nil
}

// withRatios fills in the ratios to the lines that are named.
func withRatios(all []Result) []Result {
	values := map[string]float64{}
	for _, r := range all {
		values[r.Name] = r.Value
	}
	for i := range all {
		if to := values[all[i].To]; to > 0 {
			all[i].Ratio = all[i].Value / to
		} else {
			all[i].To = ""
		}
	}
	return all
}

var benchLine = regexp.MustCompile(`(?m)^Benchmark(\S+?)-\d+\s+\d+\s+([0-9.]+) ns/op`)

// goBench runs the benchmarks of a folder.
func goBench(ctx context.Context, folder, which string) ([]Result, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", which, "-cpu", "2", "-count", "3", "-benchtime", "200ms", ".")
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("benchmarks of %s: %w\n%s", folder, err, out)
	}
	return parseBench(string(out))
}

// parseBench returns the best round of each benchmark.
func parseBench(out string) ([]Result, error) {
	var all []Result
	at := map[string]int{}
	for _, m := range benchLine.FindAllStringSubmatch(out, -1) {
		ns, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", m[0], err)
		}
		name := "http/" + m[1]
		i, seen := at[name]
		if !seen {
			at[name] = len(all)
			all = append(all, Result{Name: name, Value: ns, Unit: "ns"})
			continue
		}
		all[i].Value = min(all[i].Value, ns)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no benchmark in %q", out)
	}
	return all, nil
}
