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
)

func newHistory(e *env) *cobra.Command {
	var since, by string
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show who changed what, from where and why",
		Long: `Shows the changes of the last 90 days, the latest last: who made each, from which
address over SSH, and why, as far as he said. What the gates do by themselves,
such as blocks by rules and the ends of blocks, is not in it.`,
		Example: `  headgate history --since 1d
  headgate history --by ann -o json`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			var from time.Time
			if since != "" {
				d, err := config.ParseDuration(since)
				if err != nil {
					return badf("--since: %w", err)
				}
				from = time.Now().Add(-d)
			}
			return showHistory(cmd.Context(), e, from, by)
		}),
	}
	cmd.Flags().StringVar(&since, "since", "", "of the last `time` only: 1h, 7d")
	cmd.Flags().StringVar(&by, "by", "", "of one `user` only")
	return cmd
}

func showHistory(ctx context.Context, e *env, from time.Time, by string) error {
	var h daemon.History
	if err := e.ask(ctx, http.MethodGet, "/v1/history", nil, &h); err != nil {
		return err
	}
	h.Entries = slices.DeleteFunc(h.Entries, func(x daemon.HistoryEntry) bool {
		return x.At.Before(from) || by != "" && x.By != by
	})
	if done, err := e.asJSON(h); done {
		return err
	}
	if len(h.Entries) == 0 {
		fmt.Fprintln(e.out, "nothing was changed")
	} else {
		rows := [][]string{{"NUMBER", "WHEN", "BY", "FROM", "WHAT", "SUBJECT", "DETAIL", "WHY", ""}}
		for _, x := range h.Entries {
			rows = append(rows, historyRow(x))
		}
		table(e.out, rows)
	}
	if h.Broken > 0 {
		fmt.Fprintf(e.out, "warning: %d lines of the file do not read and are passed over\n", h.Broken)
	}
	if h.Error != "" {
		fmt.Fprintf(e.out, "warning: the last change was not written down: %s\n", h.Error)
	}
	return nil
}

func historyRow(x daemon.HistoryEntry) []string {
	from := origin(x.Origin)
	if x.Peer.IsValid() {
		from = x.Peer.String()
	}
	note := ""
	switch {
	case x.Undone:
		note = "undone"
	case x.Undoes != 0:
		note = "undoes " + strconv.FormatUint(x.Undoes, 10)
	}
	return []string{strconv.FormatUint(x.ID, 10), moment(x.At), x.By, from, x.What, x.Subject, x.Detail, x.Why, note}
}
