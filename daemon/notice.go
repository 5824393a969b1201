package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/fleet"
	"github.com/headgate/headgate/fleet/board"
)

// posted is this host's copy of what holds on all hosts of its fleet. It is a
// value, like state.
type posted struct {
	Fleet   string    `json:"fleet"`  // its name, and which secret it has
	Synced  int64     `json:"synced"` // when it was last in step, by Redis' clock
	Hosts   int       `json:"hosts"`  // alive, as last heard
	Notices []*notice `json:"notices"`
}

// notice is one of them. It is never changed: another takes its place.
type notice struct {
	board.Notice
	Ends  time.Time     `json:"ends,omitzero"`   // by this host's clock; zero: never
	Draft bool          `json:"draft,omitempty"` // not posted yet
	Base  *board.Notice `json:"base,omitempty"`  // of a draft: what it takes the place of
	Aside string        `json:"aside,omitempty"` // why it is not in force here

	says saying // what is sealed in it
}

// saying is what a notice says: exactly one of its parts.
type saying struct {
	Block    *Entry         `json:"block,omitempty"`
	Allow    *Entry         `json:"allow,omitempty"`
	Rule     *addedRule     `json:"rule,omitempty"`
	Override *addedOverride `json:"override,omitempty"`
	Force    bool           `json:"force,omitempty"` // whomever it locks out
}

// entry returns the part of s that is of kind k; nil if it says something else.
func (s *saying) entry(k kind) *Entry {
	if k.name == blocks.name {
		return s.Block
	}
	return s.Allow
}

// of returns a saying of an entry of kind k.
func (k kind) saying(e Entry, force bool) saying {
	if k.name == blocks.name {
		return saying{Block: &e, Force: force}
	}
	return saying{Allow: &e}
}

// id names s: what has the same name takes its place.
func (s *saying) id(seal *board.Sealer) string {
	switch {
	case s.Block != nil:
		return seal.ID("block", s.Block.Prefix.String()+" "+s.Block.Reason)
	case s.Allow != nil:
		return seal.ID("allow", s.Allow.Prefix.String()+" "+s.Allow.Reason)
	case s.Rule != nil:
		return seal.ID("rule", s.Rule.Name)
	case s.Override != nil:
		return seal.ID("override", s.Override.Rule+" "+s.Override.Whom)
	}
	return ""
}

// origin is where s came from.
func (s *saying) origin() *Origin {
	switch {
	case s.Block != nil:
		return &s.Block.Origin
	case s.Allow != nil:
		return &s.Allow.Origin
	case s.Rule != nil:
		return &s.Rule.Origin
	case s.Override != nil:
		return &s.Override.Origin
	}
	return &Origin{}
}

// words says what s is, as a record of changes has it.
func (s *saying) words() (what, subject, detail string) {
	switch {
	case s.Block != nil:
		return "block", short4(s.Block.Prefix), s.Block.Reason
	case s.Allow != nil:
		return "allow", short4(s.Allow.Prefix), s.Allow.Reason
	case s.Rule != nil:
		return "rule add", s.Rule.Name, s.Rule.Text
	case s.Override != nil:
		return "override add", s.Override.Rule, s.Override.Text
	}
	return "", "", ""
}

// fleetID tells fleets and secrets apart, so that a host that changes its fleet
// does not carry notices from one to the other.
func fleetID(o *fleet.Options) string { return o.Name + "/" + fleet.Fingerprint(o.Secret) }

// open reads what a notice says. One that does not read is set aside.
func (n *notice) open(seal *board.Sealer) {
	if n.Gone {
		return
	}
	text, err := seal.Open(&n.Notice)
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		err = dec.Decode(&n.says)
	}
	switch {
	case err != nil:
		n.Aside = fmt.Sprintf("it does not read, for another version of headgate wrote it: %v", err)
		n.says = saying{}
	case n.says.id(seal) != n.ID:
		n.Aside = "it is not what it is called"
		n.says = saying{}
	default:
		n.says.settle()
	}
}

// settle makes s what it is on this host: of the fleet, and valid.
func (s *saying) settle() {
	s.origin().From = FromFleet
	for _, e := range []*Entry{s.Block, s.Allow} {
		if e != nil && checkPrefix(e.Prefix) != nil {
			*s = saying{}
			return
		}
	}
}

// draft returns a notice that says s until end, in the place of old, which may
// be nil.
func draft(seal *board.Sealer, s saying, end time.Time, old *notice) (*notice, error) {
	id := s.id(seal)
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	sealed, err := seal.Seal(id, text)
	if err != nil {
		return nil, badInput("not for all hosts: %v", err)
	}
	n := &notice{Notice: board.Notice{ID: id, Sealed: sealed}, Ends: end, Draft: true, Base: old.base(), says: s}
	n.says.settle()
	return n, nil
}

