package main

import (
	"context"
	"net/http"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/headgate/headgate/internal/load"
)

const (
	// patience is how long one answer may take.
	patience = 10 * time.Second
	// mostOpen bounds the connections, all of which are kept: with fewer kept a
	// proxy that is slow for a moment is met by a storm of new ones, and never
	// recovers.
	mostOpen = 256
)

// open drives l in an open loop: requests begin at a fixed rate however slow the
// answers are, on as many connections as that takes. A closed loop would ask less
// while the proxy is slow, and so miss most of what is slow. With all connections
// busy it falls behind, which its report shows.
func open(ctx context.Context, l load.Load) (load.Report, error) {
	targets := make([]vegeta.Target, l.Keys)
	for i := range targets {
		targets[i] = vegeta.Target{Method: http.MethodGet, URL: l.URL, Header: http.Header{load.KeyHeader: {load.Key(i)}}}
	}
	attacker := vegeta.NewAttacker(
		vegeta.Connections(mostOpen), vegeta.Workers(uint64(l.Connections)), vegeta.MaxWorkers(mostOpen),
		vegeta.Timeout(patience), vegeta.Redirects(vegeta.NoFollow), vegeta.HTTP2(false),
	)
	defer context.AfterFunc(ctx, func() { attacker.Stop() })()
	answers := attacker.Attack(vegeta.NewStaticTargeter(targets...), vegeta.Rate{Freq: l.Rate, Per: time.Second}, l.Warm+l.For, "")

	r := load.Report{Answers: map[int]uint64{}, Latencies: map[int]load.Quantiles{}}
	latencies := map[int][]time.Duration{}
	var begin, first, last time.Time
	for a := range answers {
		if begin.IsZero() || a.Timestamp.Before(begin) {
			begin = a.Timestamp
		}
		if a.Code == 0 {
			r.Fail(1, a.Error)
			continue
		}
		r.Sent++
		if a.Timestamp.Sub(begin) < l.Warm {
			continue
		}
		if first.IsZero() || a.Timestamp.Before(first) {
			first = a.Timestamp
		}
		if a.Timestamp.After(last) {
			last = a.Timestamp
		}
		status := int(a.Code)
		r.Answers[status]++
		latencies[status] = append(latencies[status], a.Latency)
	}
	r.Seconds = last.Sub(first).Seconds()
	for status, list := range latencies {
		r.Latencies[status] = load.QuantilesOf(list)
	}
	return r, ctx.Err()
}
