package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

func newReload(e *env) *cobra.Command {
	var q daemon.ReloadRequest
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Put the config file in force, as a whole or not at all",
		Long: `Makes the daemon read its config again. The daemon also does so by itself when
the file changes; this waits for the outcome and tells it. A config with an
error changes nothing, and neither does one that would newly lock someone out,
without --force.

After "headgate detach --all" it attaches again.`,
		Example: "  headgate check && headgate reload",
		Args:    cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			var r daemon.ReloadReply
			if err := e.ask(cmd.Context(), http.MethodPost, "/v1/reload", q, &r); err != nil {
				var away unreachable
				if errors.As(err, &away) {
					return err
				}
				return fmt.Errorf("not reloaded, all stays as it was:\n%w", err)
			}
			if done, err := e.asJSON(r); done {
				return err
			}
			what := "unchanged"
			if r.Changed {
				what = "in force"
			}
			fmt.Fprintf(e.out, "config %s: generation %d, %d rules\n", what, r.Generation, r.Rules)
			e.warn(r.Warnings)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&q.Force, "force", false, "even where it may lock you out")
	return cmd
}
