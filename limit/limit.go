package limit

import (
	"fmt"
	"math"
	"time"
)

// Algorithm says how a Limit counts.
type Algorithm uint8

const (
	TokenBucket    Algorithm = iota // Bucket
	SlidingLog                      // Log
	SlidingCounter                  // Counter
)

// MaxLog is the largest limit that a sliding log is kept for: it holds 8 bytes
// an admission for each client.
const MaxLog = 10_000

// Limit is what a bucket key is held to: an algorithm and its figures. It is
// never changed once made.
type Limit struct {
	algorithm Algorithm
	quota     int64 // how much may come at once
	cost      Ticks // token bucket: of one request
	burst     Ticks // token bucket: tolerance
	window    Ticks
}

// NewRate returns a token bucket of amount requests per interval and burst
// requests at once. Its errors are those of NewFigures.
func NewRate(amount int64, interval time.Duration, burst int64) (Limit, error) {
	f, err := NewFigures(amount, interval, burst, false)
	if err != nil {
		return Limit{}, err
	}
	return Limit{algorithm: TokenBucket, quota: burst, cost: f.Cost(1), burst: f.Burst, window: f.Burst}, nil
}

// NewWindow returns a limit of n requests, at least 1, in any window of the
// given length, from 1 ns to a year. SlidingLog takes n up to MaxLog.
func NewWindow(a Algorithm, n int64, window time.Duration) (Limit, error) {
	switch {
	case n < 1:
		return Limit{}, fmt.Errorf("limit %d: the smallest is 1", n)
	case window < 1 || window > year:
		return Limit{}, fmt.Errorf("window %v: give one from 1ns to a year", window)
	case a == SlidingLog && n > MaxLog:
		return Limit{}, fmt.Errorf("limit %d is too large for a sliding log: up to %d, or use sliding-counter", n, MaxLog)
	case a == SlidingCounter && n > math.MaxUint32:
		return Limit{}, fmt.Errorf("limit %d is too large for a sliding counter: up to %d", n, uint32(math.MaxUint32))
	case a != SlidingLog && a != SlidingCounter:
		return Limit{}, fmt.Errorf("a window is counted by sliding log or sliding counter, not by algorithm %d", a)
	}
	return Limit{algorithm: a, quota: n, window: FromDuration(window)}, nil
}

// Quota returns how many requests may come at once after idleness: the burst,
// or the limit.
func (l *Limit) Quota() int64 { return l.quota }

// Window returns the time in which the quota is restored after it was used up:
// of a token bucket, that of refilling it from empty.
func (l *Limit) Window() time.Duration { return ToDuration(l.window) }

// Answer is how a bucket key stands after a decision.
type Answer struct {
	Wait      Ticks // until one more request fits; 0: it fits now
	Remaining int64 // how many fit now, 0 to Quota
	Reset     Ticks // until nothing is charged any more
}

// state is what is kept for one bucket key. Moments given to it may run
// backwards a little: callers read the clock before they get their turn.
type state interface {
	wait(now Ticks, l *Limit) Ticks // until one request fits
	charge(now Ticks, l *Limit)     // one request; wait was 0 at the same moment
	answer(now Ticks, l *Limit) Answer
}

// kept is a state as its table sees it.
type kept interface {
	used(now Ticks) float32 // share of the limit in use; 0: worth nothing
	weight() int            // bytes held outside of it
}
