package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
)

// mostChanges bounds how many differences are printed; JSON has all.
const mostChanges = 100

func newApply(e *env) *cobra.Command {
	var q daemon.ApplyRequest
	var confirm string
	cmd := &cobra.Command{
		Use:   "apply [FILE] [--confirm 60s]",
		Short: "Put a config in force, on trial or for good",
		Long: `Shows in which rules, lists, interfaces and settings FILE differs from what is in
force (+ new, - gone, ~ changed), and puts it in force as a whole or not at all.
Files that it names are looked for beside the config whose place it takes.
Without FILE it is the config file as it is on disk; - is standard input.

With --confirm it is a trial: unless "headgate confirm" comes in time, the config
before is in force again. The daemon sees to that by itself, also when it is
killed and started again meanwhile, and whatever the clock does; a reboot ends
the trial. If the daemon stays dead, the network gate lets everything pass from
30 seconds after the end on. While a trial runs, changes of the config file wait.

Without --confirm FILE takes the place of the config file at once. The configs
before are kept: see "headgate rollback".

What would lock you out needs --force, as for "headgate block".`,
		Example: `  headgate apply new.yaml --dry-run
  headgate apply new.yaml --confirm 60s --why "ticket 81"
  headgate confirm`,
		Args: cobra.MaximumNArgs(1),
		RunE: work(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("confirm") {
				d, err := config.ParseDuration(confirm)
				if err != nil {
					return badf("--confirm: %w", err)
				}
				q.Confirm = int64((d + time.Second - 1) / time.Second)
			}
			if len(args) == 1 {
				if err := readCandidate(e, args[0], &q); err != nil {
					return err
				}
			}
			return apply(cmd.Context(), e, q)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&confirm, "confirm", "", "on trial for this `time`, 5s to 1d")
	flags.BoolVar(&q.DryRun, "dry-run", false, "show the differences and change nothing")
	flags.BoolVar(&q.Force, "force", false, "even where it may lock you out")
	flags.StringVar(&q.Why, "why", "", "`text` kept in the history")
	return cmd
}

func readCandidate(e *env, name string, q *daemon.ApplyRequest) error {
	const most = 16 << 20 // as for the config itself
	var in io.Reader = e.in
	q.File = "standard input"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return badf("read config: %w", err)
		}
		defer f.Close()
		in, q.File = f, name
	}
	data, err := io.ReadAll(io.LimitReader(in, most+1))
	switch {
	case err != nil:
		return badf("read config: %w", err)
	case len(data) > most:
		return badf("read config %s: more than %d MiB", q.File, most>>20)
	case len(data) == 0:
		return badf("read config %s: it is empty", q.File)
	}
	q.Config = string(data)
	return nil
}

func apply(ctx context.Context, e *env, q daemon.ApplyRequest) error {
	var r daemon.ApplyReply
	if err := e.ask(ctx, http.MethodPost, "/v1/apply", q, &r); err != nil {
		return err
	}
	if done, err := e.asJSON(r); done {
		return err
	}
	printChanges(e, r.Changes)
	e.warn(r.Warnings)
	switch {
	case q.DryRun:
		fmt.Fprintln(e.out, "nothing was changed: this was a dry run")
	case r.Trial != nil:
		fmt.Fprintf(e.out, "on trial for %s: `headgate confirm` keeps it, `headgate rollback` ends it now\n", daemon.Span(r.Trial.EndsIn))
	default:
		fmt.Fprintln(e.out, "in force, and in the place of the config file; `headgate undo` takes it back")
	}
	return nil
}

// printChanges shows each difference on a line of its own.
func printChanges(e *env, changes []daemon.Change) {
	if len(changes) == 0 {
		fmt.Fprintln(e.out, "no difference to what is in force")
	}
	for i, c := range changes {
		if i == mostChanges {
			fmt.Fprintf(e.out, "and %d more (see them with -o json)\n", len(changes)-i)
			return
		}
		line := fmt.Sprintf("%s %s %s", c.Op, c.What, c.Name)
		switch {
		case c.Op == "~":
			line += fmt.Sprintf(": %s (was: %s)", firstOf(c.Text, "default"), firstOf(c.Was, "default"))
		case firstOf(c.Text, c.Was) != "":
			line += ": " + firstOf(c.Text, c.Was)
		}
		fmt.Fprintln(e.out, line)
	}
}
