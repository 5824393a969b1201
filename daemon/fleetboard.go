package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/fleet"
	"github.com/headgate/headgate/fleet/board"
	"github.com/headgate/headgate/l7"
)

// fleetBoard keeps this host in step with what holds on all hosts.
type fleetBoard struct {
	*fleet.Board
	*board.Follower
	name string // of the fleet
	id   string // see fleetID
	host string // as others see it
	life string // this process
	seal *board.Sealer

	password *fleet.Secret

	mu    sync.Mutex
	err   error     // why it is out of reach; nil: it is not
	since time.Time // when that changed
	hosts []fleet.HostSeen
	asked time.Time // when hosts was true
	last  int64     // version posted last, then
	now   int64     // Redis' clock, then
}

// joinBoard makes the board of cfg's fleet; nil where there is none.
func (d *daemon) joinBoard(cfg *config.Config) (*fleetBoard, error) {
	if cfg.Fleet == nil {
		return nil, nil
	}
	o, err := l7.FleetOptions(cfg.Fleet)
	if err != nil {
		return nil, err
	}
	var life [8]byte
	rand.Read(life[:])
	b := &fleetBoard{
		name: o.Name, host: o.Host, id: fleetID(&o), life: hex.EncodeToString(life[:]), seal: board.NewSealer(o.Secret),
		password: o.Password, err: fmt.Errorf("not asked yet"), since: d.now(),
	}
	if b.Board, err = fleet.NewBoard(o, b.life, d.version); err != nil {
		return nil, err
	}
	b.Follower = board.NewFollower(b.Board, (*boardHolder)(d))
	return b, nil
}

// keepBoard keeps this host in step until ctx ends.
func (d *daemon) keepBoard(ctx context.Context) error {
	b := d.board
	if b == nil {
		return nil
	}
	defer b.Close()
	return b.Keep(ctx, b.Follower, func(err error) {
		b.mu.Lock()
		b.err, b.since = err, d.now()
		b.mu.Unlock()
		if err != nil {
			d.log.Debug("what holds on all hosts is out of reach", "why", fleet.Why(err))
		} else {
			d.log.Debug("in step with what holds on all hosts")
		}
	})
}

// recallBoard makes what st has of another fleet, or of none, be forgotten, and
// reads the rest.
func (d *daemon) recallBoard(st state) state {
	p := &st.Posted
	if d.board == nil || p.Fleet != d.board.id {
		if n := len(p.live(d.now())); n > 0 {
			d.log.Warn("blocks and rules of another fleet, or secret, are no longer in force", "fleet", strings.Split(p.Fleet, "/")[0], "entries", n)
		}
		*p = posted{}
		if d.board != nil {
			p.Fleet = d.board.id
		}
		return st
	}
	for _, n := range p.Notices {
		n.open(d.board.seal)
	}
	return st
}

// boardHolder is the daemon as the board's follower sees it.
type boardHolder daemon

// Copy is board.Holder's.
func (h *boardHolder) Copy() (board.Copy, int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := board.Copy{}
	for _, n := range h.added.Posted.Notices {
		if b := n.base(); b != nil {
			c[n.ID] = *b
		}
	}
	return c, h.added.Posted.Synced
}

// Drafts is board.Holder's. What ended before it could be posted is taken down
// instead.
func (h *boardHolder) Drafts() (out []board.Draft) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	for _, n := range h.added.Posted.Notices {
		if !n.Draft {
			continue
		}
		d := board.Draft{Notice: n.Notice}
		if n.Base != nil {
			d.Keep = n.Base.Keep
		}
		if d.Left = n.Ends.Sub(now); n.Ends.IsZero() {
			d.Left = 0
		} else if d.Left <= 0 {
			d.Left, d.Gone, d.Sealed = 0, true, nil
		}
		out = append(out, d)
	}
	return out
}

// Posted is board.Holder's.
func (h *boardHolder) Posted(now int64, all []board.Notice) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.added
	for _, p := range all {
		old := next.Posted.find(p.ID)
		if old == nil {
			continue
		}
		n := *old
		if sent := (&notice{Notice: p}); old.same(sent) || ended(old.Ends, h.now()) {
			n.Notice, n.Draft, n.Base = p, false, nil
		} else {
			n.Base = &p // it was changed meanwhile
		}
		next.Posted = next.Posted.with(&n)
	}
	if err := h.store.save(next, h.now()); err != nil {
		return err
	}
	h.added = next
	return nil
}

// resaved is how often it is written down that this host is in step, where
// nothing else is.
const resaved = 24 * time.Hour

// Take is board.Holder's.
func (h *boardHolder) Take(now int64, news []board.Notice, all bool) error {
	d := (*daemon)(h)
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.added
	old := next.Posted
	if all {
		next.Posted.Notices = slices.DeleteFunc(slices.Clone(next.Posted.Notices), func(n *notice) bool { return !n.Draft })
	}
	var fresh []*notice
	for _, n := range news {
		have := next.Posted.find(n.ID)
		if b := have.base(); b != nil && b.Version >= n.Version {
			continue
		}
		if have != nil && have.Draft {
			c := *have
			c.Base = &n
			next.Posted = next.Posted.with(&c)
			continue
		}
		fresh = append(fresh, d.received(n, now))
		next.Posted = next.Posted.with(fresh[len(fresh)-1])
	}
	next.Posted.Notices = slices.DeleteFunc(slices.Clone(next.Posted.Notices), func(n *notice) bool {
		return !n.Draft && n.Keep <= now
	})
	stale := time.Duration(now-old.Synced)*time.Microsecond > resaved
	next.Posted.Synced = now
	if len(fresh) == 0 && len(next.Posted.Notices) == len(old.Notices) && !all && !stale {
		d.added.Posted.Synced = now
		return nil
	}
	if err := d.commitNews(context.Background(), next); err != nil {
		return err
	}
	d.noteNews(fresh, old)
	return nil
}

