package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
)

// handleTrials answers what concerns configs, trials and the record of changes.
func (d *daemon) handleTrials(m *http.ServeMux) {
	m.Handle("POST /v1/apply", answerWith(d.log, func(r *http.Request) (any, error) {
		var q ApplyRequest
		if err := decodeUpTo(maxApply, r, &q); err != nil {
			return nil, err
		}
		return d.apply(r.Context(), q, who(r, d.now()))
	}))
	m.Handle("POST /v1/confirm", answerWith(d.log, func(r *http.Request) (any, error) {
		var q ConfirmRequest
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		return d.confirm(q, who(r, d.now()))
	}))
	m.Handle("POST /v1/rollback", answerWith(d.log, func(r *http.Request) (any, error) {
		var q RollbackRequest
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		return d.rollback(r.Context(), q, who(r, d.now()))
	}))
	m.Handle("GET /v1/history", answerWith(d.log, func(*http.Request) (any, error) { return d.changes() }))
	m.Handle("POST /v1/undo", answerWith(d.log, func(r *http.Request) (any, error) {
		var q UndoRequest
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		return d.undo(r.Context(), q, who(r, d.now()))
	}))
	m.Handle("POST /v1/panic", answerWith(d.log, func(r *http.Request) (any, error) {
		var q OpenRequest
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		return d.setOpen(q, who(r, d.now()))
	}))
	m.Handle("GET /v1/configs", answerWith(d.log, func(*http.Request) (any, error) { return d.listConfigs() }))
}

// maxApply bounds the body of an apply: the largest config, escaped.
const maxApply = 64 << 20

// apply puts a config in force that is not the file's: for good, or on trial.
func (d *daemon) apply(ctx context.Context, q ApplyRequest, who Origin) (ApplyReply, error) {
	if err := errors.Join(checkText("file", q.File), checkText("why", q.Why)); err != nil {
		return ApplyReply{}, badInput("%v", err)
	}
	span := time.Duration(q.Confirm) * time.Second
	if q.Confirm != 0 && (span < shortestTrial || span > longestTrial) {
		return ApplyReply{}, badInput("a trial of %d s is not between %s and %s", q.Confirm, shortestTrial, longestTrial)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.trial != nil {
		return ApplyReply{}, d.trialRuns()
	}
	next, err := d.candidate(q)
	if err != nil {
		return ApplyReply{}, err
	}
	who.Why = q.Why
	reply := ApplyReply{Changes: difference(d.policy.cfg, next.cfg), Hash: next.hash}
	on := terms{guard: d.guardFor(who), force: q.Force}
	p, _, err := d.prepare(next.cfg, on)
	if err != nil {
		return ApplyReply{}, err
	}
	reply.Warnings = p.warnings()
	if q.DryRun {
		return reply, nil
	}
	if span > 0 {
		err = d.try(ctx, next, on, q, who)
		reply.Trial = d.trialStatus()
	} else {
		err = d.replace(ctx, next, on, change{what: "apply", subject: firstOf(q.File, d.path), who: who})
	}
	return reply, err
}

// candidate reads the config that is asked for. Files that it names are beside
// the config whose place it is to take; its faults carry the asker's name for it.
func (d *daemon) candidate(q ApplyRequest) (loaded, error) {
	if q.Config == "" {
		return loadConfig(d.path, d.keys.read)
	}
	path := filepath.Join(filepath.Dir(d.path), filepath.Base(firstOf(q.File, d.path)))
	l, err := parseConfig(path, []byte(q.Config), d.keys.read)
	if err != nil && q.File != "" {
		err = badInput("%s", strings.ReplaceAll(err.Error(), path+":", q.File+":"))
	}
	return l, err
}

// try puts next in force on trial. The caller holds d.mu.
func (d *daemon) try(ctx context.Context, next loaded, on terms, q ApplyRequest, who Origin) error {
	pending, err := d.pendingConfig() // one that could not be confirmed is refused now
	if err != nil {
		return err
	}
	pending.Cleanup()
	onDisk := ""
	if l, err := loadConfig(d.path, d.keys.read); err == nil {
		onDisk = l.hash
	}
	now := d.boot()
	t := &trial{
		Text: string(next.text), Hash: next.hash, Before: string(d.conf.text), BeforeAs: d.conf.hash, OnDisk: onDisk,
		File: firstOf(q.File, d.path), Span: q.Confirm, Origin: who,
		Boot: now.id, End: now.since + time.Duration(q.Confirm)*time.Second,
	}
	dir := d.policy.cfg.State.Dir
	if err := t.write(dir); err != nil {
		return err
	}
	d.trial = t // before it is in force: the leash goes by it
	if err := d.install(ctx, next, on); err != nil {
		d.trial = nil
		d.holdLeash()
		return errors.Join(err, os.Remove(trialPath(dir)))
	}
	d.log.Warn("a config is on trial", "file", t.File, "for", Span(t.Span), "by", who.By, "hash", short(t.Hash))
	d.note(change{what: "trial", subject: t.File, who: who})
	d.pokeTrial()
	return nil
}

func (d *daemon) pokeTrial() {
	select {
	case d.trialed <- struct{}{}:
	default:
	}
}

// replace puts next in force for good: it takes the place of the config file.
// The file is written before, beside it, so that a full disk is found in time.
// The caller holds d.mu.
func (d *daemon) replace(ctx context.Context, next loaded, on terms, c change) error {
	before := loaded{cfg: d.policy.cfg, text: d.conf.text, hash: d.conf.hash}
	was := d.keepConfig(before)
	pending, err := d.pendingConfig()
	if err != nil {
		return err
	}
	defer pending.Cleanup()
	if _, err := pending.Write(next.text); err != nil {
		return fmt.Errorf("write %s: %w (nothing was changed: make room)", d.path, err)
	}
	if err := d.install(ctx, next, on); err != nil {
		return err
	}
	if err := pending.CloseAtomicallyReplace(); err != nil {
		err = fmt.Errorf("write %s: %w (nothing was changed)", d.path, err)
		if back := d.install(ctx, before, terms{back: true}); back != nil {
			err = fmt.Errorf("%w; going back failed too: %w", err, back)
		}
		return err
	}
	d.keepConfig(next)
	c.config = was
	d.note(c)
	d.log.Info(c.what+": config in force", "file", c.subject, "by", c.who.By, "generation", d.conf.generation, "hash", short(next.hash))
	return nil
}

// keepConfig keeps the text of a config and returns its number; 0 if it could
// not be kept.
func (d *daemon) keepConfig(l loaded) int {
	k, err := d.configs.keep(l.text, l.hash, d.now())
	if err != nil {
		d.log.Error("keep a copy of the config: rollback will not find it", "hash", short(l.hash), "err", err)
		return 0
	}
	return k.Number
}

// pendingConfig opens a file that is to take the config's place, with its mode
// and owner. Where the config is a symlink, what it leads to is replaced.
func (d *daemon) pendingConfig() (*renameio.PendingFile, error) {
	path, err := filepath.EvalSymlinks(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		path, err = d.path, nil
	}
	var pending *renameio.PendingFile
	if err == nil {
		// the folder of the file: a rename works within one file system only
		pending, err = renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithExistingPermissions(), renameio.WithPermissions(0o644))
	}
	if err != nil {
		return nil, refuse("nothing was changed: %s could not be replaced: %v (let the daemon write there; or change the file where it comes from, and `headgate reload`)", d.path, err)
	}
	if st, err := os.Stat(path); err == nil {
		if owner, ok := st.Sys().(*syscall.Stat_t); ok {
			pending.Chown(int(owner.Uid), int(owner.Gid)) // where it may not, root's it is
		}
	}
	return pending, nil
}

