package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

func newOverride(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "override",
		Short: "Give some of a rule's clients other figures",
		Long: `An override gives some of a rule's clients other figures, at once, and keeps what
they have spent. Those of the command line survive reload and restart, stand before
the rule's own, the latest first, and end by themselves.`,
		Example: `  headgate override add daily --owner acme --quota 500000/day --until 2027-03-31 --reason "contract 88"
  headgate override ls
  headgate override rm daily --owner acme`,
		Args: cobra.NoArgs,
		RunE: work(func(*cobra.Command, []string) error {
			return badf("say what to do: override ls, override add RULE or override rm RULE")
		}),
	}
	cmd.AddCommand(newOverrideAdd(e), newOverrideRemove(e), newOverrideList(e))
	return cmd
}

// whomFlags say whom an override is for.
type whomFlags struct {
	daemon.Whom
	keyStdin bool
}

func (f *whomFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Owner, "owner", "", "`owner` of the API key, as the key file has it")
	flags.StringVar(&f.Tenant, "tenant", "", "`tenant` of the API key, as the key file has it")
	flags.StringVar(&f.User, "user", "", "`name` of the user, as the token or the declared proxy has it")
	flags.StringVar(&f.Plan, "plan", "", "`plan` of the API key, as the key file has it")
	flags.StringVar(&f.Key, "key", "", "how the API key's SHA-256 begins: 8 hex `digits` or more")
	flags.BoolVar(&f.keyStdin, "key-stdin", false, "read the API key itself from standard input; only its hash is kept")
	flags.StringSliceVar(&f.From, "from", nil, "`prefixes` of clients")
}

func (f *whomFlags) read(in io.Reader) (daemon.Whom, error) {
	if !f.keyStdin {
		return f.Whom, nil
	}
	if f.Key != "" {
		return f.Whom, badf("--key and --key-stdin name the key twice: leave one out")
	}
	var err error
	f.Key, err = hashOfKey(in)
	return f.Whom, err
}

// hashOfKey reads an API key, one line, and returns its SHA-256 in hex.
func hashOfKey(in io.Reader) (string, error) {
	const longest = 512
	line, err := bufio.NewReader(io.LimitReader(in, longest+2)).ReadString('\n')
	key := strings.TrimSpace(line)
	switch {
	case err != nil && err != io.EOF:
		return "", badf("read the key: %w", err)
	case key == "" || len(key) > longest:
		return "", badf("the key on standard input has %d bytes: give one of 1 to %d on one line", len(key), longest)
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:]), nil
}