// received is n as this host takes it, which came at now of Redis' clock. A block
// that would cut this host off from what it lives by is set aside, unless it was
// forced.
func (d *daemon) received(n board.Notice, now int64) *notice {
	out := &notice{Notice: n}
	if n.End != 0 {
		out.Ends = d.now().Add(time.Duration(n.End-now) * time.Microsecond)
	}
	out.open(d.board.seal)
	if b := out.says.Block; b != nil && !out.says.Force {
		if err := d.policy.endangers(b.Prefix, d.guardFor(Origin{})); err != nil {
			out.Aside = err.Error()
		}
	}
	return out
}

// commitNews makes next what holds, which came from the fleet: what does not go
// with the rest is set aside. The caller holds d.mu.
func (d *daemon) commitNews(ctx context.Context, next state) error {
	now := d.now()
	next = next.live(now)
	p, err := merge(d.policy.cfg, next, named(d.kept))
	if err != nil {
		return err
	}
	if err := d.store.save(next, now); err != nil {
		return err
	}
	if err := d.enforce(ctx, p); err != nil {
		if back := d.store.save(d.added, now); back != nil {
			err = fmt.Errorf("%w; going back failed too: %w", err, back)
		}
		return err
	}
	d.added = next
	d.poke()
	return nil
}

// mostNoted bounds how many changes of others one look at the board writes into
// the record.
const mostNoted = 20

// noteNews writes what others changed into the log and the record of changes.
func (d *daemon) noteNews(fresh []*notice, old posted) {
	for i, n := range fresh {
		if i == mostNoted {
			d.log.Info("more changes for all hosts", "changes", len(fresh)-i)
			return
		}
		was := old.find(n.ID)
		of := n
		if n.Gone {
			if of = was; was == nil || was.Gone {
				continue
			}
		}
		what, subject, detail := of.says.words()
		if n.Gone {
			what = map[string]string{"block": "unblock", "allow": "disallow", "rule add": "rule rm", "override add": "override rm"}[what]
		}
		if n.Aside != "" {
			d.log.Warn("what was said to all hosts is not in force here", "what", what, "subject", subject, "why", n.Aside)
		}
		if what == "" || of.says.origin().By == FromDaemon {
			continue
		}
		who := *of.says.origin()
		if n.Gone {
			who = Origin{From: FromFleet} // who took it down is in that host's record
		}
		d.note(change{what: what, subject: subject, detail: detail, who: who})
	}
}

// BoardStatus is how this host stands with what holds on all hosts of its fleet.
type BoardStatus struct {
	Fleet    string      `json:"fleet"`
	Up       bool        `json:"up"`
	Since    time.Time   `json:"since"`
	Error    string      `json:"error,omitempty"`
	Revision int64       `json:"revision"`         // up to which this host follows; microseconds of Redis' clock
	Entries  int         `json:"entries"`          // in force on all hosts
	Drafts   int         `json:"drafts,omitempty"` // waiting to be posted
	Hosts    []BoardHost `json:"hosts,omitempty"`  // of the last day, as last heard
}

// BoardHost is one host of the fleet.
type BoardHost struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Revision int64  `json:"revision"`
	Behind   int64  `json:"behind_ms,omitempty"` // since what it lacks was posted, milliseconds
	Seen     int64  `json:"seen_ms"`             // since it was heard of, milliseconds
	Alive    bool   `json:"alive"`
	Self     bool   `json:"self,omitempty"`
	Other    bool   `json:"other_secret,omitempty"` // it shares nothing with this host
}

// boardStatus asks who is there, at most once a second. The caller does not hold
// d.mu.
func (d *daemon) boardStatus(ctx context.Context) *BoardStatus {
	b := d.board
	if b == nil {
		return nil
	}
	b.look(ctx, d.now())
	d.mu.Lock()
	live, drafts := len(d.added.Posted.live(d.now())), 0
	for _, n := range d.added.Posted.Notices {
		if n.Draft {
			drafts++
		}
	}
	d.mu.Unlock()
	st := &BoardStatus{Fleet: b.name, Revision: b.Cursor(), Entries: live, Drafts: drafts}
	b.mu.Lock()
	defer b.mu.Unlock()
	st.Up, st.Since = b.err == nil, b.since.Round(0).UTC()
	if b.err != nil {
		st.Error = fleet.Why(b.err)
	}
	age := d.now().Sub(b.asked)
	for _, h := range b.hosts {
		seen := h.Ago + age
		out := BoardHost{
			Name: h.Name, Version: h.Version, Revision: h.Revision, Seen: seen.Milliseconds(),
			Alive: seen < hostAlive, Self: h.Life == b.life, Other: h.Other,
		}
		if h.Revision < b.last && out.Alive && !h.Other {
			out.Behind = max(1, (b.now-b.last)/1000+age.Milliseconds())
		}
		st.Hosts = append(st.Hosts, out)
	}
	slices.SortFunc(st.Hosts, func(a, b BoardHost) int { return strings.Compare(a.Name, b.Name) })
	return st
}

// look asks Redis who is there, unless it did just now or is out of reach.
func (b *fleetBoard) look(ctx context.Context, now time.Time) {
	b.mu.Lock()
	fresh := b.err != nil || now.Sub(b.asked) < time.Second
	b.mu.Unlock()
	if fresh {
		return
	}
	all, err := b.Hosts(ctx, b.Cursor())
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hosts, b.last, b.now, b.asked = all.Hosts, all.Newest, all.Now, now
}
