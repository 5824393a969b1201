package daemon

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/heavy"
	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/maps"
)

const (
	// sampleEvery is how often samples are read: the rings hold what comes in
	// twice that time.
	sampleEvery = 250 * time.Millisecond
	// heavySources bounds who is known at a time: sources and rules in 5 s.
	heavySources = 2048
	// mostTop bounds what is told of either gate.
	mostTop = 100
	// topWindow is how far back it looks where nobody says.
	topWindow = 10 * time.Second
)

// Top is the answer to GET /v1/top?window=S&most=N: the heaviest sources,
// clients, keys and users, the most refused first. Counts are of what was
// sampled: exact up to about a thousand packets or requests a second on a CPU,
// of each kind, and estimates above.
type Top struct {
	Rows []TopRow `json:"rows"`
	Lost uint64   `json:"lost,omitempty"` // samples that were overwritten, since the start
}

// TopRow is what one source, client, key or user did under one rule.
type TopRow struct {
	Gate   string       `json:"gate"`
	Rule   string       `json:"rule,omitempty"`   // empty: none decided, Reason says what did
	Reason string       `json:"reason,omitempty"` // such as block
	Source netip.Prefix `json:"source,omitzero"`  // of packets, or the client of requests
	Key    string       `json:"key,omitempty"`    // how the API key's SHA-256 begins
	Owner  string       `json:"owner,omitempty"`  // of the key
	User   string       `json:"user,omitempty"`
	Tenant string       `json:"tenant,omitempty"`
	Verdicts
	Bytes   uint64  `json:"bytes,omitempty"` // of packets
	Seconds float64 `json:"seconds"`         // that the counts are of
	FullIn  float64 `json:"full_in"`         // seconds until the bucket is full again
}

// heavySource is a source under a rule, or under what else decided.
type heavySource struct {
	rule, reason string
	source       netip.Prefix
}

// heavyTable is who sends most packets. Samples are read into it.
type heavyTable struct {
	began time.Time

	mu      sync.Mutex
	sources *heavy.Table[heavySource]
	lost    uint64 // samples
	events  *events
}

func newHeavyTable(now time.Time, to *events) *heavyTable {
	return &heavyTable{began: now, sources: heavy.New[heavySource](heavySources), events: to}
}

func (h *heavyTable) add(s maps.Sample) {
	if !s.Source.IsValid() {
		return
	}
	k := heavySource{rule: s.Rule, source: maps.SourcePrefix(s.Source)}
	if k.rule == "" {
		k.reason = s.Reason
	}
	c, n := heavy.Counts{Bytes: uint64(s.Stands) * uint64(s.Length)}, uint64(s.Stands)
	switch s.Outcome {
	case maps.Passed:
		c.Passed = n
	case maps.Refused:
		c.Refused = n
	case maps.Watched:
		c.Watched = n
	}
	h.sources.Add(max(s.At.Sub(h.began), 0), k, c)
	if s.Outcome != maps.Passed {
		h.events.addSample(s)
	}
}

// look returns the heaviest sources and how long their counts are of.
func (h *heavyTable) look(now time.Time, window time.Duration) ([]heavy.Entry[heavySource], time.Duration) {
	h.mu.Lock()
	all, over := h.sources.Look(now.Sub(h.began), window)
	h.mu.Unlock()
	heavy.Sort(all)
	return all, over
}

// watchSamples reads what the network gate samples, until ctx ends.
func (d *daemon) watchSamples(ctx context.Context) error {
	var samples *maps.Samples
	defer func() {
		if samples != nil {
			samples.Close()
		}
	}()
	for ; ctx.Err() == nil; pause(ctx, sampleEvery) {
		var err error
		if samples, err = d.network.samples(samples); err != nil {
			d.log.Error("read samples of packets", "err", err)
			pause(ctx, 10*time.Second)
		}
		if samples != nil {
			d.heavy.read(samples)
		}
	}
	return nil
}

func (h *heavyTable) read(s *maps.Samples) {
	defer h.events.tell()
	h.mu.Lock()
	defer h.mu.Unlock()
	before := s.Lost()
	s.Read(h.add)
	h.lost += s.Lost() - before
}

// samples returns those of the gate that is open, which may be old.
func (n *network) samples(old *maps.Samples) (*maps.Samples, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old != nil && n.gate != nil && old.Of(n.gate) {
		return old, nil
	}
	if old != nil {
		old.Close()
	}
	if n.gate == nil {
		return nil, nil
	}
	return n.gate.Samples()
}

