package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
	"github.com/headgate/headgate/daemon/attachments"
)

func newDetach(e *env) *cobra.Command {
	var all, purge bool
	var pins string
	cmd := &cobra.Command{
		Use:   "detach --all",
		Short: "Take the network gate off all interfaces",
		Long: `Takes headgate's programs off all interfaces and removes all that it pinned:
nothing is dropped by the network gate any more. Programs of others stay.

It works with the daemon dead. With the daemon alive, "headgate reload" or a
restart attaches again; the HTTP gate goes on.

With --purge, for which the daemon must be stopped, it also removes what was
added from the command line (state.dir): nothing but the config is left.`,
		Example: `  headgate detach --all
  headgate detach --all --pins /sys/fs/bpf/headgate
  systemctl stop headgate && headgate detach --all --purge`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			if !all {
				return badf("say --all: it takes the network gate off all interfaces")
			}
			if purge {
				return e.uninstall(pins)
			}
			var r daemon.DetachReply
			err := e.ask(cmd.Context(), http.MethodPost, "/v1/detach", nil, &r)
			if errors.Is(err, errNoDaemon) {
				r.Interfaces, err = attachments.DetachAll(e.pins(pins))
			}
			if err != nil {
				return err
			}
			if done, err := e.asJSON(r); done {
				return err
			}
			e.sayDetached(r.Interfaces)
			fmt.Fprintln(e.out, "nothing of headgate is attached or pinned any more")
			return nil
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "all interfaces, and all pins")
	cmd.Flags().BoolVar(&purge, "purge", false, "also remove state.dir: blocks, allows and rules from the command line")
	cmd.Flags().StringVar(&pins, "pins", "", "`folder` of the pins, for a dead daemon (default: state.pins of the config)")
	return cmd
}

func (e *env) sayDetached(from []string) {
	if len(from) > 0 {
		fmt.Fprintln(e.out, "detached from "+strings.Join(from, ", "))
	}
}

// uninstall leaves nothing of a daemon that is stopped.
func (e *env) uninstall(pins string) error {
	data, err := os.ReadFile(e.configPath())
	if err != nil {
		return badf("read config, which names state.dir: %w", err)
	}
	cfg, err := config.Parse(e.configPath(), data)
	if err != nil {
		return badInput{err}
	}
	from, err := attachments.DetachAll(firstOf(pins, cfg.State.Pins))
	e.sayDetached(from)
	if err != nil {
		return err
	}
	if err := daemon.Purge(cfg.State.Dir); err != nil {
		return err
	}
	fmt.Fprintln(e.out, "nothing of headgate is attached, pinned or kept any more")
	return nil
}
