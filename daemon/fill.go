package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/maps"
)

// fillLot is how many prefixes the gates take between two chances for others:
// a few milliseconds of work.
const fillLot = 1000

// fillJob is a list of prefixes that the policy in force speaks of, or spoke
// of, and that the gates have yet to look at. What each is to be is asked of
// the policy that is in force then, so jobs may wait while policies change.
type fillJob struct {
	prefixes []netip.Prefix // not looked at
	err      error
}

// changes returns the prefixes that next may hold otherwise than p: few to be
// changed at once, and whole lists.
func (p *policy) changes(next *policy) (few []netip.Prefix, many [][]netip.Prefix) {
	few = append(changedEntries(p.blocks, next.blocks), changedEntries(p.allows, next.allows)...)
	for _, pair := range [][2]bulks{{p.manyBlocks, next.manyBlocks}, {p.manyAllows, next.manyAllows}} {
		single, whole := pair[0].differing(pair[1])
		few, many = append(few, single...), append(many, whole...)
	}
	return few, many
}

// sameRules reports whether p and next differ in blocks and allows only.
func (p *policy) sameRules(next *policy) bool {
	if p.cfg != next.cfg || !reflect.DeepEqual(p.configRules(""), next.configRules("")) {
		return false
	}
	for _, r := range p.networkRules() {
		for _, name := range listsOf(r) {
			if !sameSlice(p.named[name], next.named[name]) {
				return false
			}
		}
	}
	return true
}

// held is what p gives to exactly pre.
func (p *policy) held(pre netip.Prefix) maps.Held {
	h := maps.Held{Allow: len(at(p.allows, pre)) > 0 || p.manyAllows.hold(pre)}
	last := latest(append(slices.Clip(at(p.blocks, pre)), p.manyBlocks.at(pre)...), pre)
	h.Block, h.End = last.Prefix.IsValid(), last.End
	return h
}

// hold reports whether any of list has p itself.
func (list bulks) hold(p netip.Prefix) bool {
	return slices.ContainsFunc(list, func(b *bulk) bool { return b.has(p) })
}

// at returns the entries of exactly p in a sorted list.
func at(list []Entry, p netip.Prefix) []Entry {
	i, _ := slices.BinarySearchFunc(list, p, func(e Entry, p netip.Prefix) int { return e.Prefix.Compare(p) })
	j := i
	for j < len(list) && list[j].Prefix == p {
		j++
	}
	return list[i:j]
}

// listChange is what p gives to prefixes, as the HTTP gate takes it.
func (p *policy) listChange(prefixes []netip.Prefix) (c l7.ListChange) {
	for _, pre := range prefixes {
		h := p.held(pre)
		if h.Allow {
			c.Allow = append(c.Allow, pre)
		} else {
			c.Disallow = append(c.Disallow, pre)
		}
		if h.Block {
			c.Block = append(c.Block, pre)
		} else {
			c.Unblock = append(c.Unblock, pre)
		}
	}
	return c
}

// give makes both gates hold what p gives to prefixes.
func (d *daemon) give(ctx context.Context, p *policy, prefixes []netip.Prefix) error {
	if err := d.network.change(p, prefixes); err != nil {
		return err
	}
	return d.http.change(ctx, p.listChange(prefixes), p.http)
}

// fill lets the gates look at many prefixes later. The caller holds d.mu.
func (d *daemon) fill(many [][]netip.Prefix) {
	for _, prefixes := range many {
		d.filling = append(d.filling, &fillJob{prefixes: prefixes})
		d.unfilled.Add(int64(len(prefixes)))
	}
	if len(many) > 0 {
		select {
		case d.refill <- struct{}{}:
		default:
		}
	}
}

// fillIn works until jobs are done and returns what went wrong with them.
func (d *daemon) fillIn(ctx context.Context, jobs []*fillJob) error {
	for _, j := range jobs {
		d.network.reserve(j.prefixes)
	}
	for d.fillSome(ctx) {
		// others may have their turn
	}
	var errs []error
	for _, j := range jobs {
		errs = append(errs, j.err)
	}
	return errors.Join(errs...)
}

// fillSome does one lot of the oldest job and reports whether there was one.
func (d *daemon) fillSome(ctx context.Context) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.filling) == 0 {
		return false
	}
	j := d.filling[0]
	lot := j.prefixes[:min(fillLot, len(j.prefixes))]
	j.prefixes = j.prefixes[len(lot):]
	d.unfilled.Add(-int64(len(lot)))
	if j.err = d.give(ctx, d.policy, lot); j.err != nil {
		d.log.Error("put many prefixes in force: some of them are not", "left", len(j.prefixes), "err", j.err)
		d.unfilled.Add(-int64(len(j.prefixes)))
		j.prefixes = nil
	}
	if len(j.prefixes) == 0 {
		d.filling = d.filling[1:]
	}
	return true
}

// keepFilling does jobs that nobody waits for, until ctx ends.
func (d *daemon) keepFilling(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.refill:
		}
		for ctx.Err() == nil && d.fillSome(ctx) {
			// others may have their turn
		}
	}
}

// reserve makes room for prefixes at once, while others may have their turn:
// table by table it would take longer. What goes wrong here is told by the
// change that finds no room.
func (n *network) reserve(prefixes []netip.Prefix) {
	n.mu.Lock()
	gate := n.gate
	n.mu.Unlock()
	if gate != nil {
		_ = gate.Reserve(gate.Lacks(prefixes))
	}
}

// change puts in force what p gives to prefixes; rules and all else stay. A
// failure leaves what p differs in half done: the caller goes back.
func (n *network) change(p *policy, prefixes []netip.Prefix) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate != nil {
		if err := n.gate.SetHeld(prefixes, p.held); err != nil {
			return fmt.Errorf("change blocks and allows of the network gate: %w", err)
		}
	}
	n.now = p
	return nil
}

// change tells the HTTP gate what changed of its lists. whole gives, when it is
// needed, all that is in force then: for a process that is started anew.
func (h *httpGate) change(ctx context.Context, c l7.ListChange, whole func() l7.Policy) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	h.mu.Lock()
	on, child := httpOn(h.want), h.child
	h.mu.Unlock()
	if on && child != nil && !c.Empty() {
		if err := h.ordered(ctx, child, func(ctx context.Context) error { return child.change(ctx, c) }); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.whole = whole
	return nil
}

// change sends the child what changed of the lists.
func (c *childLink) change(ctx context.Context, l l7.ListChange) error {
	a, err := c.ask(ctx, order{Do: orderChange, Lists: &l}, nil)
	if err == nil && a.Error != "" {
		err = fmt.Errorf("%w: %s", errRefused, a.Error)
	}
	return err
}

// networkRules are the rules that the network gate takes, with what they name.
func (p *policy) networkRules() []config.Rule { return p.configRules(config.GateNetwork) }
