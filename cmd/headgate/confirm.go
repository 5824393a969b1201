package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

func newConfirm(e *env) *cobra.Command {
	var q daemon.ConfirmRequest
	cmd := &cobra.Command{
		Use:   "confirm",
		Short: "Make the config on trial the config",
		Long: `Makes the config that "headgate apply --confirm" has on trial the config: it takes
the place of the config file in one step. The one before is kept.

A config file that somebody changed since the trial began is not overwritten
without --force.`,
		Example: "  headgate apply new.yaml --confirm 60s && headgate confirm",
		Args:    cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			var r daemon.ConfirmReply
			if err := e.ask(cmd.Context(), http.MethodPost, "/v1/confirm", q, &r); err != nil {
				return err
			}
			if done, err := e.asJSON(r); done {
				return err
			}
			fmt.Fprintf(e.out, "confirmed: %s holds it now; `headgate undo` takes it back\n", r.File)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&q.Force, "force", false, "even over a config file that was changed meanwhile")
	return cmd
}
