// Package sim runs a fleet of hosts that count together, on a clock of its own:
// the hosts run limit.Store and credit.Reporter as real ones do, and the network
// between them and the authority loses, delays and reorders what it carries.
// The same seed gives the same run.
package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/fleet/credit"
	"github.com/headgate/headgate/limit"
)

// Load is how many requests a second come to each host at a time.
type Load func(at time.Duration, host int) float64

// Config is a fleet and what happens to it.
type Config struct {
	Seed   uint64
	Hosts  int
	Rate   int64 // requests a second
	Burst  int64
	Length time.Duration
	Load   Load

	Tick     time.Duration // 0: 50 ms
	Trip     time.Duration // mean of one way; 0: 100 µs. The longest is four times that
	Loss     float64       // share of messages lost each way
	Deadline time.Duration // of a request that asks; 0: 5 ms
	Skew     time.Duration // how far hosts' clocks are apart at most

	Events []Event
}

// Event is something that happens to a host.
type Event struct {
	At   time.Duration
	Host int
	Do   Action
}

// Action is what an Event does.
type Action int

const (
	Kill   Action = iota // it forgets what it has not reported, and gets no requests
	Start                // it begins anew
	Cut                  // nothing it sends arrives any more
	Mend                 // it is connected again
	Silent               // all are cut off: Redis is gone
	Speak                // and back
)

// Result is what came of a run.
type Result struct {
	Offered  int
	Admitted []time.Duration // when, in order
	Wrong    int             // refused while one bucket for all would have admitted
	Ideal    int             // what one bucket for all admits
	Calls    int             // sent to the authority, batches and questions
	Updates  int             // keys in them
	Waited   int             // requests that asked
	Killed   int
}

