package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
)

// topFlags say what top shows.
type topFlags struct {
	once   bool
	window string
	sort   string
	gate   string
	rule   string
	most   int
}

// topSorts are the orders of top, the usual first.
var topSorts = []string{"refused", "passed", "bytes", "full"}

func newTop(e *env) *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show who sends and asks most, and who is refused",
		Long: `Shows the heaviest sources, clients, API keys and users at both gates, by rule:
what passes and is refused a second, and how long the bucket needs to be full
again. A key is told by how its SHA-256 begins, as --key takes it elsewhere.

On a terminal it goes on until q, and a source can be blocked from it; elsewhere,
or with --once, it prints one table. What it shows is sampled: exact up to about
a thousand packets or requests a second on a CPU, an estimate above.`,
		Example: `  headgate top
  headgate top --once --window 1m --rule login
  headgate top --once --sort bytes -o json`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			q, err := f.query()
			if err != nil {
				return err
			}
			if t := terminalOf(e); t != nil && !f.once && e.output == "text" {
				return watchTop(cmd.Context(), e, t, f, q)
			}
			return printTop(cmd.Context(), e, f, q)
		}),
	}
	cmd.Flags().BoolVar(&f.once, "once", false, "print one table and end, also on a terminal")
	cmd.Flags().StringVar(&f.window, "window", "10s", "over how `long`, 1s to 1m")
	cmd.Flags().StringVar(&f.sort, "sort", topSorts[0], "`order`: refused, passed, bytes or full (the longest time until full)")
	cmd.Flags().StringVar(&f.gate, "gate", "", "of one `gate` only: network or http")
	cmd.Flags().StringVar(&f.rule, "rule", "", "of one `rule` only")
	cmd.Flags().IntVarP(&f.most, "lines", "n", 20, "at most so `many`, 1 to 100")
	return cmd
}

// query checks the flags and returns what to ask the daemon for.
func (f *topFlags) query() (string, error) {
	d, err := config.ParseDuration(f.window)
	switch {
	case err != nil:
		return "", badf("--window: %w", err)
	case d < time.Second || d > time.Minute:
		return "", badf("--window %s: give 1s to 1m", f.window)
	case !slices.Contains(topSorts, f.sort):
		return "", badf("--sort %s: one of %s", f.sort, strings.Join(topSorts, ", "))
	case f.gate != "" && f.gate != "network" && f.gate != "http":
		return "", badf("--gate %s: network or http", f.gate)
	case f.most < 1 || f.most > 100:
		return "", badf("-n %d: give 1 to 100", f.most)
	}
	return "/v1/top?window=" + strconv.Itoa(int((d+time.Second-1)/time.Second)), nil
}

// fetchTop asks for the rows and picks those wanted, in their order.
func fetchTop(ctx context.Context, e *env, f topFlags, query string) (daemon.Top, error) {
	var t daemon.Top
	if err := e.ask(ctx, http.MethodGet, query, nil, &t); err != nil {
		return t, err
	}
	t.Rows = slices.DeleteFunc(t.Rows, func(r daemon.TopRow) bool {
		return f.gate != "" && r.Gate != f.gate || f.rule != "" && r.Rule != f.rule
	})
	orderTop(t.Rows, f.sort)
	t.Rows = t.Rows[:min(len(t.Rows), f.most)]
	return t, nil
}

// orderTop sorts rows that come by refusals.
func orderTop(rows []daemon.TopRow, by string) {
	weight := map[string]func(daemon.TopRow) float64{
		"passed": func(r daemon.TopRow) float64 { return perSecond(r.Passed+r.Watched, r) },
		"bytes":  func(r daemon.TopRow) float64 { return perSecond(r.Bytes, r) },
		"full":   func(r daemon.TopRow) float64 { return r.FullIn },
	}[by]
	if weight != nil {
		slices.SortStableFunc(rows, func(a, b daemon.TopRow) int { return cmp.Compare(weight(b), weight(a)) })
	}
}

func printTop(ctx context.Context, e *env, f topFlags, query string) error {
	t, err := fetchTop(ctx, e, f, query)
	if err != nil {
		return err
	}
	if done, err := e.asJSON(t); done {
		return err
	}
	if len(t.Rows) == 0 {
		fmt.Fprintf(e.out, "nobody sent or asked anything in the last %s\n", f.window)
		return nil
	}
	table(e.out, topRows(t.Rows))
	return nil
}

// topRows are the rows of a table, with its head.
func topRows(list []daemon.TopRow) [][]string {
	rows := [][]string{{"GATE", "RULE", "WHO", "PASSED/s", "REFUSED/s", "FULL IN"}}
	for _, r := range list {
		rows = append(rows, topCells(r))
	}
	return rows
}

func topCells(r daemon.TopRow) []string {
	rule := r.Rule
	if rule == "" {
		rule = "(" + r.Reason + ")"
	}
	refused := short(perSecond(r.Refused, r))
	if r.Watched > 0 {
		refused = strings.TrimPrefix(refused+"+", "0+") + short(perSecond(r.Watched, r)) + "w"
	}
	return []string{r.Gate, rule, whoIs(r), short(perSecond(r.Passed+r.Watched, r)), refused, fullIn(r.FullIn)}
}

// whoIs names whom a row is about.
func whoIs(r daemon.TopRow) string {
	var parts []string
	if r.User != "" {
		parts = append(parts, "user "+r.User)
	}
	if r.Key != "" {
		key := "key " + r.Key
		if r.Owner != "" {
			key += " of " + r.Owner
		}
		parts = append(parts, key)
	}
	if r.Tenant != "" {
		parts = append(parts, "tenant "+r.Tenant)
	}
	if r.Source.IsValid() {
		parts = append(parts, address(r.Source))
	}
	if len(parts) == 0 {
		return "everyone"
	}
	return printable(strings.Join(parts, ", "))
}

func perSecond(n uint64, r daemon.TopRow) float64 { return float64(n) / max(r.Seconds, 1) }

// short writes a number in at most 5 characters.
func short(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 9.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x < 9999.5:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x < 999.5e3:
		return strconv.FormatFloat(x/1e3, 'f', 0, 64) + "k"
	case x < 999.5e6:
		return strconv.FormatFloat(x/1e6, 'f', 1, 64) + "M"
	}
	return strconv.FormatFloat(x/1e9, 'f', 1, 64) + "G"
}

// fullIn writes how long a bucket needs to be full again.
func fullIn(seconds float64) string {
	switch {
	case seconds <= 0:
		return "-"
	case seconds < 1:
		return "<1s"
	}
	return daemon.Span(int64(seconds + 0.999))
}

// topSource is the prefix that a block of a row would cover.
func topSource(r daemon.TopRow) (netip.Prefix, bool) { return r.Source, r.Source.IsValid() }
