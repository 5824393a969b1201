package limit

import "math"

// Line is one host's part of a bucket that a fleet shares: it admits without
// asking what the fleet lets it, and reports what it has admitted. The answer to
// a report says what is left, which share of the limit is this host's, and until
// when to refuse if nothing is left.
//
// Of all that is left, hosts may together admit lineDepth, and what a tick
// restores, before they hear of each other. A quarter of that belongs to all
// known hosts in equal parts, who need not ask for it; the rest is lent for a
// second to those who have the requests (see package fleet/credit). A host that
// has lost the others goes on with its share of the rate.
//
// The zero value is a line of which the fleet has not been told; the size is
// fixed.
type Line struct {
	until    Ticks // refused before this moment, if denied
	answered Ticks // when the question or report left that was answered last, if known
	since    Ticks // when the oldest request in spent was admitted; cut off: TAT of the bucket that stands in
	end      Ticks // of the quota's period
	left     int64 // of the limit, when answered
	credit   int32 // what may be admitted before the next answer
	spent    int32 // of it, not yet reported
	flight   int32 // reported, and the answer has not come
	most     float32
	cost     float32 // the figures that all this was counted by
	share    float32 // of this host, lent or base
	demand   float32 // requests a second, as it was some reports ago
	asked    uint32  // requests since the last report, refused ones too
	at       uint32  // when the fleet answered, by its own clock in microseconds
	flags    lineFlags
}

type lineFlags uint8

const (
	known   lineFlags = 1 << iota // the fleet has answered
	denied                        // it has refused since it was last worth nothing
	listed                        // among those to be reported
	pressed                       // among those to be reported at once
	apart                         // counted by the bucket that stands in
)

// lease is how long a lent share holds; the fleet lends it for as long from
// when it hears of the request, so that it ends here first.
const lease = 1e9 * ticksPerNano

func (n *Line) is(f lineFlags) bool { return n.flags&f != 0 }
func (n *Line) set(f lineFlags, on bool) {
	if n.flags &^= f; on {
		n.flags |= f
	}
}

// settle brings n up to the figures, the period and the state of the fleet.
func (n *Line) settle(now Ticks, l *Limit) {
	if l.calendar != nil {
		if end := l.calendar.at(now).end; end != n.end {
			*n = Line{end: end, demand: n.demand, flags: n.flags & (listed | pressed)}
		}
	}
	if n.most != float32(l.most) || n.cost != float32(l.cost) {
		n.most, n.cost = float32(l.most), float32(l.cost)
		n.set(known|denied, false)
	}
	if cut := l.fleet.Cut(); cut != n.is(apart) {
		n.part(now, l, cut)
	}
}

// part changes to the bucket that stands in while the fleet is out of reach, or
// back.
func (n *Line) part(now Ticks, l *Limit, cut bool) {
	n.set(apart, cut)
	switch {
	case l.cost == 0 && cut:
		n.credit = max(n.spent, narrow(int64(n.own(l)*float64(n.estimate(now, l)))))
	case l.cost == 0:
		n.set(known, false)
	case cut:
		used := 1 - float64(n.estimate(now, l))/float64(l.most)
		n.since = now + uint64(max(0, used)*float64(l.deep))
		n.spent = 0 // it is in used
	default:
		debt := Until(n.since, now)
		n.spent = narrow(int64(math.Ceil(float64(debt) / n.standCost(l))))
		n.since = now
		n.set(known|denied, false)
	}
}

// own returns the share that n goes on with alone.
func (n *Line) own(l *Limit) float64 {
	return max(float64(n.share), 1/float64(l.fleet.Hosts()))
}

// standCost is what a request costs in the bucket that stands in: as much
// burst, as much more slowly as others have shares.
func (n *Line) standCost(l *Limit) float64 { return float64(l.cost) / n.own(l) }

