package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/config"
)

const (
	defaultConfig = "/etc/headgate/headgate.yaml"
	defaultSocket = "/run/headgate/headgate.sock"
)

// env is all that a command has from outside, so that every command runs in
// process in a test.
type env struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	above    func(string) string // a variable of the processes above; may be nil

	config, socket, output string // flags of all commands
}

// Exit codes: 0 done, 1 refused or failed, 2 bad input.
const (
	exitDone   = 0
	exitFailed = 1
	exitBad    = 2
)

// failure is an error of a command that had understood what it was asked. All
// other errors are bad input.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// badInput is an error in what the user gave to a command.
type badInput struct{ error }

func (b badInput) Unwrap() error { return b.error }

func badf(format string, args ...any) error { return badInput{fmt.Errorf(format, args...)} }

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, e *env) int {
	root := newRoot(e)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	// Errors of a config begin with file, line and column, as editors read them.
	var positions config.Errors
	if errors.As(err, &positions) {
		fmt.Fprintln(e.err, err)
		return exitBad
	}
	// several faults at once are a line each
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(e.err, "headgate: "+line)
	}
	var failed failure
	if errors.As(err, &failed) {
		return exitFailed
	}
	return exitBad
}

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "headgate",
		Short: "Keep clients that ask too much from hurting everyone else",
		Long: `Headgate limits rates at two gates of one host: packets in the kernel, before
the network stack sees them, and HTTP requests in a reverse proxy.

Without a command it shows what the daemon does right now.`,
		Example: `  headgate run -c headgate.yaml
  headgate check headgate.yaml
  headgate block 203.0.113.9 --for 10m --reason "scans ports"
  headgate rule add login --method POST --path /login --per client --limit 5/min`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			return showStatus(cmd.Context(), e, true)
		}),
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if e.output != "text" && e.output != "json" {
				return badf("-o %s: text or json", e.output)
			}
			return nil
		},
	}
	root.SetIn(e.in)
	root.SetOut(e.out)
	root.SetErr(e.err)
	flags := root.PersistentFlags()
	flags.StringVarP(&e.config, "config", "c", "", "config `file` (or HEADGATE_CONFIG; default "+defaultConfig+")")
	flags.StringVar(&e.socket, "socket", "", "control socket `path` (or HEADGATE_SOCKET; default: admin.socket of the config)")
	flags.StringVarP(&e.output, "output", "o", "text", "`form` of what is printed: text or json")
	root.AddCommand(
		newRun(e), newCheck(e), newStatus(e), newTop(e), newRule(e), newOverride(e), newReset(e), newGrant(e),
		newBlock(e), newUnblock(e), newBlocks(e),
		newAllow(e), newDisallow(e), newAllows(e), newVouch(e), newUnvouch(e), newVouches(e),
		newReload(e), newReattach(e), newApply(e), newConfirm(e), newRollback(e), newUndo(e), newHistory(e),
		newTop(e), newEvents(e), newCapture(e), newPanic(e), newDetach(e), newDoctor(e), newVersion(e), newHTTPGate(e), newHTTPLauncher(),
	)
	return root
}

// work marks what f returns as a failure, unless it is bad input.
func work(f func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := f(cmd, args)
		var bad badInput
		if err == nil || errors.As(err, &bad) {
			return err
		}
		return failure{err}
	}
}

// configPath is the config to use.
func (e *env) configPath() string {
	return firstOf(e.config, e.getenv("HEADGATE_CONFIG"), defaultConfig)
}

// socketPath is the control socket to use. A config that is broken must not
// keep its user from asking the daemon, so of such a file only the line that
// names the socket is read.
func (e *env) socketPath() (string, error) {
	if s := firstOf(e.socket, e.getenv("HEADGATE_SOCKET")); s != "" {
		return s, nil
	}
	data, err := os.ReadFile(e.configPath())
	if err != nil {
		if firstOf(e.config, e.getenv("HEADGATE_CONFIG")) != "" {
			return "", badf("read config: %w (name another with -c FILE, or the socket with --socket)", err)
		}
		return defaultSocket, nil
	}
	if cfg, err := config.Parse(e.configPath(), data); err == nil {
		return cfg.Admin.Socket, nil
	}
	return firstOf(e.lineOfConfig("socket"), defaultSocket), nil
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

// need wants exactly one argument, and says which.
func need(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return badf("give one %s, not %d (%s)", what, len(args), strings.Join(args, " "))
		}
		return nil
	}
}
