package l7

import (
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// counts are a rule's counters, alone on their cache line.
type counts struct {
	passed, refused, watched, over atomic.Uint64
	_                              [32]byte
}

// verdict is what becomes of a request.
type verdict int

const (
	pass       verdict = iota
	free               // passes without being counted: allowed or exempt
	blocked            // by prefix
	refused            // by a rule
	down               // by a rule that is closed while the fleet is out of reach
	unreadable         // its path is too long to tell which rules it meets
)

// decision is the work sheet of one request. It is used again for others of the
// same policy, so that what it points to need not be wiped out each time.
type decision struct {
	policy  *policy
	paths   []string
	found   []int32        // positions of the rules that match
	rules   []*rule        // one for each charge
	per     [][]config.Per // what each charge counts by
	charges []limit.Charge
	items   []item // room for standing
	text    []byte // room for what is hashed
	hashed  uint64 // which of whoms are known
	whoms   [mostWhoms]limit.Key
}

// textRoom holds the parts of a bucket key but for the longest names of users.
const textRoom = 256

var decisions = sync.Pool{New: func() any { return new(decision) }}

func newDecision(p *policy) *decision {
	d := decisions.Get().(*decision)
	if d.policy != p {
		*d = decision{policy: p, text: make([]byte, 0, textRoom)}
	}
	return d
}

func (d *decision) release() {
	d.paths, d.rules, d.charges, d.per = d.paths[:0], d.rules[:0], d.charges[:0], d.per[:0]
	decisions.Put(d)
}

// judge decides r, sent by a, at now and counts the verdict.
func (d *decision) judge(p *policy, r *http.Request, a *asker, now limit.Ticks) verdict {
	switch {
	case contains(p.allow, a.client):
		return free
	case contains(p.block, a.client):
		return blocked
	}
	d.begin(a)
	var ok bool
	if d.paths, ok = readings(pathOf(r), d.paths); !ok {
		return unreadable
	}
	if p.exempts(a.client, d.paths) {
		return free
	}
	if !d.collect(p, r, a, now) {
		if len(d.charges) > 0 && p.store.Refuses(now, d.charges) {
			d.count(false)
			return refused
		}
		p.learnUser(a)
		d.rules, d.charges, d.per = d.rules[:0], d.charges[:0], d.per[:0]
		d.collect(p, r, a, now)
	}
	if len(d.charges) == 0 {
		return pass
	}
	if ok = p.store.Take(now, d.charges); !ok && p.member != nil {
		ok = d.settle(p)
	}
	d.count(ok)
	switch {
	case ok:
	case p.member != nil && d.down():
		return down
	default:
		return refused
	}
	return pass
}

// collect finds the rules that match r and the buckets to charge. It reports
// false if it left out rules that ask for the user, because a signature would
// have to be checked: those that go by the address alone may refuse before.
func (d *decision) collect(p *policy, r *http.Request, a *asker, now limit.Ticks) (all bool) {
	if isPreflight(r) {
		d.add(p, &p.preflight, a, now)
		return true
	}
	var host string
	if p.byHost {
		host = hostOf(r.Host)
	}
	d.found = p.index.find(r.Method, host, d.paths, d.found[:0])
	all = true
	for _, i := range d.found {
		rule := &p.rules[i]
		switch {
		case rule.asks && !p.recallUser(a):
			all = false
		case !rule.match.more || rule.match.fits(p, r, a):
			d.add(p, rule, a, now)
			if len(rule.overrides) > 0 {
				d.override(p, a)
			}
		}
	}
	return all
}

func (d *decision) add(p *policy, r *rule, a *asker, now limit.Ticks) {
	figures, whom, per := &r.limit, r.whom, r.per
	if r.lacks && !d.identified(r, p.store, a, now) {
		figures, whom, per = &r.spare, r.loser, r.lost
	}
	d.rules = append(d.rules, r)
	d.per = append(d.per, per)
	d.charges = append(d.charges, limit.Charge{})
	c := &d.charges[len(d.charges)-1]
	c.Limit, c.Account, c.Watch = figures, r.account, r.watch
	c.Key = r.account.Key(d.whomKey(p, whom, a))
}

// appendParts appends what of a the bucket key is made of.
func (a *asker) appendParts(b []byte, per []config.Per) []byte {
	for _, part := range per {
		switch part {
		case config.PerClient:
			b = limit.AppendPart(b, 'c', a.bucket[:])
		case config.PerKey:
			b = a.appendKey(b)
		case config.PerUser:
			b = limit.AppendPart(b, 'u', []byte(a.user))
		case config.PerTenant:
			b = limit.AppendPart(b, 't', []byte(a.tenant))
		}
	}
	return b
}

// identified reports whether a has all identities that r counts by.
func (d *decision) identified(r *rule, store *limit.Store, a *asker, now limit.Ticks) bool {
	for _, part := range r.per {
		switch {
		case part == config.PerUser && a.user == "",
			part == config.PerTenant && a.tenant == "",
			part == config.PerKey && !d.holdsKey(r, store, a, now):
			return false
		}
	}
	return true
}

// holdsKey reports whether a's API key has a bucket of its own under r. A
// verified one has; a claimed one while its client holds no more than
// limit.MaxHeld of them. A key is held until the bucket it was last used with
// is full again at the latest, so changing keys never gains a budget.
func (d *decision) holdsKey(r *rule, store *limit.Store, a *asker, now limit.Ticks) bool {
	if a.identity != claimed {
		return a.identity == verified
	}
	d.text = append(r.id.Append(d.text[:0]), setHeld)
	set := store.Key(limit.AppendPart(d.text, 'c', a.bucket[:]))
	d.text = limit.AppendPart(d.text[:0], 'k', a.key[:config.KeyPart])
	return store.Hold(set, store.Key(d.text), now, now+limit.FromDuration(r.longest()))
}

// count adds the outcome to each rule's counters: a rule has passed what it was
// charged for.
func (d *decision) count(ok bool) {
	for i, r := range d.rules {
		if r.counts == nil {
			continue
		}
		switch c := &d.charges[i]; {
		case c.Refused && c.Watch:
			r.counts.watched.Add(1)
		case c.Refused:
			r.counts.refused.Add(1)
		case ok:
			r.counts.passed.Add(1)
			if c.Answer.Over {
				r.counts.over.Add(1)
			}
		}
	}
}

// watched returns the name of a rule that would have refused if it did not watch,
// empty if there is none.
func (d *decision) watched() string {
	for i := range d.charges {
		if c := &d.charges[i]; c.Refused && c.Watch {
			return d.rules[i].name
		}
	}
	return ""
}