// Window returns the most that was admitted in any window of a length.
func (r *Result) Window(length time.Duration) (most int) {
	first := 0
	for i, at := range r.Admitted {
		for at-r.Admitted[first] >= length {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Excess returns the most by which what was admitted in any window exceeds what
// rate restores in it: of one bucket for all, never more than its burst.
func (r *Result) Excess(rate float64) (most float64) {
	least := 0.0
	for i, at := range r.Admitted {
		level := float64(i) - rate*at.Seconds()
		if i == 0 || level < least {
			least = level
		}
		most = max(most, level+1-least)
	}
	return most
}

// Between returns how many were admitted from from to to.
func (r *Result) Between(from, to time.Duration) (n int) {
	for _, at := range r.Admitted {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

type world struct {
	Config
	rng       *rand.Rand
	now       time.Duration
	events    events
	n         int
	hosts     []*host
	authority *credit.Authority
	silent    bool
	ideal     limit.Ticks
	figures   limit.Limit
	Result    Result
}

type host struct {
	w        *world
	index    int
	life     int // incarnation
	alive    bool
	cut      bool
	start    limit.Ticks // of its clock
	fleet    *limit.Fleet
	limit    limit.Limit
	store    *limit.Store
	key      limit.Key
	reporter *credit.Reporter
	reported time.Duration
}

type event struct {
	at time.Duration
	n  int // in order where the time is the same
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func (w *world) at(when time.Duration, do func()) {
	w.n++
	heap.Push(&w.events, event{when, w.n, do})
}

// Run runs c to its end.
func Run(c Config) (*Result, error) {
	if c.Tick == 0 {
		c.Tick = 50 * time.Millisecond
	}
	if c.Trip == 0 {
		c.Trip = 100 * time.Microsecond
	}
	if c.Deadline == 0 {
		c.Deadline = 5 * time.Millisecond
	}
	w := &world{Config: c, rng: rand.New(rand.NewPCG(c.Seed, 1)), authority: credit.NewAuthority()}
	var err error
	if w.figures, err = limit.NewRate(c.Rate, time.Second, c.Burst); err != nil {
		return nil, err
	}
	for i := range c.Hosts {
		h := &host{w: w, index: i}
		w.hosts = append(w.hosts, h)
		h.begin()
		w.at(0, h.arrive)
	}
	w.count()
	for _, e := range c.Events {
		w.at(e.At, func() { w.do(e) })
	}
	for len(w.events) > 0 {
		e := heap.Pop(&w.events).(event)
		if e.at > c.Length {
			break
		}
		w.now = e.at
		e.do()
	}
	return &w.Result, nil
}

func (w *world) do(e Event) {
	switch h := w.hosts[e.Host]; e.Do {
	case Kill:
		h.alive = false
		w.Result.Killed++
	case Start:
		h.begin()
	case Cut:
		h.cut = true
	case Mend:
		h.cut = false
	case Silent:
		w.silent = true
		return
	case Speak:
		w.silent = false
		return
	}
	// Others hear of it a second later, as from a heartbeat.
	w.at(w.now+time.Second, w.count)
}

// count tells all hosts how many they are.
func (w *world) count() {
	n := 0
	for _, h := range w.hosts {
		if h.alive {
			n++
		}
	}
	for _, h := range w.hosts {
		h.fleet.SetHosts(n)
	}
}

// begin gives h a new life.
func (h *host) begin() {
	h.life++
	h.alive = true
	h.start = h.w.rng.Uint64()
	if h.w.Skew > 0 {
		h.start = limit.FromDuration(time.Duration(h.w.rng.Int64N(int64(h.w.Skew))))
	}
	h.fleet = limit.NewFleet(h.w.Tick)
	h.fleet.SetHosts(h.w.Hosts)
	h.limit, _ = h.w.figures.Shared(limit.Lines, h.fleet)
	h.store = limit.NewStore(1 << 16)
	h.key = h.store.Key([]byte("key"))
	h.reporter = credit.NewReporter(h.store, h.fleet, 1, func(limit.Key) int { return 0 })
	life := h.life
	h.w.at(h.w.now+time.Duration(h.w.rng.Int64N(int64(h.w.Tick))), func() { h.tick(life) })
}

func (h *host) clock() limit.Ticks { return h.start + limit.FromDuration(h.w.now) }

// name is what the authority knows this life of h as.
func (h *host) name() string { return fmt.Sprint(h.index, "/", h.life) }

// tick reports, and again after each answer while more is due.
func (h *host) tick(life int) {
	if h.life != life || !h.alive {
		return
	}
	h.report()
	h.w.at(h.w.now+h.w.Tick, func() { h.tick(life) })
}

func (h *host) report() {
	h.reported = h.w.now
	for _, b := range h.reporter.Tick(h.clock()) {
		h.send(b)
	}
}

func (h *host) send(b *credit.Batch) {
	w, life := h.w, h.life
	calls := make([]credit.Call, len(b.Reports))
	for i := range b.Reports {
		calls[i] = callOf(&b.Reports[i])
	}
	w.Result.Calls++
	w.Result.Updates += len(calls)
	const patience = 100 * time.Millisecond
	done := false
	w.carry(h, func() {
		replies := w.authority.Batch(w.micros(), h.name(), b.Seq, calls)
		w.carry(h, func() {
			if h.life != life || !h.alive || done {
				return
			}
			done = true
			told := make([]limit.Told, len(replies))
			for i, r := range replies {
				told[i] = tell(r)
			}
			h.reporter.Answered(h.clock(), b, told)
			for _, b := range h.reporter.Due(h.clock()) {
				h.send(b)
			}
		})
	})
	w.at(w.now+patience, func() {
		if !done && h.life == life && h.alive {
			done = true
			h.reporter.Failed(b)
		}
	})
}

func callOf(r *limit.Report) credit.Call {
	return credit.Call{
		Name: "key", Terms: credit.TermsOf(r.Limit, r), Spent: r.Spent,
		Presses: r.Presses, Share: r.Share, Demand: r.Demand,
	}
}

func tell(r credit.Reply) limit.Told {
	return limit.Told{Admitted: r.Admitted, Left: r.Left, Share: r.Share, At: uint32(r.At), Wait: limit.FromDuration(time.Duration(r.Wait) * time.Microsecond)}
}

// carry brings a message of h to the other side, or loses it.
func (w *world) carry(h *host, arrive func()) {
	if h.cut || w.silent || w.rng.Float64() < w.Loss {
		return
	}
	trip := min(time.Duration(w.rng.ExpFloat64()*float64(w.Trip)), 4*w.Trip)
	w.at(w.now+trip, arrive)
}

func (w *world) micros() int64 { return int64(w.now/time.Microsecond) + 1 }

// arrive is a request to h, and plans the next.
func (h *host) arrive() {
	w := h.w
	rate := w.Load(w.now, h.index)
	if rate <= 0 {
		w.at(w.now+time.Millisecond, h.arrive)
		return
	}
	w.at(w.now+time.Duration(w.rng.ExpFloat64()/rate*float64(time.Second)), h.arrive)
	if !h.alive {
		return
	}
	w.Result.Offered++
	now := limit.FromDuration(w.now) + 1<<40
	var fits bool
	if w.ideal, fits = limit.Take(w.ideal, now, w.figures.Cost(), uint64(w.figures.Most())*w.figures.Cost()); fits {
		w.Result.Ideal++
	}
	charges := []limit.Charge{{Key: h.key, Limit: &h.limit}}
	if ok := h.store.Take(h.clock(), charges); ok || !limit.Asking(charges) {
		w.finish(ok, fits)
		return
	}
	h.ask(charges, fits)
}

// ask asks the authority whether one more fits, and goes on alone when no answer
// comes in time.
func (h *host) ask(charges []limit.Charge, fits bool) {
	w, life, done := h.w, h.life, false
	w.Result.Calls++
	w.Result.Updates++
	w.Result.Waited++
	r := charges[0].Question(h.clock())
	call := callOf(&r)
	call.Ask = true
	w.carry(h, func() {
		reply := w.authority.Call(w.micros(), h.name(), call)
		w.carry(h, func() {
			if done || h.life != life || !h.alive {
				return
			}
			done = true
			told := tell(reply)
			charges[0].Told = &told
			h.reporter.Heard()
			w.finish(h.store.Take(h.clock(), charges), fits)
			h.hasten()
		})
	})
	w.at(w.now+w.Deadline, func() {
		if done || h.life != life || !h.alive {
			return
		}
		done = true
		w.finish(h.store.Alone(h.clock(), charges), fits)
		h.hasten()
	})
}

// hasten reports before the tick, as a host does that had to ask.
func (h *host) hasten() {
	if h.w.now-h.reported >= credit.Haste {
		h.report()
	}
}

func (w *world) finish(ok, fits bool) {
	switch {
	case ok:
		w.Result.Admitted = append(w.Result.Admitted, w.now)
	case fits:
		w.Result.Wrong++
	}
}
