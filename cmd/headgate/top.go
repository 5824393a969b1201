package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
	"github.com/headgate/headgate/l7"
)

// topRows is how many of each gate's heaviest `top` shows, and topHint how many
// the bare command does.
const (
	topRows = 10
	topHint = 3
)

func newTop(e *env) *cobra.Command {
	var every, by string
	var rows int
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show who sends and asks most, and who is refused most",
		Long: `Shows who sent most packets and who asked most of the HTTP gate in the last
minute, what was refused of it, by which rule, and how long the bucket takes to
be full again if nothing more comes.

Packets are estimated from a sample: of all while there are few, of about a
thousand a second and CPU of any more. IPv6 sources are counted by their /64. Of
API keys the first digits of their SHA-256 are shown.`,
		Example: `  headgate top
  headgate top --every 2s --sort refused
  headgate top -o json`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			if by != "sent" && by != "refused" && by != "bytes" {
				return badf("--sort %s: say sent, refused or bytes", by)
			}
			if rows < 1 {
				return badf("--rows %d: say at least 1", rows)
			}
			if every == "" {
				return showTop(cmd.Context(), e, by, rows)
			}
			d, err := config.ParseDuration(every)
			if err != nil {
				return badf("--every: %w", err)
			}
			return keepTop(cmd.Context(), e, by, rows, max(d, 100*time.Millisecond))
		}),
	}
	cmd.Flags().StringVar(&every, "every", "", "show it again each `time`, until interrupted: 2s")
	cmd.Flags().StringVar(&by, "sort", "sent", "by `what`: sent, refused or bytes")
	cmd.Flags().IntVar(&rows, "rows", topRows, "how many `lines` of each gate")
	return cmd
}

// keepTop shows it again and again, in place.
func keepTop(ctx context.Context, e *env, by string, rows int, every time.Duration) error {
	for {
		if e.output != "json" {
			fmt.Fprint(e.out, "\x1b[H\x1b[2J")
		}
		if err := showTop(ctx, e, by, rows); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func showTop(ctx context.Context, e *env, by string, rows int) error {
	t, err := e.top(ctx)
	if err != nil {
		return err
	}
	if done, err := e.asJSON(t); done {
		return err
	}
	slices.SortStableFunc(t.Sources, func(a, b daemon.TopSource) int {
		switch by {
		case "refused":
			return compare(b.Dropped, a.Dropped)
		case "bytes":
			return compare(b.Bytes, a.Bytes)
		}
		return compare(b.Passed+b.Dropped, a.Passed+a.Dropped)
	})
	if by != "refused" {
		slices.SortStableFunc(t.Clients, func(a, b l7.Heavy) int { return compare(b.Passed+b.Refused, a.Passed+a.Refused) })
	}
	printTop(e, t, rows)
	return nil
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (e *env) top(ctx context.Context) (daemon.Top, error) {
	var t daemon.Top
	err := e.ask(ctx, http.MethodGet, "/v1/top", nil, &t)
	return t, err
}

// printTop prints the heaviest of both gates, as many lines of each at most.
func printTop(e *env, t daemon.Top, most int) {
	if len(t.Sources) > 0 {
		rows := [][]string{{"SOURCE", "PACKETS/S", "PASSED", "DROPPED", "BIT/S", "WHY", "BUCKET FULL IN"}}
		for _, s := range t.Sources[:min(most, len(t.Sources))] {
			why := s.Reason
			if s.Rule != "" {
				why = "rule " + s.Rule
			}
			full := ""
			if s.FullIn > 0 {
				full = daemon.Span((s.FullIn + 999) / 1000)
			}
			rows = append(rows, []string{
				address(s.Source), perSecond(s.Passed+s.Dropped, t.Span), strconv.FormatUint(s.Passed, 10),
				strconv.FormatUint(s.Dropped, 10), perSecond(8*s.Bytes, t.Span), why, full,
			})
		}
		table(e.out, rows)
	}
	if len(t.Clients) > 0 {
		if len(t.Sources) > 0 {
			fmt.Fprintln(e.out)
		}
		rows := [][]string{{"WHO ASKS", "REQUESTS/S", "PASSED", "REFUSED", "RULE"}}
		for _, c := range t.Clients[:min(most, len(t.Clients))] {
			rows = append(rows, []string{
				whoAsks(c), perSecond(c.Passed+c.Refused, t.HTTP), strconv.FormatUint(c.Passed, 10), strconv.FormatUint(c.Refused, 10), c.Rule,
			})
		}
		table(e.out, rows)
	}
	if len(t.Sources)+len(t.Clients) == 0 {
		fmt.Fprintln(e.out, "nobody sent or asked anything in the last minute")
	}
	if t.Lost > 0 {
		fmt.Fprintf(e.out, "of the sample %d packets came too fast to be counted, %d were\n", t.Lost, t.Sampled)
	}
}

func whoAsks(c l7.Heavy) string {
	switch {
	case c.Client.IsValid():
		return address(c.Client)
	case c.User != "":
		return "user " + c.User
	case c.Owner != "":
		return "key " + c.Key + " of " + c.Owner
	}
	return "key " + c.Key
}

// perSecond writes a rate shortly: 12, 3.4k, 1.2M.
func perSecond(n uint64, span float64) string {
	r := float64(n) / max(span, 1)
	for _, unit := range []struct {
		from float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if r >= unit.from {
			return strconv.FormatFloat(r/unit.from, 'f', 1, 64) + unit.name
		}
	}
	return strconv.FormatFloat(r, 'f', 0, 64)
}
