package limit

import (
	"errors"
	"math"
	"sync/atomic"
	"time"
)

// Parts of a limit that hosts of a fleet may admit between two answers. All
// hosts must use the same.
const (
	lineDepth = 0.25 // of what is left, the share of it that may go out at once
	baseShare = 0.25 // of all shares: held by all known hosts alike, without asking
	urgent    = 8    // a host reports when it has admitted a part of its line so small
	precise   = 10   // of a limit that restores less than one a tick, the last that are only admitted by asking
)

// Fleet is what a host knows of its fleet and goes by in each decision. It is
// safe for concurrent use.
type Fleet struct {
	tick  Ticks
	hosts atomic.Int32
	cut   atomic.Bool
}

// NewFleet returns a fleet of one host, connected, that reports every tick.
func NewFleet(tick time.Duration) *Fleet {
	f := &Fleet{tick: FromDuration(tick)}
	f.hosts.Store(1)
	return f
}

// Tick returns how often a host reports.
func (f *Fleet) Tick() time.Duration { return ToDuration(f.tick) }

// Hosts returns how many hosts are known, this one included.
func (f *Fleet) Hosts() int { return int(f.hosts.Load()) }

// SetHosts says how many hosts are known, this one included, at least 1.
func (f *Fleet) SetHosts(n int) { f.hosts.Store(int32(max(1, n))) }

// Cut reports whether this host has lost the others.
func (f *Fleet) Cut() bool { return f.cut.Load() }

// SetCut says whether this host has lost the others: then it goes on with its
// last share of each limit.
func (f *Fleet) SetCut(cut bool) { f.cut.Store(cut) }

// base is the share of each limit that a host has without asking.
func (f *Fleet) base() float64 { return baseShare / float64(f.hosts.Load()) }

// Scope says where a bucket is counted.
type Scope uint8

const (
	Host  Scope = iota // on this host
	Lines              // by all hosts of a fleet, each with a credit line
	Exact              // by all hosts of a fleet, with a call a decision
)

// Outage says what a limit of a fleet does while the fleet is out of reach.
type Outage uint8

const (
	Share  Outage = iota // the host goes on with its last share
	Open                 // nothing is refused
	Closed               // everything is
)

// Out returns l doing o while its fleet is out of reach.
func (l Limit) Out(o Outage) Limit {
	l.outage = o
	return l
}

// Divided returns l for one of n hosts that share it without hearing of each
// other, counted on this host: an n-th of the rate or limit, at least 1.
func (l Limit) Divided(n int) Limit {
	most := func(q int64) int64 { return max(1, q/int64(n)) }
	l.scope, l.fleet = Host, nil
	l.quota, l.most = most(l.quota), most(l.most)
	if l.cost > 0 {
		l.cost *= uint64(n)
		l.burst, l.deep = uint64(l.quota)*l.cost, uint64(l.most)*l.cost
	}
	return l
}

// Shared returns l counted by the whole fleet f. Lines are kept for token
// buckets and quotas; other algorithms, and what counts refused requests, can
// only be Exact.
func (l Limit) Shared(scope Scope, f *Fleet) (Limit, error) {
	if scope == Lines && (l.algorithm != TokenBucket && l.algorithm != Quota || l.always) {
		return Limit{}, errors.New("only a rate or a quota that counts no refused request has a credit line: use scope: exact")
	}
	l.scope, l.fleet = scope, f
	return l, nil
}

// Scope returns where l is counted.
func (l *Limit) Scope() Scope { return l.scope }

// Algorithm returns how l counts.
func (l *Limit) Algorithm() Algorithm { return l.algorithm }

// Most returns how many requests may come at once after idleness, the soft
// part included.
func (l *Limit) Most() int64 { return l.most }

// Counts reports whether l charges what is refused too.
func (l *Limit) Counts() bool { return l.always }

// Outage returns what l does while its fleet is out of reach.
func (l *Limit) Outage() Outage { return l.outage }

// Cost returns how long one request takes to be restored; 0 unless l is a
// token bucket.
func (l *Limit) Cost() Ticks { return l.cost }

// perTick returns how many requests are restored in a tick.
func (l *Limit) perTick() float64 {
	if l.cost == 0 {
		return 0
	}
	return float64(l.fleet.tick) / float64(l.cost)
}

// line returns what a host with a share may admit until it hears from the
// fleet again, when left of the limit are left.
func (l *Limit) line(share float64, left int64) int32 {
	if left <= precise && l.perTick() < 1 {
		return 0
	}
	return int32(min(math.MaxInt32, share*(lineDepth*float64(max(0, left))+l.perTick())))
}

// Overshoot bounds how many requests more than the limit alone would allow a
// fleet may admit in any window, while it is connected and trip is the longest
// round trip to the authority: what all lines together hold at once, and what is
// restored meanwhile. One line more is lost with each host that is killed. It is
// 0 for what is not counted by Lines.
func (l *Limit) Overshoot(trip time.Duration) int64 {
	if l.scope != Lines {
		return 0
	}
	all := lineDepth*float64(l.most) + l.perTick()
	if l.cost != 0 {
		all += float64(FromDuration(trip)) / float64(l.cost)
	}
	return int64(all+all/urgent) + int64(l.fleet.hosts.Load())
}

// line is the kind of state that is kept for limits of a fleet.
const line Algorithm = 255

// kind returns which kind of state is kept for l.
func (l *Limit) kind() Algorithm {
	if l.scope != Host {
		return line
	}
	return l.algorithm
}
