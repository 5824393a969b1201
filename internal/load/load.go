// Package load drives a proxy on loopback for the benchmarks, and is the
// upstream behind it. Both are as cheap as they can be, so that what is measured
// is the proxy: the driver's requests are bytes that were made before, and the
// upstream looks for nothing but the end of a request.
package load

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Load is what a proxy is driven with: GET requests with an API key each, the
// keys in turn.
type Load struct {
	URL         string        // http://HOST:PORT/PATH
	Keys        int           // at least 1
	Connections int           // at least 1; an open loop opens more as it needs them
	Rate        int           // requests a second of an open loop; 0: a closed one
	Warm        time.Duration // before what is measured
	For         time.Duration // that is measured
}

// KeyHeader carries the API key.
const KeyHeader = "X-Api-Key"

// Key returns the i-th API key.
func Key(i int) string { return "key-" + strconv.Itoa(i) }

// Report is what came of a load. Answers and latencies are of the time that is
// measured, by status.
type Report struct {
	Sent      uint64            `json:"sent"` // from the beginning, all that were answered
	Answers   map[int]uint64    `json:"answers"`
	Seconds   float64           `json:"seconds"` // that were measured
	Latencies map[int]Quantiles `json:"latencies,omitempty"`
	Failed    uint64            `json:"failed"` // from the beginning, without an answer
	Failure   string            `json:"failure,omitempty"`
}

// Quantiles are of the time from a request to the end of its answer.
type Quantiles struct {
	P50  time.Duration `json:"p50"`
	P99  time.Duration `json:"p99"`
	P999 time.Duration `json:"p999"`
}

// QuantilesOf sorts list, which is not empty, and returns its quantiles: each the
// smallest that so many are not above.
func QuantilesOf(list []time.Duration) Quantiles {
	slices.Sort(list)
	at := func(perMille int) time.Duration {
		return list[max((len(list)*perMille+999)/1000-1, 0)]
	}
	return Quantiles{at(500), at(990), at(999)}
}

// Add counts what came of the same load at the same time.
func (r *Report) Add(other Report) {
	if r.Answers == nil {
		r.Answers = map[int]uint64{}
	}
	r.Sent += other.Sent
	r.Seconds = max(r.Seconds, other.Seconds)
	for status, n := range other.Answers {
		r.Answers[status] += n
	}
	r.Fail(other.Failed, other.Failure)
}

// Fail counts requests without an answer, and keeps the first reason.
func (r *Report) Fail(n uint64, why string) {
	if r.Failed += n; r.Failure == "" {
		r.Failure = why
	}
}

// Check returns an error unless all requests were answered, and at least one with
// status in the time measured.
func (r Report) Check(status int) error {
	if r.Failed > 0 {
		return fmt.Errorf("%d of %d requests failed: %s", r.Failed, r.Failed+r.Sent, r.Failure)
	}
	if r.Answers[status] == 0 {
		return fmt.Errorf("no answer with status %d: %v", status, r.Answers)
	}
	return nil
}
