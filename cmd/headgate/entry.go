package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
)

// list is one of the two lists of prefixes, with the words for it.
type list struct{ path, done, undone, undo, lasts string }

var (
	blockList = list{"/v1/blocks", "blocked", "unblocked", "unblock", "stays blocked"}
	allowList = list{"/v1/allows", "allowed", "no longer allowed", "disallow", "stays allowed"}
)

// defaultSpan is how long an entry lasts when nobody says: one that is
// forgotten should not be there next year.
const defaultSpan = time.Hour

// longList is the help of blocks and of allows.
func longList(done string) string {
	return "Lists what is " + done + `, until when, by whom and why.

With the daemon dead it lists what the network gate goes on with, read from the
pinned maps, and says so on standard error.`
}

// entryFlags are the flags of block and allow.
type entryFlags struct {
	span, reason string
	ever, force  bool
	all          bool // hosts
	file         string
	skipBad      bool
}

func (f *entryFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.span, "for", "", "how `long`: 90s, 10m, 2h, 7d")
	cmd.Flags().BoolVar(&f.ever, "forever", false, "without an end")
	allHosts(cmd, &f.all)
	cmd.Flags().StringVar(&f.reason, "reason", "", "`text` kept with it; other reasons for the same prefix stand beside it")
}

// put adds one prefix to the list.
func (l list) put(ctx context.Context, e *env, arg string, f entryFlags) error {
	p, err := config.ParsePrefix(arg)
	if err != nil {
		return badInput{err}
	}
	q := daemon.EntryRequest{Prefix: p, Ever: f.ever, Reason: f.reason, Force: f.force, Peer: sshPeer(e), AllHosts: f.all}
	var note string
	if q.For, note, err = f.lasting(); err != nil {
		return err
	}
	var r daemon.EntryReply
	if err := e.ask(ctx, http.MethodPost, l.path, q, &r); err != nil {
		return err
	}
	if done, err := e.asJSON(r); done {
		return err
	}
	fmt.Fprintf(e.out, "%s %s %s%s%s\n", l.done, address(p), lasting(r.Entry), reached(r.Fleet), note)
	if r.Sources > 0 {
		fmt.Fprintf(e.out, "  covers %s seen in the last minute, %d vouched for; undo: headgate %s %s%s\n", plural(r.Sources, "source"), r.Vouched, l.undo, address(p), map[bool]string{true: " --all-hosts"}[f.all])
	}
	e.warnFleet(r.Fleet)
	e.warn(r.Warnings)
	return nil
}

// lasting returns for how many seconds, 0 for ever, and what to say about it.
func (f *entryFlags) lasting() (seconds int64, note string, err error) {
	switch {
	case f.ever && f.span != "":
		return 0, "", badf("--for and --forever exclude each other")
	case f.span != "":
		d, err := config.ParseDuration(f.span)
		if err != nil {
			return 0, "", badf("--for: %w", err)
		}
		return int64((d + time.Second - 1) / time.Second), "", nil
	case f.ever:
		return 0, "", nil
	}
	return int64(defaultSpan / time.Second), " (say --for or --forever to choose)", nil
}

// lasting says how long x lasts.
func lasting(x daemon.Entry) string {
	if x.EndsIn == 0 {
		return "for ever"
	}
	return fmt.Sprintf("for %s, until %s", daemon.Span(x.EndsIn), moment(x.End))
}

// sshPeer is where whoever types sits, by what sshd left in the environment.
func sshPeer(e *env) netip.Addr {
	first, _, _ := strings.Cut(e.inherit("SSH_CONNECTION"), " ")
	a, _ := netip.ParseAddr(first)
	return a.WithZone("")
}

// take removes the entries of one prefix from the list.
func (l list) take(cmd *cobra.Command, e *env, arg, reason string, force, all bool) error {
	p, err := config.ParsePrefix(arg)
	if err != nil {
		return badInput{err}
	}
	q := url.Values{"prefix": {p.String()}}
	if cmd.Flags().Changed("reason") {
		q.Set("reason", reason)
	}
	if force {
		q.Set("force", "true")
	}
	if all {
		q.Set("all_hosts", "true")
	}
	var r daemon.EntryReply
	if err := e.ask(cmd.Context(), http.MethodDelete, l.path+"?"+q.Encode(), nil, &r); err != nil {
		return err
	}
	if done, err := e.asJSON(r); done {
		return err
	}
	defer e.warnFleet(r.Fleet)
	if len(r.Covered) == 0 {
		fmt.Fprintf(e.out, "%s %s%s\n", l.undone, address(p), reached(r.Fleet))
		return nil
	}
	by := r.Covered[0]
	fmt.Fprintf(e.out, "removed %d of %s, which %s: covered by %s %s\n", r.Removed, address(p), l.lasts, by.Prefix, lasting(by))
	return nil
}

// pinned is the list without a daemon, as the network gate holds it.
func (l list) pinned(e *env, dead error) ([]daemon.Entry, error) {
	p, err := e.pinned(dead)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(e.err, "headgate: %v; this is what the network gate goes on with, from the pins in %s\n", dead, e.pins(""))
	if l.path == allowList.path {
		return p.Allows, nil
	}
	return p.Blocks, nil
}

// show prints the list.
func (l list) show(ctx context.Context, e *env) error {
	var r daemon.Entries
	err := e.ask(ctx, http.MethodGet, l.path, nil, &r)
	if errors.Is(err, errNoDaemon) {
		r.Entries, err = l.pinned(e, err)
	}
	if err != nil {
		return err
	}
	if done, err := e.asJSON(r); done {
		return err
	}
	if len(r.Entries) == 0 {
		fmt.Fprintf(e.out, "nothing is %s\n", l.done)
		return nil
	}
	rows := [][]string{{"PREFIX", "ENDS", "IN", "FROM", "BY", "REASON"}}
	for _, x := range r.Entries {
		in := ""
		if x.EndsIn > 0 {
			in = daemon.Span(x.EndsIn)
		}
		rows = append(rows, []string{address(x.Prefix), moment(x.End), in, origin(x.Origin), x.By, x.Reason})
	}
	table(e.out, rows)
	return nil
}
