package l7

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gaissmai/bart"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// override is a config.Override made ready.
type override struct {
	holder // empty fields fit any
	user   string
	key    hashStart
	from   *bart.Lite // nil: from anywhere
	until  time.Time  // zero: for ever
	limit  limit.Limit
}

func (p *policy) newOverrides(r config.Rule) ([]override, error) {
	all := make([]override, 0, len(r.Overrides))
	for _, o := range r.Overrides {
		ready := override{holder: holder{o.Owner, o.Tenant, o.Plan}, user: o.User, from: table(o.From.Prefixes), until: o.Until}
		var err error
		if ready.key, err = newHashStart(o.Key); err == nil {
			ready.limit, err = p.newLimit(&r, o.Rate, o.Burst)
		}
		if err == nil && ready.holder == (holder{}) && o.User == "" && o.Key == "" && ready.from == nil {
			err = errors.New("it is for nobody: say owner, tenant, plan, user, key or from")
		}
		if err != nil {
			return nil, fmt.Errorf("override for %s: %w", o.Whom(), err)
		}
		all = append(all, ready)
	}
	return all, nil
}

// override gives the charge that was added last the figures of the first
// override that fits a; the bucket stays the same. Requests that have figures
// of their own for want of an identity keep those.
func (d *decision) override(p *policy, a *asker) {
	r, c := d.rules[len(d.rules)-1], &d.charges[len(d.charges)-1]
	if r.anonymous && c.Limit == &r.spare {
		return
	}
	for i := range r.overrides {
		if o := &r.overrides[i]; o.fits(a) && (o.until.IsZero() || p.wall().Before(o.until)) {
			c.Limit = &o.limit
			return
		}
	}
}

func (o *override) fits(a *asker) bool {
	switch {
	case o.holder != (holder{}) && (a.identity != verified || !o.holder.fits(&a.holder)),
		o.user != "" && a.user != o.user,
		o.key.digits > 0 && (a.identity == anonymous || !o.key.of(a.key)),
		o.from != nil && !o.from.Contains(a.client):
		return false
	}
	return true
}

// fits reports whether h is what o names.
func (o *holder) fits(h *holder) bool {
	return (o.owner == "" || o.owner == h.owner) && (o.tenant == "" || o.tenant == h.tenant) && (o.plan == "" || o.plan == h.plan)
}

// asksUser reports whether the figures may depend on who the user is.
func (o override) asksUser() bool { return o.user != "" }

// longest returns the longest time that any figures of r need to be full again.
func (r *rule) longest() time.Duration {
	longest := r.limit.Window()
	for i := range r.overrides {
		longest = max(longest, r.overrides[i].limit.Window())
	}
	return longest
}

// hashStart is how a hash begins: so many hex digits of it.
type hashStart struct {
	bytes  [32]byte
	digits int
}

func newHashStart(s string) (h hashStart, err error) {
	if len(s) > 2*len(h.bytes) {
		return h, fmt.Errorf("a hash of %d digits: the most is %d", len(s), 2*len(h.bytes))
	}
	for i := range len(s) {
		if !ishex(s[i]) {
			return h, fmt.Errorf("key: %q is no start of a hash", strings.ToValidUTF8(s, "?"))
		}
		h.bytes[i/2] |= unhex(s[i]) << (4 * (1 - i%2))
	}
	h.digits = len(s)
	return h, nil
}

// of reports whether sum begins so.
func (h *hashStart) of(sum [32]byte) bool {
	whole := h.digits / 2
	return string(sum[:whole]) == string(h.bytes[:whole]) && (h.digits%2 == 0 || sum[whole]>>4 == h.bytes[whole]>>4)
}
