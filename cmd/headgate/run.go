package main

import (
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

func newRun(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the daemon",
		Long: `Runs the daemon in the foreground: it attaches the network gate to the
interfaces of the config, starts the HTTP gate as a process without privilege,
and follows changes of the config file.

SIGHUP reloads the config. SIGTERM and Ctrl-C stop it; what is attached goes on
filtering until "headgate detach --all".`,
		Example: `  headgate run
  headgate run -c headgate.yaml --socket /run/headgate/second.sock`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			err := daemon.Run(cmd.Context(), daemon.Options{
				ConfigPath: e.configPath(),
				Socket:     firstOf(e.socket, e.getenv("HEADGATE_SOCKET")),
				Version:    version,
				Log:        slog.New(slog.NewTextHandler(e.err, nil)),
				Stderr:     e.err,
			})
			var config *daemon.ConfigError
			if errors.As(err, &config) {
				return badInput{err}
			}
			return err
		}),
	}
}
