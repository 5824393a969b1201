package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

func newRollback(e *env) *cobra.Command {
	var q daemon.RollbackRequest
	var list bool
	cmd := &cobra.Command{
		Use:   "rollback [--to NUMBER | --list]",
		Short: "Go back to an earlier config",
		Long: `Ends a trial now: the config before it is in force again. Without a trial it goes
back to the config that was in force before this one, or to an earlier one by its
number, which takes the place of the config file.

The last 20 configs are kept under state.dir, however they came to be in force.`,
		Example: `  headgate rollback
  headgate rollback --list
  headgate rollback --to 12 --why "ticket 81"`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			if list {
				return listConfigs(cmd.Context(), e)
			}
			if cmd.Flags().Changed("to") && q.To < 1 {
				return badf("--to %d: a number that `headgate rollback --list` shows", q.To)
			}
			var r daemon.RollbackReply
			if err := e.ask(cmd.Context(), http.MethodPost, "/v1/rollback", q, &r); err != nil {
				return err
			}
			if done, err := e.asJSON(r); done {
				return err
			}
			printChanges(e, r.Changes)
			if r.Trial != "" {
				fmt.Fprintf(e.out, "the trial of %s is over: the config before it is in force\n", r.Trial)
			} else {
				fmt.Fprintf(e.out, "config %d is in force, and in the place of the config file\n", r.Number)
			}
			return nil
		}),
	}
	flags := cmd.Flags()
	flags.IntVar(&q.To, "to", 0, "the config of this `number`")
	flags.BoolVar(&list, "list", false, "list the configs that are kept")
	flags.BoolVar(&q.Force, "force", false, "even where it may lock you out")
	flags.StringVar(&q.Why, "why", "", "`text` kept in the history")
	cmd.MarkFlagsMutuallyExclusive("to", "list")
	return cmd
}

func listConfigs(ctx context.Context, e *env) error {
	var r daemon.Configs
	if err := e.ask(ctx, http.MethodGet, "/v1/configs", nil, &r); err != nil {
		return err
	}
	if done, err := e.asJSON(r); done {
		return err
	}
	rows := [][]string{{"NUMBER", "IN FORCE SINCE", "HASH", ""}}
	for _, k := range r.Configs {
		now := ""
		if k.Now {
			now = "in force"
		}
		rows = append(rows, []string{strconv.Itoa(k.Number), moment(k.Kept), k.Hash, now})
	}
	table(e.out, rows)
	return nil
}
