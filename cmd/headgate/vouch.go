package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
	"github.com/spf13/cobra"
)

func newVouch(e *env) *cobra.Command {
	var span string
	cmd := &cobra.Command{
		Use:   "vouch ADDRESS",
		Short: "Keep a source out of what unknown sources share",
		Long: `Vouches for an address: where a rule caps what unknown sources take together
("unknown: 50000/s"), it keeps a bucket of its own even while a flood of others
has used the cap up. Its own limit still holds. IPv6 is vouched for by its /64.
Vouches last over restarts of the daemon, not over a reboot.`,
		Example: "  headgate vouch 203.0.113.9 --for 5m",
		Args:    need("address"),
		RunE: work(func(cmd *cobra.Command, args []string) error {
			source, err := netip.ParseAddr(args[0])
			if err != nil {
				return badf("%q is no address: give one such as 203.0.113.9", args[0])
			}
			d, err := config.ParseDuration(span)
			if err != nil {
				return badf("--for %s: %v", span, err)
			}
			var v daemon.Vouch
			q := daemon.VouchRequest{Source: source, For: int64(d / time.Second)}
			if err := e.ask(cmd.Context(), http.MethodPost, "/v1/vouches", q, &v); err != nil {
				return err
			}
			if done, err := e.asJSON(v); done {
				return err
			}
			fmt.Fprintf(e.out, "vouched for %s until %s\n", v.Source, moment(v.End))
			return nil
		}),
	}
	cmd.Flags().StringVar(&span, "for", "5m", "how `long`, 1s to 30d")
	return cmd
}

func newUnvouch(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "unvouch ADDRESS",
		Short:   "End a vouch",
		Example: "  headgate unvouch 203.0.113.9",
		Args:    need("address"),
		RunE: work(func(cmd *cobra.Command, args []string) error {
			var v daemon.Vouch
			if err := e.ask(cmd.Context(), http.MethodDelete, "/v1/vouches?source="+url.QueryEscape(args[0]), nil, &v); err != nil {
				return err
			}
			if done, err := e.asJSON(v); done {
				return err
			}
			fmt.Fprintf(e.out, "no longer vouched for %s\n", v.Source)
			return nil
		}),
	}
}

func newVouches(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "vouches",
		Short:   "List who is vouched for, and until when",
		Example: "  headgate vouches -o json",
		Args:    cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			var v daemon.Vouches
			if err := e.ask(cmd.Context(), http.MethodGet, "/v1/vouches", nil, &v); err != nil {
				return err
			}
			if done, err := e.asJSON(v); done {
				return err
			}
			if len(v.Vouches) == 0 {
				fmt.Fprintln(e.out, "nobody is vouched for")
				return nil
			}
			rows := [][]string{{"SOURCE", "UNTIL"}}
			for _, w := range v.Vouches {
				rows = append(rows, []string{w.Source.String(), moment(w.End)})
			}
			table(e.out, rows)
			return nil
		}),
	}
}
