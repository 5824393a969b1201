package daemon

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/maps"
)

const (
	// keptEvents bounds the events that are remembered.
	keptEvents = 2048
	// mostAtOnce bounds the events of a quarter of a second: what comes on top
	// is told as one, so that a flood of sources makes no flood of lines.
	mostAtOnce = 50
	// askRefusals is how often the HTTP gate is asked for refusals.
	askRefusals = 500 * time.Millisecond
)

// What an event tells.
const (
	EventRefused = "refused"
	EventWatched = "watched" // it passed, and would have been refused
	EventBlocked = "blocked" // a source, by a rule's then
	EventMore    = "more"    // packets or requests that are told of in no other event
)

// Event is something that a gate refused, or equal things of a quarter of a
// second. It is made of samples: Count is exact up to about a thousand refusals
// a second on a CPU, and an estimate above.
type Event struct {
	Number uint64     `json:"number"` // counts up
	At     time.Time  `json:"at"`
	Gate   string     `json:"gate"`
	What   string     `json:"what"`
	Rule   string     `json:"rule,omitempty"`
	Reason string     `json:"reason,omitempty"` // of packets: as in status
	Source netip.Addr `json:"source,omitzero"`
	Count  uint64     `json:"count"` // packets or requests

	Protocol uint8  `json:"protocol,omitempty"` // of packets; 6 is TCP, 17 UDP
	Port     uint16 `json:"port,omitempty"`     // destination

	Key    string `json:"key,omitempty"` // how the API key's SHA-256 begins
	Owner  string `json:"owner,omitempty"`
	User   string `json:"user,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`

	End time.Time `json:"end,omitzero"` // of a block
}

// Events is the answer to GET /v1/events?rule=R: what is remembered, the oldest
// first. With follow=true each event is a line of its own, without an end, as it
// comes.
type Events struct {
	Events []Event `json:"events"`
}

// events are the last ones. The zero value is ready.
type events struct {
	mu      sync.Mutex
	kept    []Event // a ring once it is full
	number  uint64  // of the last
	batch   []Event // not yet told; no two differ in Count and At alone
	places  map[Event]int
	changed chan struct{} // closed when there are more; nil: nobody waits
}

func (l *events) addSample(s maps.Sample) {
	what := EventRefused
	if s.Outcome == maps.Watched {
		what = EventWatched
	}
	l.add(Event{
		At: s.At.Round(0).UTC(), Gate: string(config.GateNetwork), What: what, Rule: s.Rule, Reason: s.Reason, Source: s.Source,
		Count: uint64(s.Stands), Protocol: s.Protocol, Port: s.To,
	})
}

func (l *events) addRefusal(r l7.Refusal) {
	what := EventRefused
	if r.Watched {
		what = EventWatched
	}
	l.add(Event{
		At: r.At.Round(0).UTC(), Gate: string(config.GateHTTP), What: what, Rule: r.Rule, Source: r.Client, Count: uint64(r.Stands),
		Key: r.Key, Owner: r.Owner, User: r.User, Tenant: r.Tenant, Method: r.Method, Path: r.Path,
	})
}

func (l *events) addStruck(s maps.Struck, now time.Time) {
	l.add(Event{
		At: now.Round(0).UTC(), Gate: string(config.GateNetwork), What: EventBlocked, Rule: s.Rule, Source: s.Prefix.Addr(),
		Count: 1, End: s.End.Round(0).UTC(),
	})
}

// add puts e into the batch, or adds its count to its like.
func (l *events) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	like := e
	like.At, like.Count = time.Time{}, 0
	if len(l.batch) >= mostAtOnce {
		if _, known := l.places[like]; !known {
			like = Event{Gate: e.Gate, What: EventMore}
			e = Event{At: e.At, Gate: e.Gate, What: EventMore, Count: e.Count}
		}
	}
	if i, known := l.places[like]; known {
		l.batch[i].Count += e.Count
		return
	}
	if l.places == nil {
		l.places = map[Event]int{}
	}
	l.places[like] = len(l.batch)
	l.batch = append(l.batch, e)
}

// tell ends the batch: its events can be read from now on.
func (l *events) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.batch) == 0 {
		return
	}
	for _, e := range l.batch {
		l.number++
		e.Number = l.number
		if len(l.kept) < keptEvents {
			l.kept = append(l.kept, e)
		} else {
			l.kept[(e.Number-1)%keptEvents] = e
		}
	}
	l.batch = l.batch[:0]
	clear(l.places)
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// after returns the events of rule, or of all where it is empty, that came after
// the one of that number, the last number, and what is closed when there are
// more.
func (l *events) after(number uint64, rule string) (all []Event, last uint64, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := max(number, l.number-uint64(len(l.kept))) + 1; n <= l.number; n++ {
		if e := l.kept[(n-1)%keptEvents]; rule == "" || e.Rule == rule {
			all = append(all, e)
		}
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return all, l.number, l.changed
}

// watchRefusals asks the HTTP gate for what it refused, until ctx ends.
func (d *daemon) watchRefusals(ctx context.Context) error {
	var last uint64
	for pause(ctx, askRefusals); ctx.Err() == nil; pause(ctx, askRefusals) {
		top := d.http.top(ctx, l7.TopQuery{Since: last})
		if top.Number < last { // another child, which counts anew
			last = 0
			continue
		}
		last = top.Number
		for _, r := range top.Refusals {
			d.events.addRefusal(r)
		}
		d.events.tell()
	}
	return nil
}

func (d *daemon) handleEvents(m *http.ServeMux) {
	m.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("follow") == "true" {
			d.followEvents(w, r)
			return
		}
		answerWith(d.log, func(r *http.Request) (any, error) {
			rule := r.URL.Query().Get("rule")
			if err := d.knowsRule(rule); err != nil {
				return nil, err
			}
			all, _, _ := d.events.after(0, rule)
			return Events{append([]Event{}, all...)}, nil
		}).ServeHTTP(w, r)
	})
}

// knowsRule refuses the name of a rule that is not in force; empty is all rules.
func (d *daemon) knowsRule(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name != "" && !slices.ContainsFunc(d.policy.rules, func(r liveRule) bool { return r.Name == name }) {
		return notThere("no rule %q in force (see: headgate rule ls)", name)
	}
	return nil
}

// followEvents writes events as they come, after the one of the number since, or
// those to come.
func (d *daemon) followEvents(w http.ResponseWriter, r *http.Request) {
	rule := r.URL.Query().Get("rule")
	if err := d.knowsRule(rule); err != nil {
		answerWith(d.log, func(*http.Request) (any, error) { return nil, err }).ServeHTTP(w, r)
		return
	}
	_, last, more := d.events.after(0, rule)
	if s := r.URL.Query().Get("since"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			answerWith(d.log, func(*http.Request) (any, error) { return nil, badInput("since=%s: give an event's number", s) }).ServeHTTP(w, r)
			return
		}
		last = min(last, n)
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for {
		var all []Event
		if all, last, more = d.events.after(last, rule); len(all) > 0 {
			for _, e := range all {
				if out.Encode(e) != nil {
					return
				}
			}
		}
		if flush.Flush() != nil {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}
