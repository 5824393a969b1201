package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/fleet/credit"
	"github.com/headgate/headgate/limit"
)

const (
	askers    = 2  // that talk to Redis, each with one call at a time
	questions = 32 // in one of those calls
)

// question is some limits of one decision, all in one shard.
type question struct {
	keys []string
	args []any
	told []limit.Told
	word string
	pass bool
	err  error
	end  atomic.Int32 // answered or gone, whichever was first
	done chan struct{}
}

const (
	answered = 1 + iota
	gone     // nobody waits for it any more
)

// Decide decides a request of which limit.Store.Take said that only the fleet
// can: it asks Redis, waits for its answer no longer than the deadline, and takes
// all of charges or none. It returns whether the request may pass.
func (m *Member) Decide(charges []limit.Charge) bool {
	deadline := time.NewTimer(m.o.Deadline)
	defer deadline.Stop()
	defer m.hasten()
	for range 3 {
		if !m.inquire(charges, deadline) {
			break
		}
		if ok := m.store.Take(m.clock(), charges); ok || !limit.Asking(charges) {
			if !ok {
				m.refund(charges)
			}
			return ok
		}
		// Others were faster, and more of the charges have to be asked for.
	}
	m.Counts.Late.Add(1)
	ok := m.store.Alone(m.clock(), charges)
	if !ok {
		m.refund(charges) // what another shard has charged already
	}
	return ok
}

func (m *Member) hasten() {
	select {
	case m.haste <- struct{}{}:
	default:
	}
}

// inquire asks for all of charges that have to be, and reports whether it was
// told. What is in different shards is asked for in order, until one refuses.
func (m *Member) inquire(charges []limit.Charge, deadline *time.Timer) bool {
	if m.facts.Cut() {
		return false
	}
	m.Counts.Asked.Add(1)
	for shard := range m.names.shards {
		q, of := m.question(charges, shard, "ask")
		if q == nil {
			continue
		}
		if !m.put(q, deadline) {
			return false
		}
		for i, c := range of {
			charges[c].Told, charges[c].Asks = &q.told[i], false
			stand(charges[c].Limit, &q.told[i])
		}
		if !q.pass {
			// The rest are not asked for: it is refused without them.
			for i := range charges {
				charges[i].Asks = false
				if charges[i].Told == nil && charges[i].Limit.Scope() == limit.Exact {
					charges[i].Told = &limit.Told{Admitted: true, Answer: limit.Answer{Remaining: charges[i].Limit.Quota()}}
				}
			}
			return true
		}
	}
	return true
}

// stand completes how a key stands under l.
func stand(l *limit.Limit, t *limit.Told) {
	soft := l.Most() - l.Quota()
	t.Answer.Remaining, t.Answer.Over = max(0, t.Left-soft), t.Left < soft
}

// refund gives back what Redis charged for a decision that was refused after
// all.
func (m *Member) refund(charges []limit.Charge) {
	m.tell(charges, "refund", func(c *limit.Charge) bool {
		return c.Told != nil && c.Told.Admitted && c.Told.Word != ""
	})
}

// Refused charges a request that was refused here to those of charges that count
// such requests, and are counted in Redis. Nobody waits for it.
func (m *Member) Refused(charges []limit.Charge) {
	m.tell(charges, "charge", func(c *limit.Charge) bool {
		return c.Told == nil && c.Limit.Scope() == limit.Exact && c.Limit.Counts()
	})
}

// tell sends one question of those of charges that are meant, to each shard.
func (m *Member) tell(charges []limit.Charge, what string, meant func(*limit.Charge) bool) {
	if m.facts.Cut() {
		return
	}
	for i := range charges {
		charges[i].Asks = meant(&charges[i])
	}
	for shard := range m.names.shards {
		if q, of := m.question(charges, shard, what); q != nil {
			if what == "refund" {
				q.args[0] = charges[of[0]].Told.Word
			}
			select {
			case m.asks <- q:
			default:
			}
		}
	}
	for i := range charges {
		charges[i].Asks = false
	}
}

// put hands q to an asker and waits for its answer.
func (m *Member) put(q *question, deadline *time.Timer) bool {
	select {
	case m.asks <- q:
	default:
		return false // Redis is behind: more would only wait
	}
	select {
	case <-q.done:
		return q.err == nil
	case <-deadline.C:
		deadline.Reset(0)
		return !q.end.CompareAndSwap(0, gone) && q.err == nil
	}
}

