package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// mostNamed bounds how many prefixes an error names.
const mostNamed = 10

// addBatch blocks or allows many prefixes with one end and one reason, all of
// them or none. Prefixes that an import with the same reason holds with the
// same end are not touched; of two ends the later counts, as for single ones.
//
// The gates take them in lots between which other changes come through; the
// state file has the whole of it before.
func (d *daemon) addBatch(ctx context.Context, k kind, q BatchRequest, who Origin) (BatchReply, error) {
	fresh, err := newBulk(q, who.at(q.Peer), d.now())
	if err != nil {
		return BatchReply{}, err
	}
	d.importing.Lock()
	defer d.importing.Unlock()
	// what was asked for is done whole, also when the asker is gone
	ctx = context.WithoutCancel(ctx)
	for {
		old := d.importsOf(k)
		plan := old.with(fresh)
		if err := d.keepImports(plan.next); err != nil {
			return BatchReply{}, err
		}
		jobs, same, err := d.commitBatch(ctx, k, old, plan.next, fresh, q)
		if err != nil {
			return BatchReply{}, err
		}
		if !same {
			continue // a single one came in between
		}
		if err := d.fillIn(ctx, jobs); err != nil {
			return BatchReply{}, d.takeBack(ctx, k, plan.next, old, err)
		}
		d.noteBatch(k, old, plan.next, fresh)
		d.tidy()
		e := remaining(fresh.entry(netip.Prefix{}), d.now())
		plan.reply.Prefixes, plan.reply.End, plan.reply.EndsIn = len(fresh.prefixes), e.End, e.EndsIn
		return plan.reply, nil
	}
}

// noteBatch writes an import into the record of changes, as old became next.
func (d *daemon) noteBatch(k kind, old, next bulks, fresh *bulk) {
	var was, is state
	*k.imports(&was), *k.imports(&is) = old, next
	who := fresh.Origin
	who.Why = fresh.Reason
	d.note(change{
		what: k.name + " import", subject: fmt.Sprintf("%d prefixes", len(fresh.prefixes)),
		detail: until(fresh.entry(netip.Prefix{}), d.now()), who: who, patch: patchOf(was, is),
	})
}

// newBulk checks q.
func newBulk(q BatchRequest, who Origin, now time.Time) (*bulk, error) {
	if len(q.Prefixes) == 0 {
		return nil, badInput("no prefixes")
	}
	for _, p := range q.Prefixes {
		if err := checkPrefix(p); err != nil {
			return nil, err
		}
	}
	e, err := newEntry(EntryRequest{Prefix: q.Prefixes[0], For: q.For, Ever: q.Ever, Reason: q.Reason}, who, now)
	if err != nil {
		return nil, err
	}
	prefixes := slices.Clone(q.Prefixes)
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return &bulk{End: e.End, Reason: e.Reason, Origin: who, prefixes: slices.Compact(prefixes)}, nil
}

// importsOf is what was imported to one list so far.
func (d *daemon) importsOf(k kind) bulks {
	d.mu.Lock()
	defer d.mu.Unlock()
	return (*k.imports(&d.added)).live(d.now())
}

// merged is what an import makes of those before.
type merged struct {
	next  bulks
	reply BatchReply
}

// with joins fresh to list. Imports of the same reason and end become one, so
// that a list that is read again each day stays one.
func (list bulks) with(fresh *bulk) (m merged) {
	b := *fresh
	for _, o := range list {
		left := o.left()
		more := minus(b.prefixes, left)
		shared := len(b.prefixes) - len(more)
		switch {
		case o.Reason != b.Reason || shared == 0 && !sameMoment(o.End, b.End):
			m.next = append(m.next, o)
		case sameMoment(o.End, b.End) && len(more) == 0:
			m.reply.Unchanged += shared
			b.prefixes = nil
			m.next = append(m.next, o)
		case sameMoment(o.End, b.End):
			m.reply.Unchanged += shared
			b.prefixes = union(left, b.prefixes)
		case endsAfter(o.entry(netip.Prefix{}), b.entry(netip.Prefix{})):
			m.reply.Longer += shared
			b.prefixes = more
			m.next = append(m.next, o)
		default:
			m.reply.Extended += shared
			rest := *o
			rest.prefixes, rest.Without = minus(left, b.prefixes), nil
			if len(rest.prefixes) > 0 {
				m.next = append(m.next, &rest)
			}
		}
	}
	if len(b.prefixes) > 0 {
		m.next = append(m.next, &b)
	}
	m.reply.Added = len(fresh.prefixes) - m.reply.Unchanged - m.reply.Longer - m.reply.Extended
	return m
}

