package limit

import "time"

// Ticks is the unit of time of all counting: 1/64 ns since an epoch of the
// caller's choice. It wraps after 9 years; differences are signed, so a moment
// is past or future correctly within 4.5 years. Who keeps a state longer than
// that sweeps it (Store.Sweep), as the bucket table of the network gate is
// swept.
type Ticks = uint64

const ticksPerNano = 64

// FromDuration returns d in ticks; d wraps as Ticks do.
func FromDuration(d time.Duration) Ticks { return uint64(d) * ticksPerNano }

// ToDuration returns t as a duration, rounded up to whole nanoseconds, so that
// who waits for it has waited long enough.
func ToDuration(t Ticks) time.Duration {
	d := t / ticksPerNano
	if t%ticksPerNano != 0 {
		d++
	}
	return time.Duration(d)
}

// Until returns how far moment lies in the future, 0 when it has passed.
func Until(moment, now Ticks) Ticks {
	if d := int64(moment - now); d > 0 {
		return uint64(d)
	}
	return 0
}

// Take asks a bucket for cost ticks at now. tat is the theoretical arrival time
// that the bucket stores, burst its tolerance. It returns the time to store
// and true, or tat unchanged and false: what is refused is not charged.
//
// This is the model of the C bucket in bpf/bucket.h. tat must have been written
// less than 4.5 years ago, burst be less than 1<<62 and cost less than 1<<63.
func Take(tat, now, cost, burst uint64) (next uint64, ok bool) {
	debt := Until(tat, now)
	if debt+cost > burst {
		return tat, false
	}
	return now + debt + cost, true
}

// Level returns how many times cost still fits at now.
func Level(tat, now, cost, burst uint64) uint64 {
	debt := Until(tat, now)
	if debt >= burst || cost == 0 {
		return 0
	}
	return (burst - debt) / cost
}

// Wait returns how long after now cost fits, 0 if it does now. It is false
// when cost is more than the burst and so never fits.
func Wait(tat, now, cost, burst uint64) (wait Ticks, ok bool) {
	if cost > burst {
		return 0, false
	}
	if need := Until(tat, now) + cost; need > burst {
		return need - burst, true
	}
	return 0, true
}

// Bucket is a token bucket that remembers at which figures it was charged, so
// that its debt is kept in requests when the figures change: who has spent 100
// of 100 has 100 left of 200, and none of 10. The zero value is full.
type Bucket struct {
	tat   Ticks
	cost  float32 // ticks a request when last charged; 0: never charged
	burst float32 // with the soft part; negative: it has refused since it was full
}

// adopt makes l's figures the bucket's: its debt is converted at the first touch
// after they changed, and shrinks at the new rate from there. Debt that is more
// than l allows stays as it is, and shrinks at the rate that it was made at,
// until l has room for it: it must not be lost, since overrides let requests of
// different figures take turns at one bucket. Then adopt is false.
func (b *Bucket) adopt(now Ticks, l *Limit) bool {
	cost, burst := float32(int64(l.cost)), float32(int64(l.deep)) // both are less than 1<<63
	if b.cost == cost && (b.burst == burst || b.burst == -burst) {
		return true
	}
	debt := b.debt(now)
	if debt > 0 && b.cost != cost {
		debt = uint64(float64(debt)*float64(l.cost)/float64(b.cost)) + 1
	}
	// The cost is kept to a 32 bit fraction: what was full may come out as more.
	if debt > l.deep+l.deep>>20+1 {
		return false
	}
	if b.burst < 0 {
		burst = -burst
	}
	b.tat = now + min(debt, l.deep)
	b.cost, b.burst = cost, burst
	return true
}

// shrunk returns how long a debt that l has no room for takes until one more
// request fits into burst.
func (b *Bucket) shrunk(now Ticks, l *Limit, burst Ticks) Ticks {
	const rounded = 1 - 1.0/(1<<20)
	room := uint64(float64(burst-l.cost) / float64(l.cost) * float64(b.cost) * rounded)
	return max(1, b.debt(now)-min(b.debt(now), room))
}

func (b *Bucket) debt(now Ticks) Ticks {
	if b.cost == 0 {
		return 0
	}
	return Until(b.tat, now)
}

func (b *Bucket) wait(now Ticks, l *Limit) Ticks {
	if !b.adopt(now, l) {
		return b.shrunk(now, l, l.deep)
	}
	return late(Until(b.tat, now), l.cost, l.deep)
}

// late returns how long a debt takes until one request of cost more fits into
// burst, 0 if it does, or if it never does.
func late(debt, cost, burst Ticks) Ticks {
	if need := debt + cost; need > burst && cost <= burst {
		return need - burst
	}
	return 0
}

func (b *Bucket) charge(now Ticks, l *Limit) {
	if b.adopt(now, l) { // else it is over the limit already
		b.add(now, l, Until(b.tat, now))
	}
}

// add charges one request to a bucket that has adopted l, and returns its debt,
// which was debt.
func (b *Bucket) add(now Ticks, l *Limit, debt Ticks) Ticks {
	if debt == 0 && b.burst < 0 {
		b.burst = -b.burst
	}
	debt = min(debt+l.cost, l.deep)
	b.tat = now + debt
	return debt
}

func (b *Bucket) deny() {
	if b.burst > 0 {
		b.burst = -b.burst
	}
}

func (b *Bucket) giveBack(now Ticks, l *Limit, n int64) int64 {
	cost := l.cost
	if !b.adopt(now, l) {
		cost = uint64(b.cost)
	}
	debt := b.debt(now)
	n = min(n, int64((debt+cost-1)/cost))
	b.tat = now + debt - min(debt, uint64(n)*cost)
	b.burst = max(b.burst, -b.burst)
	return n
}

func (b *Bucket) answer(now Ticks, l *Limit) Answer {
	if !b.adopt(now, l) {
		return Answer{Wait: b.shrunk(now, l, l.deep), Under: b.shrunk(now, l, l.burst), Reset: b.debt(now), Over: true}
	}
	return answerOf(Until(b.tat, now), l)
}

// answerOf returns the answer of a bucket that has adopted l and has this debt.
func answerOf(debt Ticks, l *Limit) Answer {
	a := Answer{
		Wait:  late(debt, l.cost, l.deep),
		Under: late(debt, l.cost, l.burst),
		Reset: debt,
		Over:  debt > l.burst,
	}
	if debt < l.burst && l.cost != 0 {
		a.Remaining = int64((l.burst - debt) / l.cost)
	}
	return a
}

func (b *Bucket) used(now Ticks) float32 {
	if debt := b.debt(now); debt > 0 {
		return float32(debt) / max(b.burst, -b.burst)
	}
	return 0
}

func (b *Bucket) firm(now Ticks) bool {
	debt := b.debt(now)
	return debt > 0 && (b.burst < 0 || float32(debt)+b.cost > b.burst)
}
