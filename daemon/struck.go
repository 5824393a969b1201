package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/headgate/headgate/maps"
)

const (
	// struckWait is how long the events are waited for at a time.
	struckWait = time.Second
	// struckBatch bounds how many blocks one change of the lists takes.
	struckBatch = 1000
	// struckLog is how often blocks by rules are logged, one line for all.
	struckLog = 10 * time.Second
)

// FromRule is the origin of a block that a rule's then made.
const FromRule = "rule"

// heedStrikes turns what rules' then has blocked into blocks with a reason that
// outlive a reboot. The data path does not wait for it: it blocks by itself.
func (d *daemon) heedStrikes(ctx context.Context) error {
	var events *maps.Events
	defer func() {
		if events != nil {
			events.Close()
		}
	}()
	told := struckTold{}
	defer func() { told.tell(d.log, d.now()) }()
	for ctx.Err() == nil {
		var err error
		if events, err = d.network.events(events); err != nil {
			d.log.Error("hear of blocks by rules", "err", err)
		}
		if events == nil {
			pause(ctx, struckWait)
			continue
		}
		wake := context.AfterFunc(ctx, func() { events.Close() }) // a stop does not wait for strikes
		batch := gather(events)
		wake()
		if len(batch) > 0 {
			for _, s := range batch {
				d.events.addStruck(s, d.now())
			}
			d.events.tell()
			told.add(batch, d.keepStruck(ctx, batch))
		}
		if now := d.now(); now.Sub(told.last) >= struckLog {
			told.tell(d.log, now)
		}
	}
	return nil
}

// struckTold gathers blocks by rules until they are logged: a flood of sources
// may make thousands a second.
type struckTold struct {
	blocks int
	first  maps.Struck // of blocks
	failed error       // why some of them could not be kept
	last   time.Time   // when they were logged
}

func (s *struckTold) add(batch []maps.Struck, err error) {
	s.failed = cmp.Or(s.failed, err)
	if s.blocks == 0 {
		s.first = batch[0]
	}
	s.blocks += len(batch)
}

func (s *struckTold) tell(log *slog.Logger, now time.Time) {
	if s.blocks == 0 {
		return
	}
	log.Info("sources were blocked by rules", "blocks", s.blocks, "first", s.first.Prefix, "rule", s.first.Rule)
	if s.failed != nil {
		log.Error("keep blocks by rules: some last in the data path alone", "err", s.failed)
	}
	*s = struckTold{last: now}
}

// events returns the stream of the gate that is open now: was, if it still is
// that. Nil while there is none.
func (n *network) events(was *maps.Events) (*maps.Events, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if was != nil && n.gate != nil && was.Of(n.gate) {
		return was, nil
	}
	if was != nil {
		was.Close()
	}
	if n.gate == nil {
		return nil, nil
	}
	return n.gate.Events()
}

// gather waits for an event, then takes what follows at once.
func gather(events *maps.Events) (batch []maps.Struck) {
	deadline := time.Now().Add(struckWait)
	for len(batch) < struckBatch {
		s, err := events.Next(deadline)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return batch
		case err != nil:
			return batch
		}
		batch = append(batch, s)
		deadline = time.Now()
	}
	return batch
}

func (d *daemon) keepStruck(ctx context.Context, batch []maps.Struck) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	next := d.added
	for _, s := range batch {
		next.Blocks = withEntry(next.Blocks, Entry{
			Prefix: s.Prefix, End: s.End, Reason: fmt.Sprintf("refused again and again by rule %s", s.Rule),
			Origin: Origin{From: FromRule, By: s.Rule, At: now.Round(0).UTC().Truncate(time.Second)},
		})
	}
	return d.commit(ctx, next, nothing)
}
