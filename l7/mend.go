package l7

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// Mend asks for what an operator does to bucket keys of one rule by hand: to
// reset them, or to give back some of what was spent. It is plain data that
// survives JSON.
type Mend struct {
	Rule   string
	Client netip.Addr             // as far as the rule's bucket key needs it
	Keys   [][config.KeyPart]byte // how the hashes of API keys begin: a bucket each
	User   string
	Tenant string
	Grant  int64 // requests to give back to each; 0: reset
}

// Mended tells what came of it: sums over all buckets, in requests.
type Mended struct {
	Buckets   int   `json:"buckets"`   // that were asked for
	Used      int   `json:"used"`      // of which anything was known
	Was       int64 `json:"was"`       // how many requests had passed at once before
	Is        int64 `json:"is"`        // and pass now
	Quota     int64 `json:"quota"`     // and would, if nothing were spent
	Anonymous bool  `json:"anonymous"` // the bucket is that of requests without an identity
}

// Mend does what m asks. The bucket keys are those that requests of the client,
// key, user or tenant are charged to; what m leaves out of what the rule counts
// by is an error.
func (g *Gate) Mend(m Mend) (done Mended, err error) {
	p := g.policy.Load()
	if p == nil {
		return done, fmt.Errorf("rule %s: the gate has no rules yet", m.Rule)
	}
	i := slices.IndexFunc(p.rules, func(r rule) bool { return r.name == m.Rule })
	if i < 0 {
		return done, fmt.Errorf("no rule %q of the http gate", m.Rule)
	}
	if m.Client.IsValid() {
		m.Client = canonical(m.Client)
	}
	askers, err := p.askers(m)
	if err != nil {
		return done, fmt.Errorf("rule %s: %w", m.Rule, err)
	}
	d := newDecision(p)
	defer d.release()
	for j := range askers {
		if done.Anonymous, err = d.find(p, &p.rules[i], &askers[j], m); err != nil {
			return done, fmt.Errorf("rule %s: %w", m.Rule, err)
		}
	}
	now := g.now()
	for j := range d.charges {
		done.mend(g.store, now, &d.charges[j], m.Grant)
	}
	return done, nil
}

// mend resets the bucket of one charge, or gives n requests back.
func (done *Mended) mend(store *limit.Store, now limit.Ticks, c *limit.Charge, n int64) {
	was, known := store.Look(now, c.Key, c.Limit)
	if n > 0 {
		store.Grant(now, c.Key, c.Limit, n)
	} else {
		store.Reset(c.Key, c.Limit)
	}
	is, _ := store.Look(now, c.Key, c.Limit)
	done.Buckets++
	if known {
		done.Used++
	}
	done.Was, done.Is, done.Quota = done.Was+was.Remaining, done.Is+is.Remaining, done.Quota+c.Limit.Quota()
}

// askers returns whom m names: one for each key, else one.
func (p *policy) askers(m Mend) ([]asker, error) {
	one := asker{client: m.Client, user: m.User, learned: true, holder: holder{tenant: m.Tenant}}
	if m.Client.IsValid() {
		one.bucket = clientOf(m.Client, p.clientBits)
	}
	if len(m.Keys) == 0 {
		return []asker{one}, nil
	}
	var all []asker
	for _, part := range m.Keys {
		var sum [32]byte // its end counts for nothing here
		copy(sum[:], part[:])
		a := one
		a.identity, a.key = claimed, sum
		if p.keyFile {
			h, ok := p.keys.Find(sum)
			if !ok {
				return nil, errors.New("the key is not in the key file, so it counts as none")
			}
			a.identity, a.holder = verified, holder{h.Owner, h.Tenant, h.Plan}
		}
		all = append(all, a)
	}
	return all, nil
}

// find adds a charge for the bucket of a under r, and reports whether it is that
// of requests without an identity.
func (d *decision) find(p *policy, r *rule, a *asker, m Mend) (lost bool, err error) {
	if r.limit.Scope() != limit.Host {
		return false, errors.New("it is counted by the whole fleet, and this version mends only what is counted on one host")
	}
	c := limit.Charge{Limit: &r.limit}
	whom, per := r.whom, r.per
	var lacks []config.Per
	for _, part := range r.per {
		if part == config.PerKey && a.identity == anonymous || part == config.PerUser && a.user == "" || part == config.PerTenant && a.tenant == "" {
			lacks = append(lacks, part)
		}
	}
	if len(lacks) > 0 {
		if len(m.Keys) > 0 || m.User != "" || m.Tenant != "" || !m.Client.IsValid() {
			return false, fmt.Errorf("it counts per %s: name the %s too", wordsOf(r.per), wordsOf(lacks))
		}
		whom, per, c.Limit, lost = r.loser, r.lost, &r.spare, true
	}
	byClient := slices.Contains(per, config.PerClient) || !lost && slices.Contains(per, config.PerKey) && a.identity == claimed
	if byClient && !m.Client.IsValid() {
		return false, errors.New("its buckets belong to clients: name the client's address too")
	}
	d.begin(a)
	c.Key = r.account.Key(d.whomKey(p, whom, a))
	d.rules, d.charges = append(d.rules, r), append(d.charges, c)
	d.override(p, a)
	return lost, nil
}

func wordsOf(per []config.Per) (s string) {
	for i, p := range per {
		if i > 0 {
			s += " and "
		}
		s += string(p)
	}
	return s
}