// base returns what of n was posted.
func (n *notice) base() *board.Notice {
	switch {
	case n == nil:
		return nil
	case n.Draft:
		return n.Base
	}
	return &n.Notice
}

// takenDown returns a draft that takes n down.
func (n *notice) takenDown() *notice {
	return &notice{Notice: board.Notice{ID: n.ID, Gone: true}, Draft: true, Base: n.base()}
}

// with returns p with n, in the place of what has its id.
func (p posted) with(n *notice) posted {
	p.Notices = slices.Clone(p.Notices)
	if i := p.index(n.ID); i >= 0 {
		p.Notices[i] = n
	} else {
		p.Notices = append(p.Notices, n)
	}
	return p
}

func (p posted) index(id string) int {
	return slices.IndexFunc(p.Notices, func(n *notice) bool { return n.ID == id })
}

// find returns the notice of that id, or nil.
func (p posted) find(id string) *notice {
	if i := p.index(id); i >= 0 {
		return p.Notices[i]
	}
	return nil
}

// live returns what is to be in force at now.
func (p posted) live(now time.Time) (out []*notice) {
	for _, n := range p.Notices {
		if !n.Gone && !ended(n.Ends, now) {
			out = append(out, n)
		}
	}
	return out
}

// entries returns the live entries of kind k with exactly that prefix, or of
// those the ones with that reason.
func (p posted) entries(k kind, pre netip.Prefix, reason *string, now time.Time) (out []*notice) {
	for _, n := range p.live(now) {
		if e := n.says.entry(k); e != nil && e.Prefix == pre && (reason == nil || e.Reason == *reason) {
			out = append(out, n)
		}
	}
	return out
}

// asEntry is what n says of a prefix, with its end.
func (n *notice) asEntry(k kind) Entry {
	e := *n.says.entry(k)
	e.End = n.Ends
	return e
}

// moved returns p with all ends moved.
func (p posted) moved(move func(time.Time) time.Time) posted {
	p.Notices = slices.Clone(p.Notices)
	for i, n := range p.Notices {
		if !n.Ends.IsZero() {
			c := *n
			c.Ends = move(n.Ends)
			p.Notices[i] = &c
		}
	}
	return p
}

// noticePatch is the part of one notice in a change; nil where there was, or
// is, none.
type noticePatch struct {
	Was *notice `json:"was,omitempty"`
	Is  *notice `json:"is,omitempty"`
}

// same reports whether a and b say the same, posted or not.
func (n *notice) same(o *notice) bool {
	if n == nil || o == nil || n.Gone || o.Gone {
		return (n == nil || n.Gone) == (o == nil || o.Gone)
	}
	return bytes.Equal(n.Sealed, o.Sealed)
}

func noticePatches(a, b posted) (out []noticePatch) {
	for _, n := range b.Notices {
		if old := a.find(n.ID); !n.same(old) {
			out = append(out, noticePatch{old, n})
		}
	}
	return out
}

// takeBack returns s with what p changed as it was before, to be posted.
func (p noticePatch) takeBack(s state, seal *board.Sealer, at time.Time) (state, error) {
	now := s.Posted.find(p.Is.ID)
	if !p.Is.same(now) {
		return s, fmt.Errorf("what was said to all hosts is no longer as that change left it: it ended, or was changed since")
	}
	if p.Was == nil || p.Was.Gone {
		s.Posted = s.Posted.with(now.takenDown())
		return s, nil
	}
	back := *p.Was
	back.Draft, back.Base, back.Version, back.Ends = true, now.base(), 0, anchored(back.Ends, at)
	if back.open(seal); back.Aside != "" {
		return s, fmt.Errorf("what was said to all hosts cannot be said again: %s", back.Aside)
	}
	s.Posted = s.Posted.with(&back)
	return s, nil
}

// hear puts in force what was said to all hosts: after all else, so that it
// displaces nothing that is this host's own.
func (p *policy) hear(all []*notice) {
	for _, n := range all {
		switch s := &n.says; {
		case n.Aside != "":
			p.unheard = append(p.unheard, n)
		case s.Block != nil:
			p.blocks = append(p.blocks, n.asEntry(blocks))
		case s.Allow != nil:
			p.allows = append(p.allows, n.asEntry(allows))
		case s.Rule != nil:
			a := *s.Rule
			a.End = n.Ends
			if r := p.read(a); r.aside != "" {
				p.aside = append(p.aside, r)
			} else {
				p.admit([]liveRule{r})
			}
		}
	}
	sortEntries(p.blocks)
	sortEntries(p.allows)
}

// said returns the overrides among all.
func said(all []*notice) (out []addedOverride) {
	for _, n := range all {
		if o := n.says.Override; o != nil && n.Aside == "" {
			out = append(out, *o)
		}
	}
	return out
}
