package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

func newUndo(e *env) *cobra.Command {
	var q daemon.UndoRequest
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "Take back your last change",
		Long: `Takes back the last change that you made and did not undo yet: a block, an allow,
an import, their removal, a rule added or removed, a config applied, confirmed or
rolled back. Again, it takes back the one before.

What others changed since in the same place is not touched: then it refuses. An
entry that was removed comes back with the end that it had. What was changed on
all hosts is taken back on all.`,
		Example: `  headgate block 203.0.113.0/24 --for 1h
  headgate undo`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			var r daemon.UndoReply
			if err := e.ask(cmd.Context(), http.MethodPost, "/v1/undo", q, &r); err != nil {
				return err
			}
			if done, err := e.asJSON(r); done {
				return err
			}
			if len(r.Changes) > 0 {
				printChanges(e, r.Changes)
			}
			fmt.Fprintf(e.out, "undone: %s %s, of %s\n", r.Undone.What, r.Undone.Subject+reached(r.Fleet), moment(r.Undone.At))
			e.warnFleet(r.Fleet)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&q.Force, "force", false, "even where it may lock you out")
	cmd.Flags().StringVar(&q.Why, "why", "", "`text` kept in the history")
	return cmd
}