// fullIn fills in how long buckets of the network gate need to be full again.
func (n *network) fullIn(rows []TopRow, rules []liveRule) {
	byName := map[string]config.Rule{}
	for _, r := range rules {
		if r.Gate == config.GateNetwork {
			byName[r.Name] = r.Rule
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		return
	}
	for i := range rows {
		if r, ok := byName[rows[i].Rule]; ok {
			if left, ok := n.gate.FullIn(r, rows[i].Source.Addr()); ok {
				rows[i].FullIn = left.Seconds()
			}
		}
	}
}

// top is who does most at both gates.
func (d *daemon) top(ctx context.Context, window time.Duration, most int) Top {
	requests := d.http.top(ctx, l7.TopQuery{Window: window, Most: most})
	now := d.now()
	all, over := d.heavy.look(now, window)
	var out Top
	for _, e := range all[:min(len(all), most)] {
		out.Rows = append(out.Rows, TopRow{
			Gate: string(config.GateNetwork), Rule: e.Key.rule, Reason: e.Key.reason, Source: e.Key.source,
			Verdicts: Verdicts{e.Passed, e.Refused, e.Watched}, Bytes: e.Bytes, Seconds: over.Seconds(),
		})
	}
	d.mu.Lock()
	rules := d.policy.rules
	d.mu.Unlock()
	d.network.fullIn(out.Rows, rules)
	for _, x := range requests.Heavy {
		row := TopRow{
			Gate: string(config.GateHTTP), Rule: x.Rule, Key: x.Key, Owner: x.Owner, User: x.User, Tenant: x.Tenant,
			Verdicts: Verdicts{x.Passed, x.Refused, x.Watched}, Seconds: requests.Over.Seconds(), FullIn: x.FullIn.Seconds(),
		}
		if row.Rule == "" {
			row.Reason = "block"
		}
		if x.Client.IsValid() {
			row.Source = maps.SourcePrefix(x.Client)
		}
		out.Rows = append(out.Rows, row)
	}
	sortTop(out.Rows)
	out.Rows = slices.Clip(out.Rows[:min(len(out.Rows), most)])
	d.heavy.mu.Lock()
	out.Lost = d.heavy.lost
	d.heavy.mu.Unlock()
	if out.Rows == nil {
		out.Rows = []TopRow{}
	}
	return out
}

// sortTop puts the most refused in a second first, as the two gates may know of
// different times.
func sortTop(rows []TopRow) {
	rate := func(n uint64, r TopRow) float64 { return float64(n) / max(r.Seconds, 1) }
	slices.SortStableFunc(rows, func(a, b TopRow) int {
		return cmp.Or(
			cmp.Compare(rate(b.Refused, b), rate(a.Refused, a)),
			cmp.Compare(rate(b.Watched, b), rate(a.Watched, a)),
			cmp.Compare(rate(b.Passed, b), rate(a.Passed, a)),
		)
	})
}

// top asks the child; where there is none it is what the last one said when it
// was stopped.
func (h *httpGate) top(ctx context.Context, q l7.TopQuery) l7.Top {
	h.mu.Lock()
	c, last := h.child, h.lastTop
	h.mu.Unlock()
	if c == nil {
		return last
	}
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	a, err := c.ask(ctx, order{Do: orderTop, Top: &q}, nil)
	if err != nil || a.Top == nil {
		return l7.Top{}
	}
	return trusted(*a.Top, q)
}

// What one answer of the child may hold; more is cut away: a child that was taken
// over must not grow the daemon's memory.
const (
	mostRefusals = 512
	mostClients  = 20_000
	longestWord  = 512 // bytes
)

func trusted(t l7.Top, q l7.TopQuery) l7.Top {
	long := func(s l7.Subject, more ...string) bool {
		return slices.ContainsFunc(append(more, s.Key, s.Owner, s.User, s.Tenant), func(w string) bool { return len(w) > longestWord })
	}
	t.Heavy = slices.DeleteFunc(t.Heavy, func(h l7.Heavy) bool { return long(h.Subject, h.Rule) })
	t.Heavy = t.Heavy[:min(len(t.Heavy), max(q.Most, 0))]
	t.Refusals = slices.DeleteFunc(t.Refusals, func(r l7.Refusal) bool { return long(r.Subject, r.Rule, r.Method, r.Path) })
	t.Refusals = t.Refusals[:min(len(t.Refusals), mostRefusals)]
	t.Clients = t.Clients[:min(len(t.Clients), mostClients)]
	return t
}

func (d *daemon) handleTop(m *http.ServeMux) {
	m.Handle("GET /v1/top", answerWith(d.log, func(r *http.Request) (any, error) {
		window, most := topWindow, mostTop
		if s := r.URL.Query().Get("window"); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 || n > int(heavy.Window/time.Second) {
				return nil, badInput("window=%s: give seconds from 1 to 60", s)
			}
			window = time.Duration(n) * time.Second
		}
		if s := r.URL.Query().Get("most"); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 || n > mostTop {
				return nil, badInput("most=%s: give a number from 1 to %d", s, mostTop)
			}
			most = n
		}
		return d.top(r.Context(), window, most), nil
	}))
}

// seenIn counts the sources and clients of the last minute that p covers, as far
// as they are among those known, and how many of them are vouched for.
func (d *daemon) seenIn(ctx context.Context, p netip.Prefix) (sources, vouched int) {
	seen := map[netip.Prefix]bool{}
	all, _ := d.heavy.look(d.now(), heavy.Window)
	for _, e := range all {
		seen[e.Key.source] = true
	}
	for _, a := range d.http.top(ctx, l7.TopQuery{Clients: true}).Clients {
		seen[maps.SourcePrefix(a)] = true
	}
	known := map[netip.Prefix]bool{}
	if v, err := d.network.vouches(); err == nil {
		for _, x := range v.Vouches {
			known[maps.SourcePrefix(x.Source)] = true
		}
	}
	for s := range seen {
		if p.Overlaps(s) {
			sources++
			if known[s] {
				vouched++
			}
		}
	}
	return sources, vouched
}
