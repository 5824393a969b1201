package l7

import (
	"math/bits"
	"slices"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// item is how one enforcing rule stands after a decision.
type item struct {
	rule      *rule
	at        int // position among the decision's charges
	key       limit.Key
	refuses   bool
	quota     int64
	window    int64 // s, to restore the quota
	remaining int64
	wait      int64         // s, until one more request passes; 0: now
	exact     time.Duration // the same
	room      [16]byte
	pace      int64 // s, at least 1, for which remaining is what may come
}

// standing returns how the enforcing rules stand, the most binding first: who
// makes wait longest, else who has least left. The items are d's.
func (d *decision) standing() []item {
	all := d.items[:0]
	for i := range d.charges {
		c := &d.charges[i]
		if c.Watch {
			continue
		}
		it := item{
			rule: d.rules[i], at: i, key: c.Key, refuses: c.Refused,
			quota: c.Limit.Quota(), window: wholeSeconds(c.Limit.Window()),
			remaining: c.Answer.Remaining, exact: limit.ToDuration(c.Answer.Wait),
		}
		it.wait = seconds(it.exact)
		it.pace = paceOf(c)
		all = append(all, it)
	}
	slices.SortStableFunc(all, moreBinding)
	d.items = all
	return all
}

func moreBinding(a, b item) int {
	switch {
	case a.wait != b.wait:
		return order(b.wait, a.wait)
	case a.remaining != b.remaining:
		return order(a.remaining, b.remaining)
	}
	return order(b.pace, a.pace)
}

func order(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// paceOf returns for how many seconds what remains is all that a client may
// count on: with none left, until there is one; else until the quota is whole
// again, and never so short that remaining over pace is more than the rule's
// rate. A client that spreads what remains over it is not refused.
func paceOf(c *limit.Charge) int64 {
	if c.Answer.Remaining == 0 {
		// In the soft part more passes, but there is none left to count on.
		return max(1, seconds(limit.ToDuration(max(c.Answer.Wait, c.Answer.Under))))
	}
	window := uint64(c.Limit.Window())
	share := window
	if left, quota := uint64(c.Answer.Remaining), uint64(c.Limit.Quota()); left < quota {
		hi, lo := bits.Mul64(left, window)
		var rest uint64
		if share, rest = bits.Div64(hi, lo, quota); rest > 0 {
			share++
		}
	}
	return max(1, seconds(time.Duration(share)), seconds(limit.ToDuration(c.Answer.Reset)))
}

// wholeSeconds is seconds of a window, which a cost that was rounded to ticks
// may make a little longer than it was written: 9/min is 9 in 60 s.
func wholeSeconds(window time.Duration) int64 {
	return max(1, seconds(window-window/1_000_000))
}

// seconds rounds up: a time that a client is told must be long enough.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// delay lengthens the wait of a refusal by up to the given percentage, so that
// those who were refused together do not come back together. By how much
// depends on the client, the rule and its window alone: who asks again draws no
// other lot. It is never shorter than the wait.
func (d *decision) delay(percent int, store *limit.Store, a *asker, now limit.Ticks, it *item) {
	if percent == 0 || it.exact == 0 {
		return
	}
	again := now + limit.FromDuration(it.exact)
	window := max(limit.FromDuration(time.Duration(it.window)*time.Second), 1)
	d.text = limit.AppendPart(it.key.Append(d.text[:0]), 'j', a.bucket[:])
	d.text = a.appendParts(d.text, []config.Per{config.PerKey})
	for n, i := again/window, 0; i < 8; i++ {
		d.text = append(d.text, byte(n>>(8*i)))
	}
	most := float64(it.exact) * float64(percent) / 100
	it.wait = seconds(it.exact + time.Duration(most*store.Key(d.text).Fraction()))
	it.pace = max(1, it.wait)
}