func newOverrideAdd(e *env) *cobra.Command {
	var q daemon.OverrideRequest
	var whom whomFlags
	cmd := &cobra.Command{
		Use:   "add RULE",
		Short: "Give some of a rule's clients other figures",
		Long: `Gives those of a rule's clients that all of --owner, --tenant, --plan, --user, --key
and --from fit other figures, at once: the bucket and what was spent stay. The figures are of the
rule's own kind: a rate, a limit in the same window, or a quota of the same period.
An override for the same as before takes its place.

--until is the last day, in the time zone of the rule's quota, else in UTC, or a
moment.`,
		Example: `  headgate override add daily --owner acme --quota 500000/day --until 2027-03-31 --reason "contract 88"
  headgate override add search --user alice --limit 500/min --reason "report at quarter's end"
  headgate override add api --tenant shop --plan trial --rate 50/s
  headgate override add login --from 192.0.2.0/24 --limit 50/min --reason "load test" --until 2027-01-12T18:00:00Z
  headgate override add api --key-stdin --rate 500/s < key.txt`,
		Args: need("rule name"),
		RunE: work(func(cmd *cobra.Command, args []string) error {
			var err error
			q.Rule = args[0]
			if q.Whom, err = whom.read(e.in); err != nil {
				return err
			}
			var r daemon.OverrideReply
			if err := e.ask(cmd.Context(), http.MethodPost, "/v1/overrides", q, &r); err != nil {
				return err
			}
			if done, err := e.asJSON(r); done {
				return err
			}
			if r.Was == "" {
				fmt.Fprintf(e.out, "added override of %s: %s\n", r.Override.Rule, r.Override.Text)
			} else {
				fmt.Fprintf(e.out, "changed override of %s: %s\n  was: %s\n", r.Override.Rule, r.Override.Text, r.Was)
			}
			if r.Override.EndsIn > 0 {
				fmt.Fprintf(e.out, "  ends in %s, at %s\n", daemon.Span(r.Override.EndsIn), moment(r.Override.End))
			} else {
				fmt.Fprintln(e.out, "  without an end (say --until to give it one)")
			}
			if r.Fleet != nil {
				fmt.Fprintf(e.out, "  in force%s\n", reached(r.Fleet))
			}
			e.warn(r.Warnings)
			e.warnFleet(r.Fleet)
			return nil
		}),
	}
	whom.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&q.Rate, "rate", "", "long-term `rate`, where the rule has one: 200/s")
	flags.StringVar(&q.Burst, "burst", "", "how much may come `at once` after idleness, with --rate")
	flags.StringVar(&q.Limit, "limit", "", "at most so many `in any window`, where the rule has a limit: 50/min")
	flags.StringVar(&q.Quota, "quota", "", "so many in a `period`, where the rule has a quota: 500000/day")
	flags.StringVar(&q.Until, "until", "", "last `day`, or moment: 2027-03-31; without it there is no end")
	flags.StringVar(&q.Why, "reason", "", "`text` kept with it")
	allHosts(cmd, &q.AllHosts)
	flags.BoolVar(&q.Force, "force", false, "even where it may stop your own session")
	return cmd
}

func newOverrideRemove(e *env) *cobra.Command {
	var whom whomFlags
	var all bool
	cmd := &cobra.Command{
		Use:     "rm RULE",
		Short:   "End an override that was added from the command line",
		Long:    "Ends an override at once: the rule's own figures hold again, with what was spent.\nIt is named by whom it is for.",
		Example: "  headgate override rm daily --owner acme",
		Args:    need("rule name"),
		RunE: work(func(cmd *cobra.Command, args []string) error {
			w, err := whom.read(e.in)
			if err != nil {
				return err
			}
			query := url.Values{"rule": args, "from": w.From}
			for key, v := range map[string]string{"owner": w.Owner, "tenant": w.Tenant, "plan": w.Plan, "user": w.User, "key": w.Key} {
				if v != "" {
					query.Set(key, v)
				}
			}
			if all {
				query.Set("all_hosts", "true")
			}
			var r daemon.OverrideReply
			if err := e.ask(cmd.Context(), http.MethodDelete, "/v1/overrides?"+query.Encode(), nil, &r); err != nil {
				return err
			}
			if done, err := e.asJSON(r); done {
				return err
			}
			fmt.Fprintf(e.out, "removed override of %s%s, which was: %s\n", r.Override.Rule, reached(r.Fleet), r.Override.Text)
			e.warnFleet(r.Fleet)
			return nil
		}),
	}
	whom.add(cmd)
	allHosts(cmd, &all)
	return cmd
}

func newOverrideList(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List the overrides that were added from the command line",
		Long:    "Lists the overrides that were added from the command line, those first that count\nfirst. Those of the config stand in the rules: headgate rule show RULE.",
		Example: "  headgate override ls -o json",
		Args:    cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			var all daemon.Overrides
			if err := e.ask(cmd.Context(), http.MethodGet, "/v1/overrides", nil, &all); err != nil {
				return err
			}
			if done, err := e.asJSON(all); done {
				return err
			}
			if len(all.Overrides) == 0 {
				fmt.Fprintln(e.out, "none (those of the config: headgate rule show RULE)")
				return nil
			}
			rows := [][]string{{"RULE", "OVERRIDE", "BY", "WHY", "ENDS", ""}}
			for _, o := range all.Overrides {
				aside := ""
				if o.Aside != "" {
					aside = "not in force: " + o.Aside
				}
				rows = append(rows, []string{o.Rule, o.Text, o.By, o.Why, moment(o.End), aside})
			}
			table(e.out, rows)
			return nil
		}),
	}
}
