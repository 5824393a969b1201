package l7

import (
	"errors"
	"net/netip"

	"github.com/gaissmai/bart"
)

// ListChange is what changes of a Policy's Allow and Block. It is plain data
// that survives JSON.
type ListChange struct {
	Allow, Disallow []netip.Prefix // added to Allow, taken from it
	Block, Unblock  []netip.Prefix
}

// Empty reports whether c changes nothing.
func (c ListChange) Empty() bool {
	return len(c.Allow)+len(c.Disallow)+len(c.Block)+len(c.Unblock) == 0
}

// ChangeLists changes the lists of the policy in force: a block in the middle
// of an incident need not compile all rules, nor send a million prefixes again.
// What is there already, or gone already, is no error. Requests see all of c or
// nothing. It fails only before the first SetPolicy.
func (g *Gate) ChangeLists(c ListChange) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.policy.Load()
	if old == nil {
		return errors.New("change lists: there is no policy yet")
	}
	next := *old
	next.allow = changed(old.allow, c.Allow, c.Disallow)
	next.block = changed(old.block, c.Block, c.Unblock)
	g.policy.Store(&next)
	return nil
}

// changed returns a set that shares what it can with t, which requests read.
func changed(t *bart.Lite, add, remove []netip.Prefix) *bart.Lite {
	if t == nil {
		t = new(bart.Lite)
	}
	for _, p := range add {
		t = t.InsertPersist(listed(p))
	}
	for _, p := range remove {
		t = t.DeletePersist(listed(p))
	}
	return t
}

// listed is p under its addresses' canonical spelling.
func listed(p netip.Prefix) netip.Prefix {
	if a := canonical(p.Addr()); a.Is4() && p.Addr().Is6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a, p.Bits()-96)
	}
	return p.Masked()
}
