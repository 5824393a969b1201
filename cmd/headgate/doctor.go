package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
	"github.com/headgate/headgate/daemon/doctor"
)

func newDoctor(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the whole installation",
		Long: `Looks at the config, the daemon and what it has attached, and at what both need:
the kernel, capabilities one by one, a bpffs that outlives a container, memory,
the state folder, the clock, and each interface: in which mode it is attached or
would be, why, and what cures it.

It prints a line a check and ends with what to do, the most urgent first. It
changes nothing, and works without root and with the daemon dead: what it cannot
see it says. Exit code 1 says that something fails.`,
		Example: `  headgate doctor
  headgate doctor -c new.yaml -o json`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			r := doctor.Examine(e.patient(cmd.Context()))
			done, err := e.asJSON(r)
			if !done {
				printReport(e, r)
			}
			if err == nil && !r.OK {
				err = fmt.Errorf("%d of %d checks fail", countState(r, doctor.Fail), len(r.Findings))
			}
			return err
		}),
	}
}

// patient gathers what the checks start from.
func (e *env) patient(ctx context.Context) *doctor.Patient {
	// a daemon that hangs is a finding, and not to be waited for that long
	const patience = 10 * time.Second
	p := &doctor.Patient{Path: e.configPath(), Version: version, Proc: "/proc"}
	p.Config, p.ConfigErr = config.Load(p.Path)
	if p.ConfigErr != nil {
		p.Config = nil
	}
	c, err := e.client()
	if err == nil {
		var st daemon.Status
		c.wait = patience
		if err = c.ask(ctx, http.MethodGet, "/v1/status", nil, &st); err == nil {
			p.Status = &st
			return p
		}
	}
	p.StatusErr = err
	if p.NoDaemon = errors.Is(err, errNoDaemon); !p.NoDaemon {
		return p
	}
	left, pinErr := daemon.Inspect(e.pins(""), e.stateDir(), time.Now())
	switch {
	case pinErr == nil:
		p.Status = &daemon.Status{Dead: true, Network: left.Network}
	case !errors.Is(pinErr, fs.ErrNotExist):
		p.PinsErr = pinErr
	}
	return p
}

func printReport(e *env, r doctor.Report) {
	rows := make([][]string, len(r.Findings))
	for i, f := range r.Findings {
		rows[i] = []string{string(f.State), f.Check, f.Text}
	}
	table(e.out, rows)
	if len(r.ToDo) == 0 {
		fmt.Fprintln(e.out, "\nnothing to do")
		return
	}
	fmt.Fprintln(e.out, "\nto do, the most urgent first:")
	for i, t := range r.ToDo {
		fmt.Fprintf(e.out, "  %d. %s\n", i+1, t)
	}
}

func countState(r doctor.Report, s doctor.State) (n int) {
	for _, f := range r.Findings {
		if f.State == s {
			n++
		}
	}
	return n
}
