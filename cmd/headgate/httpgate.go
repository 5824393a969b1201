package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

// newHTTPGate is the process that the daemon starts for the HTTP gate.
func newHTTPGate(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    daemon.ChildCommand,
		Short:  "The HTTP gate's process, started by the daemon",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: work(func(*cobra.Command, []string) error {
			return daemon.RunChild(slog.New(slog.NewTextHandler(e.err, nil)).With("process", daemon.ChildCommand))
		}),
	}
}

// newHTTPLauncher is the process that the daemon has start the HTTP gate's.
func newHTTPLauncher() *cobra.Command {
	return &cobra.Command{
		Use:    daemon.LauncherCommand + " [UID GID]",
		Short:  "Starts the HTTP gate's process, started by the daemon",
		Hidden: true,
		RunE: work(func(_ *cobra.Command, ids []string) error {
			return daemon.RunLauncher(ids)
		}),
	}
}
