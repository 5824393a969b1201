package fleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	randv2 "math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/fleet/credit"
	"github.com/headgate/headgate/limit"
)

const (
	beat  = time.Second     // how often a host says that it is alive
	alive = 3 * time.Second // how long it is believed

	// Probes of a Redis that is out of reach begin fast and slow down, at
	// random moments: a fleet must not come back all at once.
	firstProbe = 50 * time.Millisecond
	lastProbe  = 800 * time.Millisecond
)

// Member is this host in its fleet. Make one with Join.
type Member struct {
	o        Options
	names    names
	client   redis.UniversalClient
	store    *limit.Store
	facts    *limit.Fleet
	clock    func() limit.Ticks
	log      *slog.Logger
	life     string // this process, unlike any other
	reporter *credit.Reporter
	done     chan flight
	asks     chan *question
	haste    chan struct{}         // a decision had to ask: report before the tick
	words    atomic.Uint64         // makes the words of decisions
	fault    atomic.Pointer[error] // of the last call that failed

	mu     sync.Mutex
	state  State
	probe  time.Duration // until the next, when out of reach
	Counts Counts
}

// Counts are a member's counters; each only grows.
type Counts struct {
	Calls    atomic.Uint64 // to Redis, of all kinds
	Updates  atomic.Uint64 // bucket keys reported
	Asked    atomic.Uint64 // decisions that asked Redis
	Late     atomic.Uint64 // of those, how many had to be decided without it
	Failures atomic.Uint64 // calls that failed or were not answered
}

// State is how a member stands.
type State struct {
	Up     bool      `json:"up"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"` // why it is not up
	Hosts  []string  `json:"hosts,omitempty"`  // known when last heard of
	Others []string  `json:"others,omitempty"` // of them, those that have another secret: they share nothing with this one
}

// Join makes this host a member of its fleet. store keeps what it counts, on
// clock, and makes its keys with the fleet's secret: it must be new. Nothing is
// sent before Run.
func Join(o Options, store *limit.Store, clock func() limit.Ticks, log *slog.Logger) (*Member, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Tick == 0 {
		o.Tick = DefaultTick
	}
	if o.Deadline == 0 {
		o.Deadline = defaultDeadline
	}
	client, err := o.Client()
	if err != nil {
		return nil, err
	}
	var life [8]byte
	rand.Read(life[:])
	m := &Member{
		o: o, names: newNames(&o), client: client, store: store, clock: clock, log: log,
		facts: limit.NewFleet(o.Tick), life: hex.EncodeToString(life[:]),
		done: make(chan flight, shards), asks: make(chan *question, 256), haste: make(chan struct{}, 1),
		state: State{Since: time.Now(), Reason: "not connected yet"},
	}
	m.facts.SetHosts(o.Expected)
	m.facts.SetCut(true)
	store.Share(limit.NewSecretHasher(o.Secret))
	m.reporter = credit.NewReporter(store, m.facts, m.names.shards, m.names.shard)
	return m, nil
}

// Facts is what limits of this fleet go by.
func (m *Member) Facts() *limit.Fleet { return m.facts }

// Expect says how many hosts the fleet has as far as is known, until Redis has
// answered.
func (m *Member) Expect(hosts int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.state.Hosts) == 0 {
		m.facts.SetHosts(hosts)
	}
}

// State tells how the member stands.
func (m *Member) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Run reports and asks until ctx ends; then it reports what is left and leaves.
func (m *Member) Run(ctx context.Context) error {
	g, run := errgroup.WithContext(ctx)
	for range askers {
		g.Go(func() error { return m.ask(run) })
	}
	g.Go(func() error { return m.loop(run) })
	err := g.Wait()
	m.leave()
	return err
}

