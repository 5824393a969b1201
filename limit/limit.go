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
	FixedWindow                     // Tally, over windows of one length
	Quota                           // Tally, over days, weeks or months
)

const (
	// MaxLog is the largest limit that a sliding log is kept for: it holds 2
	// bytes an admission for each client.
	MaxLog = 10_000

	// MaxTally is the largest fixed window or quota, and the largest integer of
	// a structured field (RFC 9651, 3.3.1), which tells it to clients.
	MaxTally = 999_999_999_999_999
)

// Limit is what a bucket key is held to: an algorithm and its figures. It is
// never changed once made.
type Limit struct {
	algorithm Algorithm
	always    bool  // what is refused is charged too
	quota     int64 // how much may come at once
	most      int64 // the same, with the soft part above it
	cost      Ticks // token bucket: of one request
	burst     Ticks // token bucket: tolerance
	deep      Ticks // the same, with the soft part
	window    Ticks
	calendar  *Calendar
	scope     Scope
	fleet     *Fleet // nil: counted on this host
	outage    Outage
}

// NewRate returns a token bucket of amount requests per interval and burst
// requests at once. Its errors are those of NewFigures.
func NewRate(amount int64, interval time.Duration, burst int64) (Limit, error) {
	f, err := NewFigures(amount, interval, burst, false)
	if err != nil {
		return Limit{}, err
	}
	return Limit{
		algorithm: TokenBucket, quota: burst, most: burst,
		cost: f.Cost(1), burst: f.Burst, deep: f.Burst, window: f.Burst,
	}, nil
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
	return Limit{algorithm: a, quota: n, most: n, window: FromDuration(window)}, nil
}

// NewTally returns a limit of n requests, 1 to MaxTally, in each period of c.
// It is a FixedWindow or a Quota as c divides time.
func NewTally(n int64, c *Calendar) (Limit, error) {
	if n < 1 || n > MaxTally {
		return Limit{}, fmt.Errorf("limit %d: give one from 1 to %d", n, int64(MaxTally))
	}
	a := Quota
	if _, even := c.cut.(even); even {
		a = FixedWindow
	}
	return Limit{algorithm: a, quota: n, most: n, calendar: c}, nil
}

// Soft returns l with percent more, 1 to 100, above its line: what comes there
// is admitted and Answer.Over says so. It is an error where that is less than
// one request.
func (l Limit) Soft(percent int) (Limit, error) {
	if percent < 1 || percent > 100 {
		return Limit{}, fmt.Errorf("soft %d%%: give one from 1%% to 100%%", percent)
	}
	more := l.quota / 100 * int64(percent)
	more += l.quota % 100 * int64(percent) / 100
	if more == 0 {
		return Limit{}, fmt.Errorf("soft %d%% of %d is less than one request: raise one of them", percent, l.quota)
	}
	if l.algorithm == SlidingCounter && l.quota+more > math.MaxUint32 {
		return Limit{}, fmt.Errorf("limit %d with soft %d%% is too large for a sliding counter", l.quota, percent)
	}
	l.most = l.quota + more
	l.deep = l.burst + uint64(more)*l.cost
	return l, nil
}

// CountRefused returns l charging what is refused too, whoever refuses it: a
// client that does not stop asking stays out. A bucket's debt never goes beyond
// its burst by that, so that a pause of one request's cost, a window, or the
// end of the period lets it in again.
func (l Limit) CountRefused() Limit {
	l.always = true
	return l
}

// tenfold returns what the keys of l share that find no room of their own: ten
// times as much. A log becomes a counter, which takes no more memory for it.
func (l Limit) tenfold() Limit {
	const times = 10
	l.scope, l.fleet = Host, nil
	if l.algorithm == SlidingLog {
		l.algorithm = SlidingCounter
	}
	most := int64(MaxTally)
	if l.algorithm == SlidingCounter {
		most = math.MaxUint32
	}
	l.quota, l.most = min(l.quota*times, most), min(l.most*times, most)
	l.cost = max(1, l.cost/times)
	return l
}

// Quota returns how many requests may come at once after idleness: the burst,
// or the limit. The soft part is not in it.
func (l *Limit) Quota() int64 { return l.quota }

// Window returns the time in which the quota is restored after it was used up:
// of a token bucket, that of refilling it from empty, of a fixed window or
// quota the length of the present period.
func (l *Limit) Window() time.Duration {
	if l.calendar != nil {
		return l.calendar.length()
	}
	return ToDuration(l.window)
}

// Answer is how a bucket key stands after a decision.
type Answer struct {
	Wait      Ticks // until one more request passes; 0: it passes now
	Under     Ticks // until one more stays below the line; longer than Wait only in the soft part
	Remaining int64 // how many fit below the line now, 0 to Quota
	Reset     Ticks // until nothing is charged any more
	Over      bool  // more is charged than the line allows: the soft part is in use
}

// state is what is kept for one bucket key. Moments given to it may run
// backwards a little: callers read the clock before they get their turn.
type state interface {
	wait(now Ticks, l *Limit) Ticks // until one request fits
	charge(now Ticks, l *Limit)     // one request, also where it does not fit
	answer(now Ticks, l *Limit) Answer
	deny()                                       // mark it: it has refused
	giveBack(now Ticks, l *Limit, n int64) int64 // up to n requests; returns how many
}

// kept is a state as its table sees it.
type kept interface {
	used(now Ticks) float32 // share of the limit in use; 0: worth nothing
	firm(now Ticks) bool    // it refuses now, or has refused since it was last worth nothing
}
