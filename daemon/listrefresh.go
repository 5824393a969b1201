package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/config"
)

// retryList is how soon a list is asked for again that could not be had, unless
// its interval is shorter.
const retryList = 5 * time.Minute

// due is when a list with an address is to be asked next.
func (k keptList) due() time.Time {
	switch {
	case k.tried.IsZero():
		return time.Time{}
	case k.err != nil:
		return k.tried.Add(min(retryList, k.Interval))
	}
	return k.tried.Add(k.Interval)
}

// fetchLists asks for lists with an address, each in its interval, until ctx
// ends.
func (d *daemon) fetchLists(ctx context.Context) error {
	for ctx.Err() == nil {
		next, at := d.nextList()
		var due <-chan time.Time
		if next.Name != "" {
			due = time.After(at.Sub(d.now()))
		}
		select {
		case <-ctx.Done():
		case <-d.relist:
		case <-due:
			d.takeList(ctx, d.lists.fetch.get(ctx, next, d.now()))
		}
	}
	return nil
}

// nextList is the list that is to be asked first, and when; without a name if
// there is none.
func (d *daemon) nextList() (next keptList, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.kept {
		if k.URL != "" && (next.Name == "" || k.due().Before(at)) {
			next, at = k, k.due()
		}
	}
	return next, at
}

// watchLists reads lists again when their files change.
func (d *daemon) watchLists(ctx context.Context) error {
	w := watcher{log: d.log, files: d.listFiles, quiet: 200 * time.Millisecond, most: time.Second, poll: 2 * time.Second}
	return w.run(ctx, func() { d.readLists(ctx) })
}

// readLists reads the lists that are files.
func (d *daemon) readLists(ctx context.Context) {
	d.mu.Lock()
	kept := maps.Clone(d.kept)
	d.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		old := kept[name]
		if old.File == "" {
			continue
		}
		k := d.lists.readFile(old.List, d.now())
		if k.err != nil {
			k.prefixes, k.read = old.prefixes, old.read
		}
		d.takeList(ctx, k)
	}
}

// takeList puts what a list holds now in force, or notes why it cannot and
// leaves what was. Before it is in force it must not lock anyone out, and fit.
func (d *daemon) takeList(ctx context.Context, k keptList) {
	ctx = context.WithoutCancel(ctx) // a list is not left half in force
	old, jobs, err := d.commitList(ctx, k)
	if err != nil {
		return
	}
	if err := d.fillIn(ctx, jobs); err != nil {
		old.err, old.tried = err, k.tried
		_, jobs, _ = d.commitList(ctx, old)
		d.fillIn(ctx, jobs) // which logs what goes wrong
		return
	}
	if err := d.lists.keep(k); err != nil {
		d.log.Error("keep a copy of the list: a restart may not find it", "list", k.Name, "err", err)
	}
}

// errOtherList says that the config has changed a list while it was read.
var errOtherList = errors.New("the config has another list of this name")

// commitList notes how a list fares. If its prefixes are others than before,
// they are then in the policy, and the gates have jobs to do. The error is that
// of the list: what was before is in force.
func (d *daemon) commitList(ctx context.Context, k keptList) (old keptList, jobs []*fillJob, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, ok := d.kept[k.Name]
	if !ok || old.List != k.List {
		return old, nil, errOtherList
	}
	before := len(d.filling)
	fresh := !slices.Equal(old.prefixes, k.prefixes)
	if !fresh {
		k.prefixes = old.prefixes // which the policy shares
	} else if err := d.installList(ctx, k); err != nil {
		k.prefixes, k.read, k.etag, k.err = old.prefixes, old.read, old.etag, err
		fresh = false
	}
	if k.err != nil && (old.err == nil || old.err.Error() != k.err.Error()) {
		d.log.Error("read list: its last good content stays", "list", k.Name, "err", k.err)
	}
	if fresh {
		d.log.Info("list changed", "list", k.Name, "prefixes", len(k.prefixes), "before", len(old.prefixes))
	}
	next := maps.Clone(d.kept)
	next[k.Name] = k
	d.kept = next
	return old, slices.Clone(d.filling[before:]), k.err
}

// installList makes k's prefixes part of the policy.
func (d *daemon) installList(ctx context.Context, k keptList) error {
	next := maps.Clone(d.kept)
	next[k.Name] = k
	if err := checkList(d.policy, k, d.guardFor(Origin{})); err != nil {
		return err
	}
	if err := d.network.fits(k.prefixes); err != nil {
		return err
	}
	p, err := merge(d.policy.cfg, d.added.live(d.now()), named(next))
	if err != nil {
		return err
	}
	return d.enforce(ctx, p)
}

// checkList refuses a list to block that would lock out whom a block by hand
// would not either.
func checkList(p *policy, k keptList, g guard) error {
	if !slices.Contains(p.cfg.BlockLists, k.Name) {
		return nil
	}
	for _, pre := range k.prefixes {
		if err := p.endangers(pre, g); err != nil {
			return fmt.Errorf("%w (what a list blocks must spare it)", err)
		}
	}
	return nil
}

// listsOf are the names of the lists that a rule speaks of.
func listsOf(r config.Rule) []string {
	names := slices.Concat(r.Match.From.Lists, r.Match.To.Lists, r.Match.Except.Lists)
	for _, o := range r.Overrides {
		names = append(names, o.From.Lists...)
	}
	return names
}
