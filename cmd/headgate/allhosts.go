package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

// allHosts adds the flag of that name.
func allHosts(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "all-hosts", false, "on all hosts of the fleet (see docs/fleet.md)")
}

// reached says on how many hosts a change is in force.
func reached(f *daemon.FleetReply) string {
	switch {
	case f == nil:
		return ""
	case f.Error != "":
		return " on this host"
	case f.Have == f.Hosts:
		return fmt.Sprintf(" on all hosts (%d)", f.Hosts)
	}
	return fmt.Sprintf(" on %d of %d hosts", f.Have, f.Hosts)
}

// warnFleet says where a change for all hosts is not in force yet.
func (e *env) warnFleet(f *daemon.FleetReply) {
	switch {
	case f == nil || f.Error == "" && len(f.Lacking) == 0:
	case f.Error != "":
		e.warn([]string{fmt.Sprintf("the others learn of it when the fleet is within reach: %s (headgate status tells)", f.Error)})
	default:
		e.warn([]string{"not yet on " + strings.Join(f.Lacking, " ") + " (headgate status tells)"})
	}
}

// origin says where something came from.
func origin(o daemon.Origin) string {
	if o.From == daemon.FromFleet && o.Host != "" {
		return "fleet, " + o.Host
	}
	return o.From
}

// printBoard shows how far each host of the fleet follows what holds on all.
func printBoard(e *env, b *daemon.BoardStatus) {
	if b == nil {
		return
	}
	if !b.Up {
		fmt.Fprintf(e.out, "what is added with --all-hosts does not go out or come in since %s: %s\n", moment(b.Since), b.Error)
	}
	if b.Drafts > 0 {
		fmt.Fprintf(e.out, "%d changes for all hosts wait to be posted\n", b.Drafts)
	}
	if len(b.Hosts) == 0 {
		return
	}
	fmt.Fprintf(e.out, "\nfleet %s, %d entries on all hosts:\n", b.Fleet, b.Entries)
	rows := [][]string{{"HOST", "VERSION", "REVISION", "STATE"}}
	for _, h := range b.Hosts {
		state := "in step"
		switch {
		case h.Other:
			state = "ANOTHER SECRET: it shares nothing with this host"
		case !h.Alive:
			state = "not heard of for " + daemon.Span(h.Seen/1000)
		case h.Behind > 0:
			state = fmt.Sprintf("behind by %d ms", h.Behind)
		}
		if h.Self {
			state += " (this host)"
		}
		rows = append(rows, []string{h.Name, h.Version, revision(h.Revision), state})
	}
	table(e.out, rows)
}

// revision writes a version as the moment that it is.
func revision(v int64) string {
	if v == 0 {
		return "-"
	}
	return time.UnixMicro(v).UTC().Format("2006-01-02T15:04:05.000000Z")
}
