// Package credit is the credit line: how hosts count one limit together with
// far less than one message a request. Each host reports what it has admitted
// (Reporter), the authority debits that and answers what is left, which share
// of it the host may hand out, and until when to refuse (Authority; in a fleet it
// is a script in Redis). The host's side of one bucket key is limit.Line.
package credit

import (
	"math"

	"github.com/headgate/headgate/limit"
)

// Pool is the part of each limit that is lent to hosts by their demand. The rest
// belongs to all in equal parts.
const Pool = 0.75

// mostDebt is how many times its burst a bucket can be in debt by what hosts
// admitted before they heard of each other.
const mostDebt = 4

// Lease is how long a share is lent, in microseconds.
const Lease = 1_000_000

// Terms are what the authority must know of a limit.
type Terms struct {
	Cost float64 // microseconds that one request takes to be restored; 0: a quota
	Most int64   // requests at once; of a quota, in a period
	End  int64   // of the quota's period, microseconds since 1970
	Next int64   // of the period after it
}

// TermsOf returns l's terms at now; report is nil or what they are for.
func TermsOf(l *limit.Limit, r *limit.Report) Terms {
	t := Terms{Most: l.Most()}
	if l.Algorithm() == limit.Quota {
		t.End, t.Next = r.Period.UnixMicro(), r.Next.UnixMicro()
		return t
	}
	t.Cost = float64(l.Cost()) / float64(limit.FromDuration(1000))
	return t
}

// Call is what a host sends of one key: what it has admitted, and whether one
// request more fits.
type Call struct {
	Name    string
	Terms   Terms
	Spent   int64
	Ask     bool    // charge one more if it fits
	Presses bool    // lend a share by demand
	Share   float64 // lent to the caller, as it knows
	Demand  float64 // requests a second
}

// Reply is what the authority answers to a Call.
type Reply struct {
	Admitted bool
	Left     int64
	Share    float64
	Wait     int64 // microseconds until one more fits
	At       int64 // when this was decided, microseconds
}

// Authority is the model of the scripts in Redis, and what the simulator runs:
// the state of all bucket keys that hosts share. It is not safe for concurrent
// use.
type Authority struct {
	keys map[string]*account
	seen map[string]uint64 // the last batch of each host
}

type account struct {
	tat    int64   // microseconds; of a quota, what is spent
	cost   float64 // that tat was counted by
	end    int64   // of the quota's period
	leases map[string]loan
}

type loan struct {
	share  float64 // that the host may be using
	demand float64
	until  int64
}

// NewAuthority returns one that knows nothing.
func NewAuthority() *Authority {
	return &Authority{keys: map[string]*account{}, seen: map[string]uint64{}}
}

// Batch debits all calls of host's batch numbered seq at now, unless it has come
// before, and answers each.
func (a *Authority) Batch(now int64, host string, seq uint64, calls []Call) []Reply {
	again := seq <= a.seen[host]
	a.seen[host] = max(seq, a.seen[host])
	replies := make([]Reply, len(calls))
	for i, c := range calls {
		if again {
			c.Spent = 0
		}
		replies[i] = a.Call(now, host, c)
	}
	return replies
}

// Call debits c and answers it.
func (a *Authority) Call(now int64, host string, c Call) (r Reply) {
	r.At = now
	k := a.keys[c.Name]
	if k == nil {
		k = &account{leases: map[string]loan{}}
		a.keys[c.Name] = k
	}
	if c.Terms.Cost == 0 {
		k.count(now, &c, &r)
	} else {
		k.bucket(now, &c, &r)
	}
	if c.Presses {
		r.Share = k.lend(now, host, &c)
	}
	return r
}

// bucket debits a token bucket. Debt may grow beyond the burst: it is repaid
// before anyone is admitted again. More than any fleet can have spent between
// two reports is no debt but a fault, and the key is served again.
func (k *account) bucket(now int64, c *Call, r *Reply) {
	cost, deep := c.Terms.Cost, math.Round(float64(c.Terms.Most)*c.Terms.Cost)
	debt := float64(max(0, k.tat-now))
	if k.cost != 0 && k.cost != cost {
		debt = debt * cost / k.cost
	}
	if debt > mostDebt*deep+Lease*10 {
		debt = deep
	}
	debt = math.Round(math.Round(debt) + float64(c.Spent)*cost)
	if r.Admitted = c.Ask && math.Round(debt+cost) <= deep; r.Admitted {
		debt = math.Round(debt + cost)
	}
	k.tat, k.cost = now+int64(debt), cost
	if room := deep - debt; room >= math.Round(cost) {
		r.Left = int64((room + 0.5) / cost)
	} else {
		r.Wait = int64(math.Ceil(cost - room))
	}
}

// count debits a quota. What is counted says when its period ends, and that
// stands while it lies ahead: callers whose clocks differ share one period. What
// was spent in a period that is over is forgotten with it.
func (k *account) count(now int64, c *Call, r *Reply) {
	end := c.Terms.End
	if end <= now {
		end = c.Terms.Next
	}
	if k.end <= now || k.end > max(end, c.Terms.Next) {
		k.tat, k.end = 0, end
	}
	if c.Terms.End == k.end || c.Terms.End > now {
		k.tat += c.Spent
	}
	if r.Admitted = c.Ask && k.tat < c.Terms.Most; r.Admitted {
		k.tat++
	}
	if r.Left = max(0, c.Terms.Most-k.tat); r.Left == 0 {
		r.Wait = max(0, k.end-now)
	}
}

// lend returns the share that host may use for a Lease from now: its part of the
// Pool by demand, as far as others have given up theirs. What it used before
// stays taken until it reports that it uses less.
func (k *account) lend(now int64, host string, c *Call) float64 {
	demand, taken := c.Demand, 0.0
	for h, l := range k.leases {
		switch {
		case l.until <= now:
			delete(k.leases, h)
		case h != host:
			demand += l.demand
			taken += l.share
		}
	}
	share := Pool
	if demand > 0 {
		share = Pool * c.Demand / demand
	}
	share = max(0, min(share, Pool-taken))
	k.leases[host] = loan{max(share, c.Share), c.Demand, now + Lease}
	return share
}
