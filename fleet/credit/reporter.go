package credit

import (
	"math"
	"time"

	"github.com/headgate/headgate/limit"
)

const (
	// BatchSize is how many keys one call carries at most.
	BatchSize = 64

	// calmKeys is how many keys a tick reports that do not press. They wait
	// longer when there are more, and lose nothing by it: what a host has not
	// reported stays below an eighth of its line.
	calmKeys = BatchSize

	// Haste is how soon after a report a host that had to ask reports again: who
	// asks is short of a share, and the load may just have moved to it.
	Haste = 10 * time.Millisecond

	// cutAfter is how many ticks without any answer make a host go on alone.
	cutAfter = 6
)

// Reporter turns what a host's store has to report into batches and takes up the
// answers. Each batch reaches the authority once however often it must be sent:
// it has a number, and is sent again as it is until it is answered. A Reporter
// is not safe for concurrent use.
type Reporter struct {
	store *limit.Store
	fleet *limit.Fleet
	shard func(limit.Key) int
	lanes []lane
	quiet bool        // something was sent, or tried, since the last answer
	since limit.Ticks // when the first of that was
	room  []limit.Report
}

// lane is what goes to one shard, one batch after the other.
type lane struct {
	seq   uint64
	queue []*Batch // the first is on its way, or must be sent again
}

// Batch is one call to one shard.
type Batch struct {
	Shard   int
	Seq     uint64 // from 1, larger in each batch of this host to this shard
	Reports []limit.Report
	sent    limit.Ticks
	flying  bool
}

// NewReporter returns one for store, of a host in fleet. Keys
// go to the shard that shard says, 0 to shards-1.
func NewReporter(store *limit.Store, fleet *limit.Fleet, shards int, shard func(limit.Key) int) *Reporter {
	return &Reporter{store: store, fleet: fleet, shard: shard, lanes: make([]lane, shards)}
}

// Tick makes batches of what there is to report and returns those to send at
// now. It is meant to be called each Fleet.Tick.
func (r *Reporter) Tick(now limit.Ticks) (send []*Batch) {
	if r.waiting() {
		r.Silent(now)
	}
	if !r.fleet.Cut() {
		r.collect(now, calmKeys)
	}
	send = r.Due(now)
	return send
}

// Due returns the batches that may be sent at now, of those that earlier Ticks
// made: after an answer, the next for the same shard.
func (r *Reporter) Due(now limit.Ticks) (send []*Batch) {
	for i := range r.lanes {
		if q := r.lanes[i].queue; len(q) > 0 && !q[0].flying {
			q[0].flying, q[0].sent = true, now
			send = append(send, q[0])
		}
	}
	return send
}

func (r *Reporter) waiting() bool {
	for i := range r.lanes {
		if len(r.lanes[i].queue) > 0 {
			return true
		}
	}
	return false
}

// collect makes batches of what there is to report, for lanes that are not
// behind.
func (r *Reporter) collect(now limit.Ticks, calm int) {
	const behind = 4
	for i := range r.lanes {
		if len(r.lanes[i].queue) >= behind {
			return
		}
	}
	r.room = r.store.Reports(now, r.room[:0], calm)
	for _, report := range r.room {
		l := &r.lanes[r.shard(report.Key)]
		n := len(l.queue)
		if n == 0 || l.queue[n-1].flying || len(l.queue[n-1].Reports) == BatchSize {
			l.seq++
			l.queue = append(l.queue, &Batch{Shard: r.shard(report.Key), Seq: l.seq})
			n++
		}
		b := l.queue[n-1]
		b.Reports = append(b.Reports, report)
	}
}

// Answered takes up the answers to b, one for each report, that came at now. The
// next batch for the shard is then Due.
func (r *Reporter) Answered(now limit.Ticks, b *Batch, told []limit.Told) {
	l := &r.lanes[b.Shard]
	if len(l.queue) == 0 || l.queue[0] != b || !b.flying {
		return // answered before
	}
	l.queue = l.queue[1:]
	r.Heard()
	for i := range b.Reports {
		r.store.Answer(now, b.sent, &b.Reports[i], &told[i])
	}
}

// Heard says that the fleet is within reach: something was answered.
func (r *Reporter) Heard() {
	r.quiet = false
	r.fleet.SetCut(false)
}

// Silent says that the fleet is not within reach at now: when it has not been for
// some ticks, this host goes on alone.
func (r *Reporter) Silent(now limit.Ticks) {
	if !r.quiet {
		r.quiet, r.since = true, now
	}
	if !r.fleet.Cut() && limit.Until(r.since+cutAfter*limit.FromDuration(r.fleet.Tick()), now) == 0 {
		r.fleet.SetCut(true)
	}
}

// Last returns all that is left to be sent when this host stops, in the order in
// which it must be sent.
func (r *Reporter) Last(now limit.Ticks) (send []*Batch) {
	r.collect(now, math.MaxInt)
	for i := range r.lanes {
		send = append(send, r.lanes[i].queue...)
	}
	return send
}

// Failed says that b was not answered: it is sent again with the next Tick. It
// may have arrived all the same.
func (r *Reporter) Failed(b *Batch) { b.flying = false }