// question makes one of those of charges that are to be asked for and are in a
// shard, and returns which those are.
func (m *Member) question(charges []limit.Charge, shard int, what string) (q *question, of []int) {
	for i := range charges {
		c := &charges[i]
		if !c.Asks || m.names.shard(c.Key) != shard {
			continue
		}
		if q == nil {
			q = &question{done: make(chan struct{})}
			q.word = fmt.Sprintf("%s.%d", m.life, m.words.Add(1))
			q.args = append(q.args, q.word, what)
		}
		of = append(of, i)
		q.keys = append(q.keys, m.names.bucket(c.Key))
		q.args = append(q.args, describe(m.clock(), c)...)
	}
	if q != nil {
		q.told = make([]limit.Told, len(of))
	}
	return q, of
}

// describe returns what decide.lua is told of a limit.
func describe(now limit.Ticks, c *limit.Charge) []any {
	l := c.Limit
	r := c.Question(now)
	t := credit.TermsOf(l, &r)
	kind, size := "", float64(l.Window().Microseconds())
	switch l.Algorithm() {
	case limit.SlidingLog:
		kind = "log"
	case limit.SlidingCounter:
		kind = "counter"
	case limit.FixedWindow:
		kind = "fixed"
	case limit.Quota:
		kind = "quota"
	default:
		kind, size = "bucket", t.Cost
	}
	flags := ""
	if c.Watch {
		flags += "w"
	}
	if l.Counts() {
		flags += "a"
	}
	return []any{kind, number(size), l.Most(), l.Quota(), t.End, t.Next, flags}
}

// ask carries questions to Redis, several in one round trip.
func (m *Member) ask(ctx context.Context) error {
	for {
		var round []*question
		select {
		case <-ctx.Done():
			return nil
		case q := <-m.asks:
			round = append(round, q)
		}
	more:
		for len(round) < questions {
			select {
			case q := <-m.asks:
				round = append(round, q)
			default:
				break more
			}
		}
		m.carry(ctx, round)
	}
}

// carry asks round and tells those who wait.
func (m *Member) carry(ctx context.Context, round []*question) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	live := round[:0]
	for _, q := range round {
		if q.end.Load() != gone {
			live = append(live, q)
		}
	}
	if len(live) == 0 {
		return
	}
	m.Counts.Calls.Add(uint64(len(live)))
	replies := make([]*redis.Cmd, len(live))
	_, fault := m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, q := range live {
			replies[i] = decide.EvalSha(ctx, p, q.keys, q.args...)
		}
		return nil
	})
	for i, q := range live {
		reply, err := replies[i].Slice()
		if replies[i].Val() == nil && replies[i].Err() == nil && fault != nil {
			err = fault // it never came so far
		}
		if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			reply, err = decide.Eval(ctx, m.client, q.keys, q.args...).Slice()
		}
		if err != nil {
			m.Counts.Failures.Add(1)
			m.fault.Store(&err)
		}
		q.hear(reply, err)
		if !q.end.CompareAndSwap(0, answered) && q.err == nil && q.pass {
			m.takeBack(q)
		}
		close(q.done)
	}
}

// takeBack gives back what Redis charged for an answer that came too late: it was
// decided, and will be reported, without it.
func (m *Member) takeBack(q *question) {
	back := &question{keys: q.keys, args: slices.Clone(q.args), told: make([]limit.Told, len(q.told)), done: make(chan struct{})}
	back.args[1] = "refund"
	select {
	case m.asks <- back:
	default:
	}
}

// hear reads the reply to q.
func (q *question) hear(reply []any, err error) {
	if q.err = err; err != nil {
		return
	}
	n := numbers{words: reply}
	at := n.int()
	q.pass = n.int() == 1
	for i := range q.told {
		t := &q.told[i]
		*t = limit.Told{Admitted: n.int() == 0, Left: n.int(), Wait: micros(n.int()), At: uint32(at)}
		if q.pass && t.Admitted {
			t.Word = q.word
		}
		t.Answer = limit.Answer{Wait: t.Wait, Under: micros(n.int()), Reset: micros(n.int())}
	}
	q.err = n.err
}