// confirm makes the config on trial the config.
func (d *daemon) confirm(q ConfirmRequest, who Origin) (ConfirmReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.trial
	if t == nil {
		return ConfirmReply{}, notThere("no trial runs, so there is nothing to confirm (see: headgate history)")
	}
	if t.left(d.boot()) <= 0 {
		return ConfirmReply{}, refuse("the trial of %s is over: it is being rolled back", t.File)
	}
	if l, err := loadConfig(d.path, d.keys.read); !q.Force && (err != nil || l.hash != t.OnDisk && l.hash != t.Hash) {
		return ConfirmReply{}, refuse("not confirmed: %s was changed since the trial began, and would be lost (move it away and back, or add --force)", d.path)
	}
	was := d.keepConfig(loaded{text: []byte(t.Before), hash: t.BeforeAs})
	if err := d.settleConfirmed(t); err != nil {
		return ConfirmReply{}, err
	}
	d.keepConfig(loaded{text: []byte(t.Text), hash: t.Hash})
	d.trial = nil
	d.pokeTrial()
	d.holdLeash()
	d.note(change{what: "confirm", subject: t.File, who: who, config: was})
	d.log.Info("the trial is confirmed: it is the config now", "file", t.File, "by", who.By, "hash", short(t.Hash))
	return ConfirmReply{File: d.path, Hash: t.Hash}, nil
}

// settleConfirmed moves the config on trial in the place of the config. It is
// noted first that this is meant, so that a daemon that is killed in between
// does the rest when it starts.
func (d *daemon) settleConfirmed(t *trial) error {
	dir := d.policy.cfg.State.Dir
	pending, err := d.pendingConfig()
	if err != nil {
		return err
	}
	defer pending.Cleanup()
	if _, err := pending.Write([]byte(t.Text)); err != nil {
		return fmt.Errorf("write %s: %w (the trial goes on: make room)", d.path, err)
	}
	done := *t
	done.Confirmed = true
	if err := done.write(dir); err != nil {
		return fmt.Errorf("%w; the trial goes on", err)
	}
	if err := pending.CloseAtomicallyReplace(); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w (the trial goes on)", d.path, err), t.write(dir))
	}
	return os.Remove(trialPath(dir))
}

// handback puts the file back that was in force before its own trial.
func (d *daemon) handback(t *trial) error {
	if l, err := loadConfig(d.path, d.keys.read); !t.ownFile() || err != nil || l.hash != t.Hash {
		return nil
	}
	pending, err := d.pendingConfig()
	if err != nil {
		return err
	}
	defer pending.Cleanup()
	if _, err := pending.Write([]byte(t.Before)); err != nil {
		return fmt.Errorf("write %s: %w", d.path, err)
	}
	return pending.CloseAtomicallyReplace()
}

func (d *daemon) listConfigs() (Configs, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.configs.list()
	for i, k := range all {
		all[i].Now = d.trial == nil && i == len(all)-1 && bytes.HasPrefix([]byte(d.conf.hash), []byte(k.Hash))
	}
	return Configs{Configs: all}, err
}
