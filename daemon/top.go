package daemon

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/heavy"
	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/maps"
)

const (
	// sampleEvery is how often the network gate's samples are read: before they
	// are overwritten.
	sampleEvery = 100 * time.Millisecond
	// heavySources bounds what is kept of each stretch of time.
	heavySources = 2048
	// mostTop bounds what is told of either gate.
	mostTop = 100
)

// Top is the answer to GET /v1/top: who sent most in the last minute.
type Top struct {
	Span    float64     `json:"span_seconds"` // that the sources' figures are over
	Sources []TopSource `json:"sources"`      // of the network gate, the heaviest first; packets are estimated from a sample
	Sampled uint64      `json:"sampled"`      // packets in the sample since the start
	Lost    uint64      `json:"lost"`         // that came too fast to be read, likewise
	Clients []l7.Heavy  `json:"clients"`      // of the HTTP gate, with API keys and users, the heaviest first
	HTTP    float64     `json:"http_span_seconds"`
}

// TopSource is one source of packets.
type TopSource struct {
	Source  netip.Prefix `json:"source"`
	Passed  uint64       `json:"passed"`
	Watched uint64       `json:"watched"` // of those passed, what a rule would have refused
	Dropped uint64       `json:"dropped"`
	Bytes   uint64       `json:"bytes"`
	Rule    string       `json:"rule,omitempty"`       // that dropped most of its packets, or would have
	Reason  string       `json:"reason,omitempty"`     // likewise
	FullIn  int64        `json:"full_in_ms,omitempty"` // until its bucket under Rule is full, if nothing more comes
}

// watchSources keeps who sends most until ctx ends.
func (d *daemon) watchSources(ctx context.Context) error {
	var from *maps.Samples
	defer func() {
		if from != nil {
			from.Close()
		}
	}()
	for ctx.Err() == nil {
		var err error
		if from, err = d.network.samples(from); err != nil {
			d.log.Error("watch who sends most: `headgate top` will not tell", "err", err)
			return nil
		}
		if from != nil {
			d.heed(from)
		}
		pause(ctx, sampleEvery)
	}
	return nil
}

// heed counts what has been sampled since the last time.
func (d *daemon) heed(from *maps.Samples) {
	now := d.now().Sub(d.started)
	d.sources.mu.Lock()
	defer d.sources.mu.Unlock()
	before := from.Lost()
	from.Read(func(s maps.Sample) {
		if !s.Source.IsValid() {
			return
		}
		d.sources.read++
		f, n := flow{source: maps.SourcePrefix(s.Source)}, uint64(s.Stands)
		c := heavy.Counts{Passed: n, Bytes: n * uint64(s.Length)}
		switch s.Outcome {
		case maps.Refused:
			f.rule, f.reason = s.Rule, s.Reason
			c.Passed, c.Refused = 0, n
		case maps.Watched:
			f.rule = s.Rule
			c.Passed, c.Watched = 0, n
		}
		d.sources.table.Add(now, f, c)
	})
	d.sources.lost += from.Lost() - before
}

// flow is what one source sent, and what became of it.
type flow struct {
	source       netip.Prefix
	rule, reason string // of what was not simply passed
}

// sources are who sends most, by the network gate's sample. It is safe for
// concurrent use.
type sources struct {
	mu         sync.Mutex
	table      *heavy.Table[flow]
	read, lost uint64 // samples
}

// look returns all that are held, those first that were refused most, and over
// how long.
func (s *sources) look(now time.Duration) (out []TopSource, over time.Duration) {
	s.mu.Lock()
	all, over := s.table.Look(now, heavy.Window)
	s.mu.Unlock()
	found := map[netip.Prefix]*TopSource{}
	worst := map[netip.Prefix]uint64{}
	for _, e := range all {
		t := found[e.Key.source]
		if t == nil {
			t = &TopSource{Source: e.Key.source}
			found[e.Key.source] = t
		}
		t.Passed += e.Passed + e.Watched
		t.Watched += e.Watched
		t.Dropped += e.Refused
		t.Bytes += e.Bytes
		if n := e.Refused + e.Watched; n > worst[e.Key.source] {
			worst[e.Key.source], t.Rule, t.Reason = n, e.Key.rule, e.Key.reason
		}
	}
	for _, t := range found {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b TopSource) int {
		return cmp.Or(cmp.Compare(b.Dropped, a.Dropped), cmp.Compare(b.Passed, a.Passed), a.Source.Compare(b.Source))
	})
	return out, over
}

// samples returns the sample of the gate that is open now: was, if it still is
// that. Nil while there is none.
func (n *network) samples(was *maps.Samples) (*maps.Samples, error) {
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
	return n.gate.Samples()
}

// top says who sent most.
func (d *daemon) top(ctx context.Context) Top {
	sources, span := d.sources.look(d.now().Sub(d.started))
	if len(sources) > mostTop { // half of those refused most, and half of those that sent most
		rest := sources[mostTop/2:]
		slices.SortFunc(rest, func(a, b TopSource) int { return cmp.Compare(b.Passed+b.Dropped, a.Passed+a.Dropped) })
		sources = sources[:mostTop]
	}
	clients, spanHTTP := d.http.heaviest(ctx)
	t := Top{Span: span.Seconds(), Sources: append([]TopSource{}, sources...), Clients: clients, HTTP: spanHTTP.Seconds()}
	d.sources.mu.Lock()
	t.Sampled, t.Lost = d.sources.read, d.sources.lost
	d.sources.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, s := range t.Sources {
		if r, ok := d.policy.find(s.Rule); ok && r.aside == "" {
			t.Sources[i].FullIn = d.network.fullIn(r.Rule, s.Source.Addr()).Milliseconds()
		}
	}
	return t
}

func (n *network) fullIn(r config.Rule, source netip.Addr) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		return 0
	}
	left, _ := n.gate.FullIn(r, source)
	return left
}

// heaviest returns who asked most of the HTTP gate, those first that were refused
// most.
func (h *httpGate) heaviest(ctx context.Context) ([]l7.Heavy, time.Duration) {
	h.count(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]l7.Heavy{}, h.counts.heaviest...), h.counts.heavySpan
}

func (d *daemon) handleTop(m *http.ServeMux) {
	m.Handle("GET /v1/top", answerWith(d.log, func(r *http.Request) (any, error) { return d.top(r.Context()), nil }))
}

// seenIn counts the sources of the last minute, as far as they are among the
// heaviest, that p covers, and how many of them are vouched for.
func (d *daemon) seenIn(p netip.Prefix) (sources, vouched int) {
	all, _ := d.sources.look(d.now().Sub(d.started))
	known := map[netip.Addr]bool{}
	if v, err := d.network.vouches(); err == nil {
		for _, v := range v.Vouches {
			known[v.Source] = true
		}
	}
	for _, s := range all {
		if p.Overlaps(s.Source) {
			sources++
			if known[s.Source.Addr()] {
				vouched++
			}
		}
	}
	return sources, vouched
}
