package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
)

func newRule(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rule",
		Short: "Show, add and remove rules",
		Long: `Rules come from the config file and from the command line. Those of the command
line survive reload and restart; a rule of the same name in the file wins.`,
		Example: `  headgate rule ls
  headgate rule add syn-web --protocol tcp --ports 80,443 --per source --rate 200/s --burst 400
  headgate rule rm syn-web`,
		Args: cobra.NoArgs,
		RunE: work(func(*cobra.Command, []string) error {
			return badf("say what to do: rule ls, rule show NAME, rule add NAME or rule rm NAME")
		}),
	}
	cmd.AddCommand(newRuleAdd(e), newRuleRemove(e), newRuleList(e), newRuleShow(e))
	return cmd
}

func newRuleRemove(e *env) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "rm NAME",
		Short:   "Remove a rule that was added from the command line",
		Long:    "Removes a rule that was added from the command line, at once and for good.\nRules of the config are removed from the file.",
		Example: "  headgate rule rm syn-web",
		Args:    need("rule name"),
		RunE: work(func(cmd *cobra.Command, args []string) error {
			var r daemon.RuleReply
			path := "/v1/rules/" + url.PathEscape(args[0])
			if all {
				path += "?all_hosts=true"
			}
			if err := e.ask(cmd.Context(), http.MethodDelete, path, nil, &r); err != nil {
				return err
			}
			if done, err := e.asJSON(r); done {
				return err
			}
			fmt.Fprintf(e.out, "removed rule %s%s, which was: %s\n", r.Rule.Name, reached(r.Fleet), r.Rule.Text)
			e.warnFleet(r.Fleet)
			return nil
		}),
	}
	allHosts(cmd, &all)
	return cmd
}

func newRuleList(e *env) *cobra.Command {
	var unused string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List all rules, where each came from and when it was last hit",
		Long: `Lists all rules: where each came from, who added it, until when it holds, and when
it was last hit, which is to say had a packet or request to judge.

With --unused it lists the rules that nothing has hit for so long, and that were
in force all that time.`,
		Example: `  headgate rule ls -o json
  headgate rule ls --unused 30d`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			rules, err := e.rules(cmd.Context())
			if err != nil {
				return err
			}
			if unused != "" {
				d, err := config.ParseDuration(unused)
				if err != nil {
					return badf("--unused: %w", err)
				}
				before := time.Now().Add(-d)
				rules.Rules = slices.DeleteFunc(rules.Rules, func(r daemon.Rule) bool { return !unusedSince(r, before) })
			}
			if done, err := e.asJSON(rules); done {
				return err
			}
			listRules(e, rules.Rules, unused)
			return nil
		}),
	}
	cmd.Flags().StringVar(&unused, "unused", "", "only what nothing has hit for this `time`: 30d")
	return cmd
}

// unusedSince reports whether r was in force then, and hit by nothing since.
func unusedSince(r daemon.Rule, then time.Time) bool {
	since := r.Since
	if !r.At.IsZero() && r.At.After(since) {
		since = r.At
	}
	return r.Aside == "" && !since.IsZero() && !since.After(then) && !r.LastHit.After(then)
}

func listRules(e *env, rules []daemon.Rule, unused string) {
	if unused != "" && len(rules) == 0 {
		fmt.Fprintf(e.out, "every rule was hit within %s, or is younger\n", unused)
		return
	}
	rows := [][]string{{"RULE", "GATE", "MODE", "FROM", "BY", "WHY", "ENDS", "LAST HIT", "TEXT"}}
	for _, r := range rules {
		mode := r.Mode
		if r.Aside != "" {
			mode = "not in force"
		}
		rows = append(rows, []string{r.Name, r.Gate, mode, origin(r.Origin), r.By, r.Why, moment(r.End), moment(r.LastHit), r.Text})
	}
	table(e.out, rows)
	if unused == "" {
		fmt.Fprintln(e.out, "else: pass")
	}
}

func newRuleShow(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "show NAME",
		Short:   "Show one rule with its worst case and its counts",
		Example: "  headgate rule show login",
		Args:    need("rule name"),
		RunE: work(func(cmd *cobra.Command, args []string) error {
			rules, err := e.rules(cmd.Context())
			if err != nil {
				return err
			}
			for _, r := range rules.Rules {
				if r.Name != args[0] {
					continue
				}
				if done, err := e.asJSON(r); done {
					return err
				}
				showRule(e, r)
				return nil
			}
			return fmt.Errorf("no rule %q (see: headgate rule ls)", args[0])
		}),
	}
}

func showRule(e *env, r daemon.Rule) {
	from := origin(r.Origin)
	if r.By != "" {
		from += ", by " + r.By
	}
	if r.Peer.IsValid() {
		from += " at " + r.Peer.String()
	}
	if !r.At.IsZero() {
		from += ", " + moment(r.At)
	}
	rows := [][]string{{"rule", r.Name}, {"text", r.Text}, {"from", from}}
	if r.EndsIn > 0 {
		rows = append(rows, []string{"ends", moment(r.End) + ", in " + daemon.Span(r.EndsIn)})
	}
	if !r.Since.IsZero() {
		rows = append(rows, []string{"last hit", moment(r.LastHit)}, []string{"last refused", moment(r.LastRefused)}, []string{"in force since", moment(r.Since)})
	}
	if r.Why != "" {
		rows = append(rows, []string{"why", r.Why})
	}
	if r.Aside != "" {
		rows = append(rows, []string{"not in force", r.Aside})
	} else {
		rows = append(rows, []string{"gate", r.Gate}, []string{"mode", r.Mode}, []string{"worst case", r.WorstCase})
	}
	if h := r.Held; h != nil {
		rows = append(rows, []string{"memory", fmt.Sprintf("%d keys in %s of %s, %s full", h.Keys, bytesInWords(h.Bytes), bytesInWords(h.Bound), percent(h.Fill))})
	}
	if r.Counted != "" && r.Aside == "" {
		rows = append(rows, []string{"counted", r.Counted})
	}
	for _, c := range []struct {
		what string
		n    *daemon.Verdicts
	}{{"packets", r.Packets}, {"bytes", r.Bytes}, {"requests", r.Requests}} {
		if c.n != nil {
			rows = append(rows, []string{c.what, fmt.Sprintf("%d passed, %d refused, %d watched", c.n.Passed, c.n.Refused, c.n.Watched)})
		}
	}
	table(e.out, rows)
}

func (e *env) rules(ctx context.Context) (daemon.Rules, error) {
	var r daemon.Rules
	err := e.ask(ctx, http.MethodGet, "/v1/rules", nil, &r)
	return r, err
}
