package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

func newPanic(e *env) *cobra.Command {
	var off bool
	var pins, why string
	cmd := &cobra.Command{
		Use:   "panic [--off]",
		Short: "Open the network gate to everything, at once",
		Long: `Opens the network gate with one write to its pinned maps: nothing is dropped by
it any more, no matter what rules and blocks say. They stay as they are, and are
in force again with --off. The HTTP gate goes on.

It works with the daemon dead or hanging, and outlasts its restart: the gate stays
open until --off. "headgate status" shouts as long.`,
		Example: `  headgate panic --why "nobody can log in"
  headgate panic --off`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			if err := setOpen(cmd.Context(), e, pins, daemon.OpenRequest{Open: !off, Why: why}); err != nil {
				return err
			}
			if done, err := e.asJSON(daemon.OpenReply{Open: !off}); done {
				return err
			}
			if off {
				fmt.Fprintln(e.out, "the network gate is closed: rules and blocks are in force again")
			} else {
				fmt.Fprintln(e.out, "THE NETWORK GATE IS OPEN TO EVERYTHING; `headgate panic --off` closes it")
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&off, "off", false, "close it: what was in force is in force again")
	cmd.Flags().StringVar(&pins, "pins", "", "`folder` of the pins (default: state.pins of the config)")
	cmd.Flags().StringVar(&why, "why", "", "`text` kept in the history")
	return cmd
}

// noteWait is how long a daemon may take to write down what was done already.
const noteWait = 5 * time.Second

// setOpen writes to the pinned maps, which needs nobody's answer, and tells the
// daemon. Who may not write there asks the daemon to.
func setOpen(ctx context.Context, e *env, pins string, q daemon.OpenRequest) error {
	cause := daemon.OpenPinned(e.pins(pins), q.Open)
	q.Done = cause == nil
	if q.Done {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, noteWait)
		defer cancel()
	}
	var r daemon.OpenReply
	err := e.ask(ctx, http.MethodPost, "/v1/panic", q, &r)
	switch {
	case q.Done && err != nil:
		fmt.Fprintf(e.err, "headgate: it is done, and not in the history: %v\n", err)
		return nil
	case errors.Is(err, errNoDaemon) && errors.Is(cause, fs.ErrNotExist):
		return fmt.Errorf("%w, and nothing is pinned in %s: nothing of headgate drops packets (if it is elsewhere: --pins FOLDER)", err, e.pins(pins))
	case errors.Is(err, errNoDaemon):
		return fmt.Errorf("%w; and by the pins: %w", err, cause)
	}
	return err
}