// loop owns the reporter: it reports each tick, says each second that this host
// is alive, and probes a Redis that is out of reach.
func (m *Member) loop(ctx context.Context) error {
	tick := time.NewTicker(m.o.Tick)
	defer tick.Stop()
	beats := time.NewTimer(0)
	defer beats.Stop()
	pulse := make(chan error, 1)
	beating := false
	var reported time.Time
	report := func() {
		reported = time.Now()
		m.report(ctx, m.reporter.Tick(m.clock()))
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beats.C:
			if !beating {
				beating = true
				go func() { pulse <- m.beat(ctx) }()
			}
		case err := <-pulse:
			beating = false
			beats.Reset(m.after(err))
		case f := <-m.done:
			m.land(f)
			m.report(ctx, m.reporter.Due(m.clock()))
		case <-m.haste:
			if time.Since(reported) >= credit.Haste {
				report()
			}
		case <-tick.C:
			report()
		}
	}
}

// after takes up the outcome of a beat and returns when the next is due.
func (m *Member) after(err error) time.Duration {
	if err == nil {
		m.probe = firstProbe
		m.heard()
		return beat
	}
	m.lost(err)
	if !m.facts.Cut() {
		return firstProbe
	}
	m.probe = min(max(m.probe, firstProbe)*2, lastProbe)
	return jitter(m.probe)
}

// jitter returns between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + randv2.N(d/2) }

// beat says that this host is alive and learns who else is.
func (m *Member) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m.Counts.Calls.Add(1)
	me := m.o.Host + "/" + m.life + " " + Fingerprint(m.o.Secret)
	reply, err := hosts.Run(ctx, m.client, []string{m.names.hosts()}, me, alive.Microseconds(), 1).Slice()
	if err != nil {
		return err
	}
	n := numbers{words: reply}
	n.int()
	all, others := n.hosts(m.o.Secret)
	if n.err != nil {
		return n.err
	}
	m.facts.SetHosts(len(all) - len(others))
	m.mu.Lock()
	changed := len(others) > 0 && len(m.state.Others) == 0
	m.state.Hosts, m.state.Others = all, others
	m.mu.Unlock()
	if changed {
		m.log.Warn("hosts of this fleet have another secret and share no count with this one: give all the same fleet.secret_file", "hosts", strings.Join(others, " "))
	}
	return nil
}

// heard says that Redis answers.
func (m *Member) heard() {
	m.reporter.Heard()
	m.turn(true, "")
}

// lost says that Redis does not.
func (m *Member) lost(err error) {
	m.Counts.Failures.Add(1)
	m.fault.Store(&err)
	m.reporter.Silent(m.clock())
	m.despair()
}

// despair notes that this host goes on alone, if it does.
func (m *Member) despair() {
	if !m.facts.Cut() {
		return
	}
	why := "no answer"
	if err := m.fault.Load(); err != nil {
		why = Why(*err)
	}
	m.turn(false, why)
}

// turn notes and logs a change of state.
func (m *Member) turn(up bool, reason string) {
	m.mu.Lock()
	first := m.state.Reason == "not connected yet"
	changed := m.state.Up != up || first
	if m.state.Up = up; up || reason != "" {
		m.state.Reason = reason
	}
	if reason = m.state.Reason; changed {
		m.state.Since = time.Now()
	}
	hosts := len(m.state.Hosts)
	m.mu.Unlock()
	switch {
	case changed && up:
		m.log.Info("the fleet is within reach: limits are counted over all hosts", "fleet", m.o.Name, "hosts", hosts)
	case changed:
		m.log.Warn("the fleet is out of reach: this host goes on alone with its share of each limit", "fleet", m.o.Name, "why", reason)
	}
}

// leave reports what is left, takes this host off the list, and closes.
func (m *Member) leave() {
	defer m.client.Close()
	if m.facts.Cut() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, b := range m.reporter.Last(m.clock()) {
		m.debit(ctx, b)
	}
	me := m.o.Host + "/" + m.life + " " + Fingerprint(m.o.Secret)
	hosts.Run(ctx, m.client, []string{m.names.hosts()}, me, alive.Microseconds(), 0)
}
