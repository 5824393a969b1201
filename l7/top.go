package l7

import (
	"encoding/hex"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/heavy"
	"github.com/headgate/headgate/limit"
)

const (
	// topSize bounds who is known at a time: subjects and rules in 5 s.
	topSize = 1024
	// keptRefusals bounds the refusals that are told one by one.
	keptRefusals = 512
	// keyDigits of a key's SHA-256, in hex, tell it apart.
	keyDigits = 12
	// longestPath of a request is kept with its refusal, in bytes.
	longestToldPath = 128
)

// Subject is whom a rule counts: one of its fields is set, or several of a rule
// that counts by several. A key is told by how its SHA-256 begins.
type Subject struct {
	Client netip.Addr `json:"client,omitzero"`
	Key    string     `json:"key,omitempty"`
	Owner  string     `json:"owner,omitempty"` // of the key
	User   string     `json:"user,omitempty"`
	Tenant string     `json:"tenant,omitempty"`
}

// Heavy is what one subject did under one rule.
type Heavy struct {
	Rule string `json:"rule"` // empty: it was blocked by prefix
	Subject
	Passed  uint64        `json:"passed"`
	Refused uint64        `json:"refused"`
	Watched uint64        `json:"watched"`           // passed, and would have been refused
	FullIn  time.Duration `json:"full_in,omitempty"` // until its bucket is full again, ns
}

// Refusal is one refused request, or one that would have been.
type Refusal struct {
	Number uint64    `json:"number"` // counts up
	At     time.Time `json:"at"`
	Rule   string    `json:"rule"` // empty: blocked by prefix
	Subject
	Client  netip.Addr `json:"from"` // who sent it, whomever the rule counts
	Watched bool       `json:"watched,omitempty"`
	Stands  uint32     `json:"stands"` // for how many like it
	Method  string     `json:"method"`
	Path    string     `json:"path"`
}

// TopQuery asks who is heaviest.
type TopQuery struct {
	Window time.Duration // how far back, up to a minute
	Most   int           // at most so many, the most refused first
	Since  uint64        // refusals after this number

	Clients bool // whoever was seen in the last minute
}

// Top is its answer.
type Top struct {
	Over     time.Duration `json:"over"` // that the counts are of
	Heavy    []Heavy       `json:"heavy,omitempty"`
	Refusals []Refusal     `json:"refusals,omitempty"` // the oldest first
	Number   uint64        `json:"number"`             // of the last refusal
	Clients  []netip.Addr  `json:"clients,omitempty"`  // seen in the last minute, as far as known
}

// subject is whom a rule counts, as it is kept.
type subject struct {
	rule   string
	bucket limit.Key
	spare  bool // it lacks what the rule counts by
	client netip.Addr
	key    [keyDigits / 2]byte
	owner  string
	user   string
	tenant string
	has    byte // hasClient and others
}

const (
	hasClient = 1 << iota
	hasKey
)

// watcher samples decisions for whoever looks. All are looked at while they are
// few: at many, about a thousand a second of those that pass, and as many of
// those that do not, each standing for others.
type watcher struct {
	passed, refused gap

	mu       sync.Mutex
	table    *heavy.Table[subject]
	clients  *heavy.Table[netip.Addr] // whatever rules count
	refusals [keptRefusals]Refusal
	number   uint64 // of the last one
}

func newWatcher() *watcher {
	return &watcher{table: heavy.New[subject](topSize), clients: heavy.New[netip.Addr](topSize)}
}

// saw notes what became of a request, if it is sampled.
func (g *Gate) saw(r *http.Request, d *decision, a *asker, now limit.Ticks, v verdict) {
	w, of := g.watcher, (*gap)(nil)
	switch {
	case v == refused || v == down || v == blocked || v == pass && d.watched() != "":
		of = &w.refused
	case v == pass:
		of = &w.passed
	default:
		return
	}
	if stands, ok := of.draws(now); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		of.took(now)
		w.note(g, r, d, a, now, v, stands)
	}
}

