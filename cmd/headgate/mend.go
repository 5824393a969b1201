package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

// mendFlags say whose buckets are meant.
type mendFlags struct {
	client, source string
	keyStdin       bool
	q              daemon.MendRequest
}

func (f *mendFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.client, "client", "", "client's `address`, at the HTTP gate; IPv6: any of its prefix")
	flags.BoolVar(&f.keyStdin, "key-stdin", false, "read an API key from standard input")
	flags.StringVar(&f.q.Owner, "owner", "", "`owner` of API keys, as the key file has it: all of his keys")
	flags.StringVar(&f.q.User, "user", "", "`user`, as the token or header has it")
	flags.StringVar(&f.q.Tenant, "tenant", "", "`tenant`, as the key file has it")
	flags.StringVar(&f.q.Why, "reason", "", "`text` kept in the history")
}

func (f *mendFlags) request(e *env, rule string) (q daemon.MendRequest, err error) {
	q = f.q
	q.Rule = rule
	for _, a := range []struct {
		flag, text string
		to         *netip.Addr
	}{{"--client", f.client, &q.Client}, {"--source", f.source, &q.Source}} {
		if a.text == "" {
			continue
		}
		if *a.to, err = netip.ParseAddr(a.text); err != nil {
			return q, badf("%s %s: give one address, such as 203.0.113.7", a.flag, a.text)
		}
	}
	if f.keyStdin {
		if q.Owner != "" {
			return q, badf("--owner and --key-stdin both name keys: leave one out")
		}
		q.Key, err = hashOfKey(e.in)
	}
	return q, err
}

func newReset(e *env) *cobra.Command {
	var f mendFlags
	cmd := &cobra.Command{
		Use:   "reset RULE",
		Short: "Forget what one client has spent under a rule",
		Long: `Forgets at once what one client, API key, owner, user or tenant has spent under a
rule: it starts full. Name all that the rule counts by. A client alone, under a rule
per key, user or tenant, is the bucket of its requests without one; a rule per total
has one bucket, and needs no name.

A rule of the network gate that counts per source takes --source. Blocks stay: see
headgate unblock.`,
		Example: `  headgate reset login --client 203.0.113.7 --reason "locked out by a test"
  headgate reset daily --owner acme
  headgate reset daily --key-stdin < key.txt
  headgate reset per-source --source 2001:db8::7`,
		Args: need("rule name"),
		RunE: work(func(cmd *cobra.Command, args []string) error {
			q, err := f.request(e, args[0])
			if err != nil {
				return err
			}
			var r daemon.MendReply
			if err := e.ask(cmd.Context(), http.MethodPost, "/v1/reset", q, &r); err != nil {
				return err
			}
			if done, err := e.asJSON(r); done {
				return err
			}
			if r.Used == 0 {
				fmt.Fprintf(e.out, "rule %s, %s: nothing was spent\n", r.Rule, r.Whom)
				return nil
			}
			fmt.Fprintf(e.out, "reset rule %s for %s%s\n", r.Rule, r.Whom, left(r))
			return nil
		}),
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.source, "source", "", "source `address`, at the network gate")
	return cmd
}

func newGrant(e *env) *cobra.Command {
	var f mendFlags
	cmd := &cobra.Command{
		Use:   "grant RULE N",
		Short: "Give one client requests back under a rule",
		Long: `Gives one client, API key, owner, user or tenant up to N requests back of what was
spent under a rule of the HTTP gate, at once: nobody gets above full. An owner's keys
get N each. To give more than the rule allows: headgate override add.`,
		Example: `  headgate grant login 2 --client 203.0.113.7
  headgate grant daily 500 --owner acme --reason "our outage"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return badf("give a rule and a number: headgate grant login 2 --client 203.0.113.7")
			}
			return nil
		},
		RunE: work(func(cmd *cobra.Command, args []string) error {
			q, err := f.request(e, args[0])
			if err != nil {
				return err
			}
			if q.Grant, err = strconv.ParseInt(args[1], 10, 64); err != nil || q.Grant < 1 {
				return badf("%s is no number of requests: give a whole one, at least 1", args[1])
			}
			var r daemon.MendReply
			if err := e.ask(cmd.Context(), http.MethodPost, "/v1/grant", q, &r); err != nil {
				return err
			}
			if done, err := e.asJSON(r); done {
				return err
			}
			if r.Is == r.Was {
				fmt.Fprintf(e.out, "rule %s, %s: nothing was spent, nothing given back%s\n", r.Rule, r.Whom, left(r))
				return nil
			}
			fmt.Fprintf(e.out, "gave %d back of rule %s to %s%s\n", r.Is-r.Was, r.Rule, r.Whom, left(r))
			return nil
		}),
	}
	f.add(cmd)
	return cmd
}

// left says how the buckets stand now.
func left(r daemon.MendReply) string {
	if r.Quota == 0 {
		return "" // the network gate
	}
	what := ""
	if r.Anonymous {
		what = ", its requests without an identity"
	}
	if r.Buckets > 1 {
		what = fmt.Sprintf(", %d buckets", r.Buckets)
	}
	return fmt.Sprintf("%s: %d of %d left (was %d)", what, r.Is, r.Quota, r.Was)
}
