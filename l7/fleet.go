package l7

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/fleet"
	"github.com/headgate/headgate/limit"
)

// shared makes l counted where r says: on this host, or by the fleet.
func (p *policy) shared(l limit.Limit, r *config.Rule) (limit.Limit, error) {
	scopes := map[config.Scope]limit.Scope{config.ScopeFleet: limit.Lines, config.ScopeExact: limit.Exact}
	scope, ok := scopes[r.ScopeIn(p.fleet)]
	if !ok || p.member == nil {
		return l, nil
	}
	outages := map[config.Outage]limit.Outage{config.OutageOpen: limit.Open, config.OutageClosed: limit.Closed}
	l, err := l.Shared(scope, p.member.Facts())
	return l.Out(outages[r.Outage]), err
}

// joined is this host's membership and what it was made of.
type joined struct {
	*fleet.Member
	made     config.Fleet
	password *fleet.Secret
	leave    context.CancelFunc
	left     chan struct{}
}

// join makes the gate a member of f's fleet with its first policy. Later ones
// may only change the password. The caller holds g.mu.
func (g *Gate) join(f *config.Fleet) error {
	first := g.policy.Load() == nil
	switch {
	case f == nil && g.joined == nil:
		return nil
	case g.joined == nil && !first || f == nil:
		return errors.New("fleet changes only with a restart")
	case g.joined != nil:
		if !f.Same(&g.joined.made) {
			return errors.New("fleet changes only with a restart, but for its password")
		}
		g.joined.password.Set(f.Redis.Password)
		g.joined.Expect(f.Hosts)
		return nil
	}
	o, err := FleetOptions(f)
	if err != nil {
		return err
	}
	m, err := fleet.Join(o, g.store, g.now, g.log)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(context.Background())
	j := &joined{m, *f, o.Password, leave, make(chan struct{})}
	g.joined = j
	go func() {
		m.Run(ctx)
		close(j.left)
	}()
	return nil
}

// FleetOptions are how this host finds the fleet that f names.
func FleetOptions(f *config.Fleet) (fleet.Options, error) {
	tls, err := f.Redis.TLS.Client()
	if err != nil {
		return fleet.Options{}, err
	}
	password := new(fleet.Secret)
	password.Set(f.Redis.Password)
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	return fleet.Options{
		Name: f.Name, Secret: f.Secret, Host: name, Expected: f.Hosts,
		Addresses: f.Redis.Addresses, Sentinel: f.Redis.Sentinel, Cluster: f.Redis.Cluster,
		User: f.Redis.User, Password: password, TLS: tls,
	}, nil
}

// FleetState is how the gate stands in its fleet.
type FleetState struct {
	fleet.State
	Name  string `json:"name"`
	Calls uint64 `json:"calls"` // to Redis
	Asked uint64 `json:"asked"` // decisions that asked Redis
	Late  uint64 `json:"late"`  // of those, decided without its answer
}

// Fleet tells how the gate stands in its fleet; nil if it is in none.
func (g *Gate) Fleet() *FleetState {
	g.mu.Lock()
	j := g.joined
	g.mu.Unlock()
	if j == nil {
		return nil
	}
	c := &j.Member.Counts
	return &FleetState{j.State(), j.made.Name, c.Calls.Load(), c.Asked.Load(), c.Late.Load()}
}

// settle asks the fleet where only it can tell, and lets it know of a refusal
// that it counts.
func (d *decision) settle(p *policy) bool {
	if limit.Asking(d.charges) {
		return p.member.Decide(d.charges)
	}
	p.member.Refused(d.charges)
	return false
}

// down reports whether a request is refused only because the fleet is out of
// reach.
func (d *decision) down() bool {
	out := false
	for i := range d.charges {
		if c := &d.charges[i]; c.Refused && !c.Watch {
			if !c.Down {
				return false
			}
			out = true
		}
	}
	return out
}

// reducedCapacity is registered by draft-ietf-httpapi-ratelimit-headers.
const reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

// close answers a request that a closed rule refuses while the fleet is out of
// reach. The client did nothing wrong, so it is no 429.
func (v *visit) close() {
	v.Header().Set("Retry-After", "5")
	v.Header().Set("Cache-Control", "no-store")
	answer(v, problem{
		Type: reducedCapacity, Title: "Request cannot be satisfied due to temporary server capacity constraints",
		Status: http.StatusServiceUnavailable, Detail: "limits cannot be counted just now: try again in 5 s",
	})
}

// Overshoot is how many requests more than r alone would allow a fleet of so
// many hosts may admit in any window, while it is connected: see
// limit.Limit.Overshoot. It is 0 where r is not counted by credit lines.
func Overshoot(r *config.Rule, f *config.Fleet, hosts int) int64 {
	if r.ScopeIn(f) != config.ScopeFleet {
		return 0
	}
	l, err := hostLimit(limit.NewStore(0), r, r.Rate, r.Burst)
	if err != nil {
		return 0
	}
	facts := limit.NewFleet(fleet.DefaultTick)
	facts.SetHosts(hosts)
	if l, err = l.Shared(limit.Lines, facts); err != nil {
		return 0
	}
	return l.Overshoot(roundTrip)
}

// roundTrip to Redis is taken for this long at most where the bound is told.
const roundTrip = 10 * time.Millisecond
