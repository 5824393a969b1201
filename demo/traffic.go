package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/rig"
	"golang.org/x/sync/errgroup"
)

// traffic is all that the demo sends, and what came of it.
type traffic struct {
	plan     plan
	link     rig.Link
	receiver *rig.Receiver

	flooded, calm          atomic.Uint64 // packets sent so far
	pages, greedy, patient *asker
}

// result is what is checked.
type result struct {
	flood, calm   rig.Sent
	arrived       rig.Report
	pages, greedy answers
	patience      patience
}

// newTraffic starts to count at the gate; door is the HTTP gate's address.
func newTraffic(p plan, l rig.Link, door string) (*traffic, error) {
	receiver, err := rig.NewReceiver(l)
	if err != nil {
		return nil, err
	}
	caller := rig.HTTPClient(l.Peer.NS, p.Caller)
	api := "http://" + door + "/api/report"
	return &traffic{
		plan: p, link: l, receiver: receiver,
		pages:   &asker{client: rig.HTTPClient(l.Peer.NS, p.Good), url: "http://" + door + "/"},
		greedy:  &asker{client: caller, url: api, key: greedyKey},
		patient: &asker{client: caller, url: api, key: patientKey},
	}, nil
}

// run sends everything at once, and returns when all is sent and counted, or
// when ctx ends.
func (t *traffic) run(ctx context.Context) (result, error) {
	var r result
	p := t.plan
	group, sending := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		r.flood, err = t.send(sending, rig.Stream{Rate: p.FloodRate, Progress: &t.flooded}, t.link.UDP(p.Attacker, 9))
		return err
	})
	group.Go(func() (err error) {
		r.calm, err = t.send(sending, rig.Stream{Rate: p.CalmRate, Progress: &t.calm}, t.link.UDP(p.Good, 9))
		return err
	})
	group.Go(func() error { t.pages.run(sending, p.PageEvery, p.Duration); return nil })
	group.Go(func() error { t.greedy.run(sending, p.KeyEvery, p.Duration); return nil })
	group.Go(func() error { r.patience = obey(sending, t.patient, p.KeyBurst); return nil })
	if err := group.Wait(); err != nil {
		return r, err
	}
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	arrived, err := t.receiver.Finish()
	r.arrived, r.pages, r.greedy = arrived, t.pages.count(), t.greedy.count()
	return r, err
}

func (t *traffic) send(ctx context.Context, s rig.Stream, p rig.Packet) (rig.Sent, error) {
	frame, err := p.Frame()
	if err != nil {
		return rig.Sent{}, err
	}
	s.Frames = [][]byte{frame}
	s.Count = uint64(s.Rate * t.plan.Duration.Seconds())
	sent, err := rig.Send(ctx, t.link.Peer, s)
	if err != nil {
		return sent, fmt.Errorf("send as %v: %w", p.Src, err)
	}
	return sent, nil
}

// view is what the live table shows.
type view struct {
	Elapsed       time.Duration
	Flood, Calm   flow
	Pages, Greedy answers
}

// flow is one source's packets.
type flow struct{ Sent, Passed uint64 }

// Dropped is what was sent and has not arrived.
func (f flow) Dropped() uint64 { return f.Sent - min(f.Sent, f.Passed) }

func (t *traffic) view(elapsed time.Duration) view {
	arrived := t.receiver.Snapshot()
	return view{
		Elapsed: elapsed,
		Flood:   flow{t.flooded.Load(), arrived.From(t.plan.Attacker).Packets},
		Calm:    flow{t.calm.Load(), arrived.From(t.plan.Good).Packets},
		Pages:   t.pages.count(),
		Greedy:  t.greedy.count(),
	}
}
