package daemon

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/heavy"
)

const (
	// summaryEvery is how often what was refused meanwhile is logged, in one line
	// for all of it; nothing else is logged of a packet or a request.
	summaryEvery = time.Minute
	// summaryRules bounds the rules that the line names.
	summaryRules = 5
)

// refusals counts what the gates have refused since some time in the past.
type refusals struct {
	packets  map[string]uint64 // by reason
	requests uint64
	rules    map[string]uint64 // packets or requests
}

// refusalsOf reads them from a snapshot.
func refusalsOf(s Status) refusals {
	r := refusals{packets: map[string]uint64{}, rules: map[string]uint64{}}
	for _, x := range s.Network.Reasons {
		if x.Verdict == "drop" {
			r.packets[x.Reason] += x.Packets
		}
	}
	r.requests = s.HTTP.Answers[strconv.Itoa(http.StatusTooManyRequests)]
	for _, rule := range s.Rules {
		for _, v := range []*Verdicts{rule.Packets, rule.Requests} {
			if v != nil && v.Refused > 0 {
				r.rules[rule.Name] += v.Refused
			}
		}
	}
	return r
}

// since is what came to r after old. A counter that went back began anew.
func (r refusals) since(old refusals) refusals {
	return refusals{packets: risen(r.packets, old.packets), requests: rise(r.requests, old.requests), rules: risen(r.rules, old.rules)}
}

func risen(now, old map[string]uint64) map[string]uint64 {
	up := map[string]uint64{}
	for name, n := range now {
		if d := rise(n, old[name]); d > 0 {
			up[name] = d
		}
	}
	return up
}

func rise(now, old uint64) uint64 {
	if now < old {
		return now
	}
	return now - old
}

// attrs are what the log line says, nil if nothing was refused.
func (r refusals) attrs() []any {
	packets := uint64(0)
	for _, n := range r.packets {
		packets += n
	}
	if packets == 0 && r.requests == 0 {
		return nil
	}
	line := []any{"packets", packets}
	if packets > 0 {
		line = append(line, "reasons", ranked(r.packets))
	}
	line = append(line, "requests", r.requests)
	if len(r.rules) > 0 {
		line = append(line, "rules", ranked(r.rules))
	}
	return line
}

// ranked names the largest counts, the largest first.
func ranked(counts map[string]uint64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	var words []string
	for _, name := range names[:min(len(names), summaryRules)] {
		words = append(words, fmt.Sprintf("%s %d", name, counts[name]))
	}
	if more := len(names) - summaryRules; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}

// summarize logs what was refused, once in summaryEvery while anything is and
// once more at the end.
func (d *daemon) summarize(ctx context.Context) error {
	old, began := refusalsOf(d.snapshot(ctx)), d.now()
	for ctx.Err() == nil {
		pause(ctx, summaryEvery)
		now, at := refusalsOf(d.snapshot(context.WithoutCancel(ctx))), d.now()
		if line := now.since(old).attrs(); line != nil {
			line = append(line, d.offenders(context.WithoutCancel(ctx))...)
			d.log.Info("refused", append([]any{"in", at.Sub(began).Round(time.Second)}, line...)...)
		}
		old, began = now, at
	}
	return nil
}

// offenders are who was refused most in the last minute, for the log line.
func (d *daemon) offenders(ctx context.Context) (line []any) {
	sources, clients := map[string]uint64{}, map[string]uint64{}
	for _, r := range d.top(ctx, heavy.Window, mostTop).Rows {
		into := sources
		if r.Gate == string(config.GateHTTP) {
			into = clients
		}
		name := r.whom()
		if _, known := into[name]; r.Refused > 0 && (known || len(into) < summaryRules) {
			into[name] += r.Refused
		}
	}
	if len(sources) > 0 {
		line = append(line, "sources", ranked(sources))
	}
	if len(clients) > 0 {
		line = append(line, "clients", ranked(clients))
	}
	return line
}

// whom is a row's subject in few words.
func (r TopRow) whom() string {
	switch {
	case r.User != "":
		return "user " + r.User
	case r.Key != "":
		return "key " + r.Key
	case r.Tenant != "":
		return "tenant " + r.Tenant
	case r.Source.IsValid():
		return short4(r.Source)
	}
	return "everyone"
}