func (w *watcher) note(g *Gate, r *http.Request, d *decision, a *asker, now limit.Ticks, v verdict, stands uint32) {
	at := limit.ToDuration(now)
	w.clients.Add(at, a.client, heavy.Counts{Passed: uint64(stands)})
	if v == blocked {
		s := subject{client: a.client, has: hasClient}
		w.table.Add(at, s, heavy.Counts{Refused: uint64(stands)})
		w.tell(g, r, a, s, false, stands)
		return
	}
	for i, rule := range d.rules {
		if rule.counts == nil {
			continue
		}
		c, s := &d.charges[i], d.subjectOf(i, a)
		switch {
		case c.Refused && c.Watch:
			w.table.Add(at, s, heavy.Counts{Watched: uint64(stands)})
			w.tell(g, r, a, s, true, stands)
		case c.Refused:
			w.table.Add(at, s, heavy.Counts{Refused: uint64(stands)})
			w.tell(g, r, a, s, false, stands)
		case v == pass:
			w.table.Add(at, s, heavy.Counts{Passed: uint64(stands)})
		}
	}
}

// subjectOf is whom the charge at position i counts.
func (d *decision) subjectOf(i int, a *asker) subject {
	r := d.rules[i]
	s := subject{rule: r.name, bucket: d.charges[i].Key, spare: r.lacks && !slices.Equal(d.per[i], r.per)}
	for _, part := range d.per[i] {
		switch part {
		case config.PerClient:
			s.client, s.has = a.client, s.has|hasClient
		case config.PerKey:
			copy(s.key[:], a.key[:])
			s.owner, s.has = a.owner, s.has|hasKey
			if a.identity == claimed { // it is counted for each client apart
				s.client, s.has = a.client, s.has|hasClient
			}
		case config.PerUser:
			s.user = strings.Clone(a.user)
		case config.PerTenant:
			s.tenant = a.tenant
		}
	}
	return s
}

// tell keeps one refusal in the place of the oldest.
func (w *watcher) tell(g *Gate, r *http.Request, a *asker, s subject, watched bool, stands uint32) {
	path, _, _ := strings.Cut(pathOf(r), "?")
	w.number++
	w.refusals[w.number%keptRefusals] = Refusal{
		Number: w.number, At: g.Wall(), Rule: s.rule, Subject: s.public(), Client: a.client, Watched: watched,
		Stands: stands, Method: strings.Clone(r.Method), Path: strings.Clone(path[:min(len(path), longestToldPath)]),
	}
}

// public is the subject as it is shown.
func (s subject) public() Subject {
	p := Subject{Owner: s.owner, User: s.user, Tenant: s.tenant}
	if s.has&hasClient != 0 {
		p.Client = s.client
	}
	if s.has&hasKey != 0 {
		p.Key = hex.EncodeToString(s.key[:])
	}
	return p
}

// Top tells who did most and who was refused. It names no keys, but how their
// hashes begin.
func (g *Gate) Top(q TopQuery) Top {
	now := g.now()
	w := g.watcher
	w.mu.Lock()
	out := Top{Number: w.number}
	var all []heavy.Entry[subject]
	var lately []heavy.Entry[netip.Addr]
	if q.Most > 0 {
		all, out.Over = w.table.Look(limit.ToDuration(now), q.Window)
	}
	if q.Clients {
		lately, _ = w.clients.Look(limit.ToDuration(now), heavy.Window)
	}
	for n := max(q.Since, w.number-min(w.number, keptRefusals)) + 1; n <= w.number; n++ {
		out.Refusals = append(out.Refusals, w.refusals[n%keptRefusals])
	}
	w.mu.Unlock()
	heavy.Sort(all)
	for _, e := range all[:min(len(all), max(q.Most, 0))] {
		out.Heavy = append(out.Heavy, Heavy{
			Rule: e.Key.rule, Subject: e.Key.public(), Passed: e.Passed, Refused: e.Refused, Watched: e.Watched,
			FullIn: g.fullIn(e.Key, now),
		})
	}
	for _, e := range lately {
		out.Clients = append(out.Clients, e.Key)
	}
	slices.SortFunc(out.Clients, netip.Addr.Compare)
	return out
}

// fullIn is how long it takes until nothing is charged to s any more.
func (g *Gate) fullIn(s subject, now limit.Ticks) time.Duration {
	p := g.policy.Load()
	if p == nil {
		return 0
	}
	i := slices.IndexFunc(p.rules, func(r rule) bool { return r.name == s.rule })
	if i < 0 {
		return 0
	}
	l := &p.rules[i].limit
	if s.spare {
		l = &p.rules[i].spare
	}
	a, _ := g.store.Look(now, s.bucket, l)
	return limit.ToDuration(a.Reset)
}
