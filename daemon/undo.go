package daemon

import (
	"context"
	"slices"
	"time"
)

// undo takes back the last change of whoever asks that was not taken back yet,
// so that asking again goes one further. What others did since to the same
// thing is not touched: then it refuses, and changes nothing.
func (d *daemon) undo(ctx context.Context, q UndoRequest, who Origin) (UndoReply, error) {
	if err := checkText("why", q.Why); err != nil {
		return UndoReply{}, err
	}
	who.Why = q.Why
	d.importing.Lock()
	defer d.importing.Unlock()
	d.mu.Lock()
	r, err := d.undoing(who)
	if err != nil {
		d.mu.Unlock()
		return UndoReply{}, err
	}
	before := len(d.filling)
	reply, err := d.takeRecordBack(ctx, r, q, who)
	jobs := slices.Clone(d.filling[before:])
	d.mu.Unlock()
	if err != nil {
		return UndoReply{}, err
	}
	if r.Patch != nil && len(r.Patch.Notices) > 0 {
		reply.Fleet = d.tell(ctx)
	}
	return reply, d.fillIn(ctx, jobs)
}

// undoing finds the change to take back.
func (d *daemon) undoing(who Origin) (record, error) {
	all, _, err := d.history.known(d.now())
	if err != nil {
		return record{}, err
	}
	for _, r := range slices.Backward(all) {
		if r.By == who.By && r.undoable() && !r.Undone && r.Undoes == 0 {
			return r, nil
		}
	}
	return record{}, notThere("%s has changed nothing that could be undone (see: headgate history)", firstOf(who.By, "whoever asks"))
}

func (d *daemon) takeRecordBack(ctx context.Context, r record, q UndoRequest, who Origin) (UndoReply, error) {
	reply := UndoReply{Undone: r.HistoryEntry}
	c := change{what: "undo", subject: r.What + " " + r.Subject, who: who, undoes: r.ID}
	refused := func(err error) error {
		return refuse("not undone: change %d, %s %s of %s: %v", r.ID, r.What, r.Subject, r.At.UTC().Format(time.DateTime), err)
	}
	if r.Config != 0 {
		if d.trial != nil {
			return reply, d.trialRuns()
		}
		text, err := d.configs.read(r.Config)
		if err != nil {
			return reply, refused(err)
		}
		next, err := parseConfig(d.path, text, d.keys.read)
		if err != nil {
			return reply, refused(err)
		}
		reply.Changes = difference(d.policy.cfg, next.cfg)
		return reply, d.replace(ctx, next, terms{guard: d.guardFor(who), force: q.Force}, c)
	}
	now := d.now()
	anchor(r.Patch.Blocks.Removed, now)
	anchor(r.Patch.Allows.Removed, now)
	for _, l := range []*listPatch{&r.Patch.Blocks, &r.Patch.Allows} {
		if l.Imports != nil {
			l.Imports.Was = l.Imports.Was.anchored(now)
		}
	}
	next, err := r.Patch.takeBack(d.added.live(now), d.store.loadImport)
	if err == nil {
		next, err = d.takeNoticesBack(next, r.Patch)
	}
	if err != nil {
		return reply, refused(err)
	}
	err = d.commit(ctx, next, func(p *policy) error {
		return d.guardUndo(p, r.Patch, d.guardFor(who), q.Force)
	})
	if err != nil {
		return reply, err
	}
	d.note(c)
	return reply, nil
}

// guardUndo refuses to bring back what would lock someone out.
func (d *daemon) guardUndo(p *policy, taken *patch, g guard, force bool) error {
	if force {
		return nil
	}
	for _, e := range taken.Blocks.Removed {
		if err := d.policy.endangers(e.Prefix, g); err != nil {
			return refuse("not undone: %v (add --force if you mean it)", err)
		}
	}
	for _, n := range taken.Notices {
		if n.Was == nil || n.Was.says.Block == nil {
			continue
		}
		if err := d.policy.endangers(n.Was.says.Block.Prefix, g); err != nil {
			return refuse("not undone: %v (add --force if you mean it)", err)
		}
	}
	if p.shuts(g.peer) && !d.policy.shuts(g.peer) {
		return refuse("not undone: you would be blocked yourself, at %s (add --force if you mean it)", g.peer)
	}
	for _, r := range taken.Rules {
		if r.Was == nil {
			continue
		}
		if back, ok := p.find(r.Was.Name); ok {
			if err := p.starves(back.Rule, g); err != nil {
				return refuse("not undone: %v (or add --force if you mean it)", err)
			}
		}
	}
	return nil
}

// undoFiles are the files of imports that the latest changes need to be taken
// back.
func (d *daemon) undoFiles() map[string]bool {
	const latest = 20
	used := map[string]bool{}
	all, _, err := d.history.known(d.now())
	if err != nil {
		d.log.Warn("keep files for undo", "err", err)
	}
	for _, r := range all[max(0, len(all)-latest):] {
		if r.Patch != nil && !r.Undone {
			r.Patch.files(used)
		}
	}
	return used
}
