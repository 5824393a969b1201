package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

func newDetach(e *env) *cobra.Command {
	var all bool
	var pins string
	cmd := &cobra.Command{
		Use:   "detach --all",
		Short: "Take the network gate off all interfaces",
		Long: `Takes headgate's programs off all interfaces and removes all that it pinned:
nothing is dropped by the network gate any more. Programs of others stay.

It works with the daemon dead. With the daemon alive, "headgate reload" or a
restart attaches again; the HTTP gate goes on.`,
		Example: `  headgate detach --all
  headgate detach --all --pins /sys/fs/bpf/headgate`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			if !all {
				return badf("say --all: it takes the network gate off all interfaces")
			}
			var r daemon.DetachReply
			err := e.ask(cmd.Context(), http.MethodPost, "/v1/detach", nil, &r)
			if errors.Is(err, errNoDaemon) {
				err = daemon.DetachAll(e.pins(pins))
			}
			if err != nil {
				return err
			}
			if done, err := e.asJSON(r); done {
				return err
			}
			if len(r.Interfaces) > 0 {
				fmt.Fprintln(e.out, "detached from "+strings.Join(r.Interfaces, ", "))
			}
			fmt.Fprintln(e.out, "nothing of headgate is attached or pinned any more")
			return nil
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "all interfaces, and all pins")
	cmd.Flags().StringVar(&pins, "pins", "", "`folder` of the pins, for a dead daemon (default: state.pins of the config)")
	return cmd
}