// sameMoment compares two ends to a second.
func sameMoment(a, b time.Time) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() && b.IsZero()
	}
	return a.Sub(b).Abs() < time.Second
}

// keepImports writes the files of those that have none yet.
func (d *daemon) keepImports(list bulks) error {
	for _, b := range list {
		if b.Count == len(b.prefixes) && b.File != "" {
			continue
		}
		if err := d.store.keepImport(b); err != nil {
			return err
		}
	}
	return nil
}

// commitBatch makes next the imports of a list in the place of old, and returns
// what the gates have yet to take. It reports false, and has done nothing, if
// they are no longer old.
func (d *daemon) commitBatch(ctx context.Context, k kind, old, next bulks, fresh *bulk, q BatchRequest) ([]*fillJob, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := d.added.live(d.now())
	list := k.imports(&state)
	if !slices.Equal(*list, old) {
		return nil, false, nil
	}
	if k.name == blocks.name && !q.Force {
		if err := d.policy.endangersAny(fresh.prefixes, d.guardFor(fresh.Origin)); err != nil {
			return nil, false, err
		}
	}
	if err := d.network.fits(fresh.prefixes); err != nil {
		return nil, false, refuse("not %s: %v", k.done, err)
	}
	*list = next
	before := len(d.filling)
	if err := d.commit(ctx, state, nothing); err != nil {
		return nil, false, err
	}
	return slices.Clone(d.filling[before:]), true, nil
}

// takeBack undoes an import that a gate would not take.
func (d *daemon) takeBack(ctx context.Context, k kind, failed, old bulks, cause error) error {
	d.mu.Lock()
	state := d.added.live(d.now())
	list := k.imports(&state)
	if slices.Equal(*list, failed) {
		*list = old.live(d.now())
	}
	before := len(d.filling)
	err := d.commit(ctx, state, nothing)
	jobs := slices.Clone(d.filling[before:])
	d.mu.Unlock()
	if err == nil {
		err = d.fillIn(ctx, jobs)
	}
	if err != nil {
		return fmt.Errorf("%w; going back failed too: %w", cause, err)
	}
	return fmt.Errorf("%w (all of it was taken back)", cause)
}

// endangersAny is endangers for many; it names the first few.
func (p *policy) endangersAny(prefixes []netip.Prefix, g guard) error {
	var causes []string
	n := 0
	for _, pre := range prefixes {
		if err := p.endangers(pre, g); err != nil {
			if n++; n <= mostNamed {
				causes = append(causes, err.Error())
			}
		}
	}
	if n == 0 {
		return nil
	}
	if n > mostNamed {
		causes = append(causes, fmt.Sprintf("and %d more", n-mostNamed))
	}
	return refuse("nothing blocked: %s (take them out, or add --force if you mean it)", strings.Join(causes, "; "))
}

// fits refuses prefixes that the network gate has no room for.
func (n *network) fits(prefixes []netip.Prefix) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		return nil
	}
	lack4, lack6 := n.gate.Lacks(prefixes)
	room4, room6 := n.gate.Room()
	if need := lack4 + room4.Held; need > room4.Bound {
		return tooMany("IPv4", need, room4.Bound, room4.Held)
	}
	if need := lack6 + room6.Held; need > room6.Bound {
		return tooMany("IPv6", need, room6.Bound, room6.Held)
	}
	return nil
}

func tooMany(family string, need, bound, held int) error {
	return fmt.Errorf("it needs room for %d %s prefixes, the network gate has room for %d and holds %d (shorten the list, or join neighbours to wider prefixes)", need, family, bound, held)
}

// tidy removes files of imports that nothing speaks of. The caller holds
// d.importing.
func (d *daemon) tidy() {
	d.mu.Lock()
	added := d.added
	d.mu.Unlock()
	if err := d.store.tidyImports(added, d.undoFiles()); err != nil {
		d.log.Warn("remove files of imports that have ended", "err", err)
	}
}
