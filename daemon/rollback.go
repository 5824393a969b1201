package daemon

import (
	"context"
	"fmt"
	"os"
	"time"
)

// trialTick bounds how late the end of a trial is seen after the host has slept:
// what a timer goes by stands still then.
const trialTick = time.Second

// watchTrial rolls a trial back at its end, until ctx ends.
func (d *daemon) watchTrial(ctx context.Context) error {
	for ctx.Err() == nil {
		d.mu.Lock()
		var tick <-chan time.Time
		if d.trial != nil {
			left := d.trial.left(d.boot())
			if left <= 0 {
				d.endTrial(ctx)
				left = trialTick // until it is tried again, if that failed
			}
			tick = time.After(min(left, trialTick))
		}
		d.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-d.trialed:
		case <-tick:
		}
	}
	return nil
}

// endTrial rolls back a trial that nobody confirmed. The caller holds d.mu.
func (d *daemon) endTrial(ctx context.Context) {
	t := d.trial
	if err := d.goBack(ctx, t); err != nil {
		d.conf.err = fmt.Errorf("the trial of %s is over and cannot be rolled back: %w", t.File, err)
		d.log.Error("roll back a trial: trying again", "file", t.File, "err", err)
		return
	}
	d.note(change{what: "rollback", subject: t.File, who: Origin{From: FromDaemon, At: stamp(d.now()), Why: "not confirmed in time"}})
	d.log.Warn("a trial was not confirmed in time: rolled back", "file", t.File, "hash", short(t.Hash))
}

// goBack puts in force what was before t. The caller holds d.mu.
func (d *daemon) goBack(ctx context.Context, t *trial) error {
	before, err := parseConfig(d.path, []byte(t.Before), d.keys.read)
	if err != nil {
		return err
	}
	if err := d.install(ctx, before, terms{back: true}); err != nil {
		return err
	}
	return d.clearTrial(t)
}

// clearTrial forgets a trial whose config is no longer in force.
func (d *daemon) clearTrial(t *trial) error {
	err := d.handback(t)
	if err != nil {
		// What is in force is right. A start would find the trial in the file,
		// and go back by what is written down, so that stays.
		d.log.Error("put the config file back: it still is the one of the trial", "file", d.path, "err", err)
		d.conf.err = fmt.Errorf("%s holds the config of a trial that was rolled back: %w", d.path, err)
	} else if err := os.Remove(trialPath(d.policy.cfg.State.Dir)); err != nil {
		d.log.Error("forget the trial", "err", err)
	}
	if err == nil {
		d.conf.err = nil
	}
	d.trial = nil
	d.pokeTrial()
	d.holdLeash()
	return nil
}

// settleTrial ends, at a start, what a daemon that was killed left of a trial.
func (d *daemon) settleTrial() {
	defer func() {
		if d.trial == nil {
			d.keepConfig(loaded{text: d.conf.text, hash: d.conf.hash})
		}
	}()
	t := d.trial
	if t == nil {
		if _, err := readTrial(d.policy.cfg.State.Dir); err != nil {
			d.log.Error("a trial was not brought to its end: the config file is in force", "err", err)
			os.Remove(trialPath(d.policy.cfg.State.Dir))
		}
		return
	}
	switch left := t.left(d.boot()); {
	case t.Confirmed:
		if err := d.settleConfirmed(t); err != nil {
			d.log.Error("make the confirmed trial the config: the next start tries again", "err", err)
		}
		d.trial = nil
	case left > 0:
		d.log.Warn("going on with the trial", "file", t.File, "for", left.Round(time.Second), "by", t.By)
	default:
		d.clearTrial(t)
		d.note(change{what: "rollback", subject: t.File, who: Origin{From: FromDaemon, At: stamp(d.now()), Why: "not confirmed in time"}})
		d.log.Warn("a trial was not confirmed in time: the config before it is in force", "file", t.File)
	}
}

// rollback ends the trial now, or goes back to a config that was in force
// before.
func (d *daemon) rollback(ctx context.Context, q RollbackRequest, who Origin) (RollbackReply, error) {
	if err := checkText("why", q.Why); err != nil {
		return RollbackReply{}, err
	}
	who.Why = q.Why
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.policy.cfg
	if t := d.trial; t != nil && q.To == 0 {
		if err := d.goBack(ctx, t); err != nil {
			return RollbackReply{}, fmt.Errorf("roll back the trial of %s: %w", t.File, err)
		}
		d.note(change{what: "rollback", subject: t.File, who: who})
		d.log.Warn("the trial is rolled back", "file", t.File, "by", who.By)
		return RollbackReply{Trial: t.File, Changes: difference(now, d.policy.cfg), Hash: d.conf.hash}, nil
	}
	if d.trial != nil {
		return RollbackReply{}, d.trialRuns()
	}
	to := q.To
	if to == 0 {
		var err error
		if to, err = d.configs.before(d.conf.text); err != nil {
			return RollbackReply{}, err
		}
	}
	text, err := d.configs.read(to)
	if err != nil {
		return RollbackReply{}, err
	}
	next, err := parseConfig(d.path, text, d.keys.read)
	if err != nil {
		return RollbackReply{}, fmt.Errorf("config %d no longer reads: %w", to, err)
	}
	c := change{what: "rollback", subject: fmt.Sprintf("config %d", to), who: who}
	if err := d.replace(ctx, next, terms{guard: d.guardFor(who), force: q.Force}, c); err != nil {
		return RollbackReply{}, err
	}
	return RollbackReply{Number: to, Changes: difference(now, d.policy.cfg), Hash: next.hash}, nil
}

func stamp(t time.Time) time.Time { return t.Round(0).UTC().Truncate(time.Second) }
