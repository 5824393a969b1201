package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
)

// ruleFlags are the flags of `rule add`; each is the key of its name.
type ruleFlags struct {
	protocol, rate, burst, limit, algorithm, mode, gate string
	ports, per, method, path, host                      []string
	why, file, span                                     string
	force, all                                          bool

	// network gate
	from, to, except, sourcePorts, icmpTypes, vlan, iface []string
	tcpFlags, unknown, thenBlock, thenAfter               string
	override                                              []string

	// HTTP gate
	quota, zone, anchor, soft, memory string
	header                            map[string]string
	identity, plan                    []string
	anonymous, scope, outage          string
	countRefused                      bool
}

func newRuleAdd(e *env) *cobra.Command {
	var f ruleFlags
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a rule, or replace the one of that name",
		Long: `Adds a rule at once, without touching the config file; it survives reload and
restart. The flags are the keys of a rule in the config. A rule of the same name
that was added before is replaced and keeps its counts, unless what it counts
by changes.

With --mode watch it counts what it would refuse and refuses nothing.

A rule with --for is removed at its end by the daemon; while that is dead, the
rule stays. A rule of the network gate that would stop your own SSH session needs
--force: one whose bucket you would share with strangers, or one too slow to type
in. Sessions from network.management, and from what is allowed, pass all rules.`,
		Example: `  headgate rule add syn-web --protocol tcp --ports 80,443 --per source --rate 200/s --burst 400
  headgate rule add udp --protocol udp --per total --rate 50000/s --for 2h --why "ticket 81"
  headgate rule add drip --from 203.0.113.0/24 --protocol udp --per source/24,56 --rate 100/s --then-block 60s --then-after 100/1s
  headgate rule add login --method POST --path /login --per client --limit 5/min
  headgate rule add daily --per key --quota 1000/day --time-zone America/Sao_Paulo
  headgate rule add search --path '/search/**' --per key --rate 10/s --mode watch --why "ticket 81"
  headgate rule add cap --path '/organizations/**' --per total --rate 200/s --gate http --all-hosts --for 30m
  headgate rule add bots --header User-Agent='curl/*' --identity none --per client --rate 1/s
  echo '{name: login, match: {path: /login}, per: client, limit: 5/min}' | headgate rule add --file -`,
		Args: cobra.MaximumNArgs(1),
		RunE: work(func(cmd *cobra.Command, args []string) error {
			r, err := f.rule(e.in, args)
			if err != nil {
				return err
			}
			q := daemon.RuleRequest{Rule: r.Text, Why: f.why, Force: f.force, AllHosts: f.all}
			if f.span != "" {
				d, err := config.ParseDuration(f.span)
				if err != nil {
					return badf("--for: %w", err)
				}
				q.For = int64((d + time.Second - 1) / time.Second)
			}
			return addRule(cmd.Context(), e, q)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.protocol, "protocol", "", "tcp, udp, icmp, icmpv6, sctp, gre, esp, ah or a number")
	flags.StringSliceVar(&f.ports, "ports", nil, "destination `ports` or ranges, with tcp or udp: 80,443,8000-8010")
	flags.StringArrayVar(&f.per, "per", nil, "whom a bucket belongs to: source, source/24,56, destination, client, key, total")
	flags.StringSliceVar(&f.from, "from", nil, "source `prefixes` or names of lists")
	flags.StringSliceVar(&f.to, "to", nil, "destination `prefixes` or names of lists")
	flags.StringSliceVar(&f.except, "except", nil, "source `prefixes` or names of lists that the rule does not apply to")
	flags.StringSliceVar(&f.sourcePorts, "source-ports", nil, "source `ports` or ranges, with tcp or udp")
	flags.StringVar(&f.tcpFlags, "flags", "", "TCP `flags`: syn, rst, syn+!ack")
	flags.StringSliceVar(&f.icmpTypes, "icmp-types", nil, "`types`, with icmp or icmpv6: echo-request,13")
	flags.StringSliceVar(&f.vlan, "vlan", nil, "VLAN `ids`")
	flags.StringSliceVar(&f.iface, "interface", nil, "interface `names`")
	flags.StringVar(&f.unknown, "unknown", "", "`rate` that sources without a bucket take together")
	flags.StringVar(&f.thenBlock, "then-block", "", "block a source for this `time` once it was refused --then-after")
	flags.StringVar(&f.thenAfter, "then-after", "", "so many refusals: `100/1s`")
	flags.StringArrayVar(&f.override, "override", nil, "other figures for some sources: `'{from: 192.0.2.0/24, rate: 1000/s}'`; may be repeated")
	flags.StringVar(&f.rate, "rate", "", "long-term `rate`: 200/s, 5/min, 2Mbit/s")
	flags.StringVar(&f.burst, "burst", "", "how much may come `at once` after idleness")
	flags.StringVar(&f.limit, "limit", "", "at most so many `in any window`: 5/min")
	flags.StringVar(&f.algorithm, "algorithm", "", "token-bucket, sliding-log, sliding-counter or fixed-window")
	flags.StringVar(&f.quota, "quota", "", "so many in each day, week or month of the `calendar`: 1000/day")
	flags.StringVar(&f.zone, "time-zone", "", "of a quota: a `name` of the IANA database, America/Sao_Paulo")
	flags.StringVar(&f.anchor, "anchor", "", "the `day` on which a quota's month or week begins: 15, sunday")
	flags.StringVar(&f.soft, "soft", "", "how many `percent` above the limit pass and are marked: 10%")
	flags.BoolVar(&f.countRefused, "count-refused", false, "charge what is refused too: asking on keeps a client out")
	flags.StringVar(&f.memory, "memory", "", "most `memory` that the rule's buckets take: 16MiB")
	flags.StringSliceVar(&f.method, "method", nil, "HTTP methods")
	flags.StringArrayVar(&f.path, "path", nil, "path, path with {names}, or subtree /x/**; may be repeated")
	flags.StringSliceVar(&f.host, "host", nil, "host names; *.example.com is any below it")
	flags.StringToStringVar(&f.header, "header", nil, "a header that a request must have: `name=value`, or the value's start and *; may be repeated")
	flags.StringSliceVar(&f.identity, "identity", nil, "what the request tells of who asks: none, claimed, verified or user")
	flags.StringSliceVar(&f.plan, "plan", nil, "`plans` of API keys")
	flags.StringVar(&f.anonymous, "anonymous", "", "figures for requests without identity: `'{per: client, limit: 20/min}'`")
	flags.StringVar(&f.scope, "scope", "", "where it is counted, in a fleet: `host`, fleet or exact")
	flags.StringVar(&f.outage, "outage", "", "what it does without the fleet: `share`, open or closed")
	flags.StringVar(&f.mode, "mode", "", "enforce or watch")
	flags.StringVar(&f.gate, "gate", "", "network or http, where the rest does not tell")
	flags.StringVar(&f.span, "for", "", "how `long`: 90s, 10m, 2h, 7d; without it there is no end")
	allHosts(cmd, &f.all)
	flags.BoolVar(&f.force, "force", false, "even where it may stop your own session")
	flags.StringVar(&f.why, "why", "", "`text` kept with the rule")
	flags.StringVar(&f.file, "file", "", "read the rule from a `file` (- is standard input) instead of flags")
	return cmd
}

// rule makes the rule that flags or file describe.
func (f *ruleFlags) rule(in io.Reader, args []string) (config.Rule, error) {
	if f.file != "" {
		return f.fromFile(in, args)
	}
	if len(args) != 1 {
		return config.Rule{}, badf("name the rule: headgate rule add NAME --per client --limit 5/min")
	}
	r, err := config.ParseRule("rule add", f.mapping(args[0]))
	var list config.Errors
	if errors.As(err, &list) {
		// Positions in what the flags were made into help nobody.
		var lines []string
		for _, e := range list {
			lines = append(lines, e.Msg)
		}
		err = errors.New(strings.Join(lines, "\n"))
	}
	if err != nil {
		return r, badInput{err}
	}
	return r, nil
}

func (f *ruleFlags) fromFile(in io.Reader, args []string) (config.Rule, error) {
	name, read := f.file, func() ([]byte, error) { return os.ReadFile(f.file) }
	if f.file == "-" {
		name, read = "standard input", func() ([]byte, error) { return io.ReadAll(in) }
	}
	data, err := read()
	if err != nil {
		return config.Rule{}, badf("read rule: %w", err)
	}
	r, err := config.ParseRule(name, data)
	if err != nil {
		return r, badInput{err}
	}
	if len(args) == 1 && args[0] != r.Name {
		return r, badf("the rule is called %s in %s and %s in the command: leave one out", r.Name, name, args[0])
	}
	return r, nil
}

// mapping writes the flags as the mapping that the config would hold.
func (f *ruleFlags) mapping(name string) []byte {
	var match, top pairs
	match.list("from", f.from)
	match.list("to", f.to)
	match.list("except", f.except)
	match.text("protocol", f.protocol)
	match.list("ports", f.ports)
	match.list("source_ports", f.sourcePorts)
	match.text("flags", f.tcpFlags)
	match.list("icmp_types", f.icmpTypes)
	match.list("vlan", f.vlan)
	match.list("interfaces", f.iface)
	match.list("method", f.method)
	match.list("path", f.path)
	match.list("host", f.host)
	var headers pairs
	for _, name := range slices.Sorted(maps.Keys(f.header)) {
		headers.text(name, f.header[name])
	}
	if len(headers) > 0 {
		match = append(match, `"headers":`+headers.String())
	}
	match.list("identity", f.identity)
	match.list("plan", f.plan)
	top.text("name", name)
	top.text("gate", f.gate)
	if len(match) > 0 {
		top = append(top, `"match":`+match.String())
	}
	top.list("per", f.pers())
	top.text("rate", f.rate)
	top.text("burst", f.burst)
	top.text("limit", f.limit)
	top.text("algorithm", f.algorithm)
	top.text("quota", f.quota)
	top.text("time_zone", f.zone)
	top.text("anchor", f.anchor)
	top.text("soft", f.soft)
	top.text("memory", f.memory)
	if f.countRefused {
		top = append(top, `"count_refused":true`)
	}
	if f.anonymous != "" {
		top = append(top, `"anonymous":`+f.anonymous)
	}
	top.text("scope", f.scope)
	top.text("outage", f.outage)
	top.text("mode", f.mode)
	top.text("unknown", f.unknown)
	var then pairs
	then.text("block", f.thenBlock)
	then.text("after", f.thenAfter)
	if len(then) > 0 {
		top = append(top, `"then":`+then.String())
	}
	if len(f.override) > 0 {
		top = append(top, `"overrides":[`+strings.Join(f.override, ",")+"]")
	}
	return []byte(top.String())
}

// pers splits lists at commas, but not source/24,56.
func (f *ruleFlags) pers() (all []string) {
	for _, v := range f.per {
		if strings.HasPrefix(v, "source/") {
			all = append(all, v)
		} else {
			all = append(all, strings.Split(v, ",")...)
		}
	}
	return all
}

// pairs are the members of a JSON object, which is YAML too.
type pairs []string

func (p *pairs) text(key, v string) {
	if v != "" {
		*p = append(*p, fmt.Sprintf("%q:%s", key, scalar(v)))
	}
}

func (p *pairs) list(key string, v []string) {
	switch len(v) {
	case 0:
	case 1:
		if key != "ports" {
			p.text(key, v[0])
			return
		}
		fallthrough
	default:
		var items []string
		for _, s := range v {
			items = append(items, scalar(s))
		}
		*p = append(*p, fmt.Sprintf("%q:[%s]", key, strings.Join(items, ",")))
	}
}

func (p pairs) String() string { return "{" + strings.Join(p, ",") + "}" }

var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// scalar writes v as a number where it is one, else as a quoted word.
func scalar(v string) string {
	if number.MatchString(v) {
		return v
	}
	word, _ := json.Marshal(v)
	return string(word)
}

func addRule(ctx context.Context, e *env, q daemon.RuleRequest) error {
	var reply daemon.RuleReply
	if err := e.ask(ctx, http.MethodPost, "/v1/rules", q, &reply); err != nil {
		return err
	}
	if done, err := e.asJSON(reply); done {
		return err
	}
	switch {
	case reply.Was == "":
		fmt.Fprintf(e.out, "added rule %s: %s\n", reply.Rule.Name, reply.Rule.Text)
	case reply.Was == reply.Rule.Text && reply.Rule.EndsIn == 0:
		fmt.Fprintf(e.out, "rule %s was there already\n", reply.Rule.Name)
	default:
		fmt.Fprintf(e.out, "changed rule %s: %s\n  was: %s\n", reply.Rule.Name, reply.Rule.Text, reply.Was)
	}
	if reply.Fresh {
		fmt.Fprintln(e.out, "  it counts by something else now: all its buckets start full")
	}
	if reply.Rule.EndsIn > 0 {
		fmt.Fprintf(e.out, "  ends in %s, at %s\n", daemon.Span(reply.Rule.EndsIn), moment(reply.Rule.End))
	} else {
		fmt.Fprintln(e.out, "  without an end (say --for to give it one; `headgate rule ls --unused 30d` finds what is forgotten)")
	}
	fmt.Fprintf(e.out, "  worst case: %s\n", reply.Rule.WorstCase)
	if reply.Fleet != nil {
		fmt.Fprintf(e.out, "  in force%s\n", reached(reply.Fleet))
	}
	e.warn(reply.Warnings)
	e.warnFleet(reply.Fleet)
	return nil
}
