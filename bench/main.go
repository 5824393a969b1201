// Command bench measures Headgate side by side with what it is compared to,
// prints a table, and writes it to a JSON file.
//
// Machines differ and are noisy: rounds of all contenders are interleaved, one
// round of each counts (the best, or the median where packets cross CPUs), and
// what is quoted is the ratio within one run.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
)

// Result is one line of the table.
type Result struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Ratio float64 `json:"ratio"`
	To    string  `json:"ratio_to"` // the name of the line that Ratio is to

	Spread *Spread `json:"spread,omitempty"` // of Value over the rounds, where it is a median
	Floor  string  `json:"floor,omitempty"`  // what Ratio has to hold
}

// Spread is the least and the most of several rounds.
type Spread struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func spread(values []float64) *Spread { return &Spread{slices.Min(values), slices.Max(values)} }

// options are what the parts may be asked for.
type options struct {
	allPeers bool // also compare with what few hosts have at hand
}

type part struct {
	name string
	run  func(context.Context, options) ([]Result, error)
}

// partOf reports whether p runs when name is asked for; empty asks for all.
func (p part) partOf(name string) bool {
	return name == "" || p.name == name || strings.HasPrefix(p.name, name+"-")
}

// parts are the benchmarks by name, in the order in which they run.
var parts = []part{
	{"packet", packetPart},
	{"flood", floodPart},
	{"http", httpPart},
	{"http-proxy", proxyPart},
	{"fleet", fleetPart},
}

func main() {
	part := flag.String("part", "", "run only this `part`, and those whose names go on from it: "+partNames())
	out := flag.String("o", "bench/latest.json", "write the results to this `file`")
	var o options
	flag.BoolVar(&o.allPeers, "all-peers", false, "compare with more: xdp-filter in the flood")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, *part, *out, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	switch {
	case ctx.Err() != nil:
		os.Exit(130)
	case err != nil:
		os.Exit(1)
	}
}

func partNames() string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}

func run(ctx context.Context, part, out string, o options) error {
	var all []Result
	for _, p := range parts {
		if !p.partOf(part) {
			continue
		}
		results, err := p.run(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		all = append(all, results...)
	}
	if len(all) == 0 {
		return fmt.Errorf("no part %q: there is %s", part, partNames())
	}
	if err := printTable(all); err != nil {
		return err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}

func printTable(results []Result) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "name\tvalue\tspread\tunit\tratio\tfloor\tto")
	for _, r := range results {
		ratio := ""
		if r.To != "" {
			ratio = fmt.Sprintf("%.*f", max(2, digits(r.Ratio)), r.Ratio)
		}
		over := ""
		if r.Spread != nil {
			over = fmt.Sprintf("%.*f to %.*f", digits(r.Spread.Low), r.Spread.Low, digits(r.Spread.Low), r.Spread.High)
		}
		fmt.Fprintf(w, "%s\t%.*f\t%s\t%s\t%s\t%s\t%s\n", r.Name, digits(r.Value), r.Value, over, r.Unit, ratio, r.Floor, r.To)
	}
	return w.Flush()
}

// digits is how many are shown after the point.
func digits(value float64) int {
	switch {
	case value < 0.1:
		return 4
	case value < 10:
		return 2
	case value < 1000:
		return 1
	}
	return 0
}
