package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

func newEvents(e *env) *cobra.Command {
	var rule string
	var follow bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what the gates refused just now",
		Long: `Shows the last refusals of both gates and the blocks by rules, the latest last;
with -f it goes on with those to come. Equal refusals of a quarter of a second are
one line, and at most 50 lines come of one: the rest is a line that says how many.

What it shows is sampled: exact up to about a thousand refusals a second on a CPU,
an estimate above. With -o json -f each event is one line of JSON.`,
		Example: `  headgate events --rule login
  headgate events -f -o json`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			if follow {
				return followEvents(cmd.Context(), e, rule)
			}
			return showEvents(cmd.Context(), e, rule)
		}),
	}
	cmd.Flags().StringVar(&rule, "rule", "", "of one `rule` only")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with those to come, until Ctrl-C")
	return cmd
}

func showEvents(ctx context.Context, e *env, rule string) error {
	var all daemon.Events
	if err := e.ask(ctx, http.MethodGet, "/v1/events?rule="+url.QueryEscape(rule), nil, &all); err != nil {
		return err
	}
	if done, err := e.asJSON(all); done {
		return err
	}
	for _, x := range all.Events {
		fmt.Fprintln(e.out, eventLine(x))
	}
	if len(all.Events) == 0 {
		fmt.Fprintln(e.out, "nothing was refused")
	}
	return nil
}

func followEvents(ctx context.Context, e *env, rule string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	body, _, err := e.stream(ctx, "/v1/events?follow=true&rule="+url.QueryEscape(rule))
	if err != nil {
		return err
	}
	defer body.Close()
	in := json.NewDecoder(body)
	out := json.NewEncoder(e.out)
	out.SetEscapeHTML(false)
	for {
		var x daemon.Event
		err := in.Decode(&x)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New("the daemon ended (see its log; start it: headgate run)")
		case err != nil:
			return fmt.Errorf("read the daemon's answer: %w", err)
		case e.output == "json":
			err = out.Encode(x)
		default:
			_, err = fmt.Fprintln(e.out, eventLine(x))
		}
		if err != nil {
			return err
		}
	}
}

// stream asks for an answer that has no end of its own. trailer may be read once
// the body has ended.
func (e *env) stream(ctx context.Context, path string) (body io.ReadCloser, trailer func() http.Header, err error) {
	c, err := e.client()
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://headgate"+path, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header = c.header.Clone()
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, unreachable{c.unanswered(err)}
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, nil, problem(resp)
	}
	return resp.Body, func() http.Header { return resp.Trailer }, nil
}

// eventLine writes an event on one line.
func eventLine(x daemon.Event) string {
	at := x.At.UTC().Format("15:04:05.000") + " " + x.Gate
	if x.What == daemon.EventMore {
		return fmt.Sprintf("%s: %d more, of others", at, x.Count)
	}
	line := fmt.Sprintf("%s: %s %s", at, x.Source, x.What)
	if x.Rule != "" {
		line += " by " + x.Rule
	}
	if x.What == daemon.EventBlocked {
		return line + " until " + moment(x.End)
	}
	if x.Count > 1 {
		line += fmt.Sprintf(" × %d", x.Count)
	}
	var more []string
	if x.Reason != "" {
		more = append(more, x.Reason)
	}
	if x.Gate == "network" {
		more = append(more, protocolInWords(x.Protocol, x.Port))
	} else {
		more = append(more, x.Method+" "+x.Path)
	}
	for _, f := range []struct{ name, value string }{{"user", x.User}, {"key", x.Key}, {"owner", x.Owner}, {"tenant", x.Tenant}} {
		if f.value != "" {
			more = append(more, f.name+" "+f.value)
		}
	}
	return printable(line + " (" + strings.Join(more, ", ") + ")")
}

// protocolInWords names what a packet carries.
func protocolInWords(protocol uint8, port uint16) string {
	name := map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6"}[protocol]
	if name == "" {
		return "protocol " + strconv.Itoa(int(protocol))
	}
	return name + "/" + strconv.Itoa(int(port))
}