// estimate returns how much of the limit is left, as far as this host can know.
func (n *Line) estimate(now Ticks, l *Limit) int64 {
	left := l.most
	if n.is(known) {
		left = n.left
		if l.cost != 0 {
			left += int64(Until(now, n.answered) / l.cost)
		}
	}
	return max(min(left, l.most)-int64(n.spent)-int64(n.flight), 0)
}

// allowed returns how much n may have admitted since its last report.
func (n *Line) allowed(now Ticks, l *Limit) int32 {
	base := l.fleet.base()
	switch {
	case !n.is(known):
		return l.line(base, l.most-int64(n.flight)) - n.flight
	case Until(n.answered+lease, now) > 0 || float64(n.share) <= base:
		return n.credit
	}
	return int32(float64(n.credit) * base / float64(n.share))
}

// alone returns how much n may have admitted since its last report when the
// fleet does not answer: at least one request that it has not been told of.
func (n *Line) alone(now Ticks, l *Limit) int32 {
	n.settle(now, l)
	return max(1-n.flight, n.allowed(now, l), narrow(int64(n.own(l)*float64(n.estimate(now, l)+int64(n.spent)))))
}

func (n *Line) wait(now Ticks, l *Limit) Ticks {
	n.settle(now, l)
	switch {
	case n.is(apart) && l.cost == 0:
		if n.spent < n.credit {
			return 0
		}
		return Until(n.end, now)
	case n.is(apart):
		cost := uint64(n.standCost(l))
		w, _ := Wait(n.since, now, cost, max(l.deep, cost))
		return w
	case n.is(denied):
		return Until(n.until, now)
	}
	return 0
}

// asks reports whether only the fleet can tell if one more request fits.
func (n *Line) asks(now Ticks, l *Limit) bool {
	n.settle(now, l)
	return !n.is(apart) && (l.scope == Exact || n.spent >= n.allowed(now, l))
}

func (n *Line) charge(now Ticks, l *Limit) {
	n.settle(now, l)
	n.asked++
	if n.is(apart) && l.cost != 0 {
		n.since = now + Until(n.since, now) + uint64(n.standCost(l))
		return
	}
	if n.spent == 0 {
		n.since = now
	}
	n.spent++
}

// presses reports whether n should be reported with the next tick.
func (n *Line) presses(now Ticks, l *Limit) bool {
	return !n.is(apart) && n.spent > 0 && n.spent*urgent >= n.allowed(now, l)
}

func (n *Line) deny() { n.asked++ }

func (n *Line) giveBack(now Ticks, l *Limit, k int64) int64 {
	n.settle(now, l)
	k = min(k, int64(n.spent))
	n.spent -= int32(k)
	n.set(denied, false)
	return k
}

func (n *Line) answer(now Ticks, l *Limit) Answer {
	left := n.estimate(now, l)
	a := Answer{Wait: n.wait(now, l), Remaining: min(max(0, left-(l.most-l.quota)), l.quota)}
	if a.Wait > 0 {
		a.Remaining = 0
	}
	if l.cost != 0 {
		a.Reset = uint64(l.most-left) * l.cost
	} else if left < l.most {
		a.Reset = Until(n.end, now)
	}
	a.Under = a.Wait
	a.Over = left < l.most-l.quota
	return a
}

func (n *Line) used(now Ticks) float32 {
	if n.most == 0 || n.end != 0 && Until(n.end, now) == 0 {
		return 0
	}
	if n.is(denied) && Until(n.until, now) > 0 {
		return 1
	}
	left := float32(n.most)
	if n.is(known) {
		left = float32(n.left)
		if n.cost != 0 {
			left += float32(Until(now, n.answered)) / n.cost
		}
	}
	if n.is(apart) && n.cost != 0 {
		return float32(Until(n.since, now)) / (n.most * n.cost)
	}
	return max(0, min(1, (n.most-left+float32(n.spent)+float32(n.flight))/n.most))
}

func (n *Line) firm(now Ticks) bool {
	return n.is(denied) && Until(n.until, now) > 0 || n.is(pressed)
}

// narrow returns n as a line keeps it: one that is larger is used up and asked
// for again sooner.
func narrow(n int64) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) }
