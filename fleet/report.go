package fleet

import (
	"context"
	"strconv"
	"time"

	"github.com/headgate/headgate/fleet/credit"
	"github.com/headgate/headgate/limit"
)

// flight is a batch that has come back.
type flight struct {
	batch *credit.Batch
	told  []limit.Told
	err   error
}

// report sends batches. A lane has one on its way at most, so this starts no
// more goroutines than there are shards.
func (m *Member) report(ctx context.Context, batches []*credit.Batch) {
	m.despair()
	for _, b := range batches {
		if m.facts.Cut() {
			m.reporter.Failed(b) // the beat finds out when Redis is back
			continue
		}
		go func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			told, err := m.debit(ctx, b)
			m.done <- flight{b, told, err}
		}()
	}
}

// land takes up what came back.
func (m *Member) land(f flight) {
	if f.err != nil {
		m.reporter.Failed(f.batch)
		m.lost(f.err)
		return
	}
	m.reporter.Answered(m.clock(), f.batch, f.told)
	m.turn(true, "")
}

// debit sends b and returns the answers.
func (m *Member) debit(ctx context.Context, b *credit.Batch) ([]limit.Told, error) {
	keys := make([]string, 1, 1+2*len(b.Reports))
	keys[0] = m.names.last(b.Shard, m.life)
	args := make([]any, 2, 2+8*len(b.Reports))
	args[0], args[1] = m.life, b.Seq
	for i := range b.Reports {
		r := &b.Reports[i]
		t := credit.TermsOf(r.Limit, r)
		presses := 0
		if r.Presses {
			presses = 1
		}
		keys = append(keys, m.names.bucket(r.Key), m.names.lent(r.Key))
		args = append(args, number(t.Cost), t.Most, t.End, t.Next, r.Spent, presses, number(r.Share), number(r.Demand))
	}
	m.Counts.Calls.Add(1)
	m.Counts.Updates.Add(uint64(len(b.Reports)))
	reply, err := debit.Run(ctx, m.client, keys, args...).Slice()
	if err != nil {
		return nil, err
	}
	n := numbers{words: reply}
	at := n.int()
	told := make([]limit.Told, len(b.Reports))
	for i := range told {
		told[i] = limit.Told{Left: n.int(), Share: n.float(), Wait: micros(n.int()), At: uint32(at)}
	}
	return told, n.err
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func micros(n int64) limit.Ticks { return limit.FromDuration(time.Duration(n) * time.Microsecond) }
