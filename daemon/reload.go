package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/headgate/headgate/config"
)

// ConfigError is a config that cannot be read or used. Its text has one line
// an error.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// loaded is a config and the hash of all that made it.
type loaded struct {
	cfg  *config.Config
	text []byte
	hash string // SHA-256 in hex
}

// loadConfig reads the config at path, and by keys the key file that it names.
func loadConfig(path string, keys keyReader) (loaded, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return loaded{}, &ConfigError{fmt.Errorf("read config: %w (name another with -c FILE)", err)}
	}
	return parseConfig(path, data, keys)
}

// parseConfig reads data as the config at path. The hash is of the very bytes
// that were parsed and of the files beside it as they were read, so it cannot
// belong to a later edit. The file of API keys is not in it: it changes by itself.
func parseConfig(path string, data []byte, keys keyReader) (loaded, error) {
	cfg, err := config.ParseWith(path, data, keys)
	if err != nil {
		return loaded{}, &ConfigError{err}
	}
	beside, err := json.Marshal([]any{cfg.HTTP.Users.Keys, cfg.HTTP.Certificates, cfg.Fleet})
	if err != nil {
		return loaded{}, &ConfigError{fmt.Errorf("hash keys: %w", err)}
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%d\n", len(data))
	sum.Write(data)
	sum.Write(beside)
	sum.Write([]byte(cfg.HTTP.Answers.Body.Text))
	return loaded{cfg: cfg, text: data, hash: hex.EncodeToString(sum.Sum(nil))}, nil
}

// files returns what the config at path is made of, but for the file of API keys.
func files(path string, cfg *config.Config) []string {
	named := []string{cfg.HTTP.Users.KeyFile, cfg.HTTP.Users.JWKSFile, cfg.HTTP.Answers.Body.File}
	for _, c := range cfg.HTTP.Certificates {
		named = append(named, c.CertFile, c.KeyFile)
	}
	named = append(named, cfg.Fleet.Files()...)
	out := []string{path}
	for _, f := range named {
		if f != "" {
			out = append(out, besideConfig(path, f))
		}
	}
	return out
}

// besideConfig resolves f against the folder of the config at path, which names it.
func besideConfig(path, f string) string {
	if filepath.IsAbs(f) {
		return f
	}
	return filepath.Join(filepath.Dir(path), f)
}

// needsRestart names the first setting that a running daemon cannot change.
func needsRestart(old, next *config.Config) error {
	for _, s := range []struct {
		key     string
		changed bool
	}{
		{"admin.socket", old.Admin.Socket != next.Admin.Socket},
		{"admin.listen", old.Admin.Listen != next.Admin.Listen},
		{"state.dir", old.State.Dir != next.State.Dir},
		{"state.pins", old.State.Pins != next.State.Pins},
		{"http.user", old.HTTP.User != next.HTTP.User},
		{"fleet", !old.Fleet.Same(next.Fleet)},
	} {
		if s.changed {
			return refuse("%s changes only with a restart of the daemon, so nothing was changed (restart it, or put %s back)", s.key, s.key)
		}
	}
	return nil
}

// reloadStatus is how the config came to be what it is.
type reloadStatus struct {
	generation uint64
	hash       string
	text       []byte
	loaded     time.Time
	err        error // of the last try; nil: what is on disk is in force
	keysErr    error // the same of the key file alone
}

// reload puts the config on disk in force, as a whole or not at all. Asked for,
// it also does so when nothing changed, which attaches again what was detached;
// otherwise the same content is applied once only.
func (d *daemon) reload(ctx context.Context, asked bool) (ReloadReply, error) {
	return d.reloadFor(ctx, asked, ReloadRequest{}, Origin{From: FromConfig})
}

// reloadFor is reload by who. While a trial runs the file waits: what is in
// force then is to be judged by itself.
func (d *daemon) reloadFor(ctx context.Context, asked bool, q ReloadRequest, who Origin) (ReloadReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.trial != nil {
		if !asked {
			return ReloadReply{}, nil
		}
		return ReloadReply{}, d.trialRuns()
	}
	keys := d.keys.read
	if !asked && d.conf.err == nil {
		keys = d.keysInForce // followKeys sees to those
	}
	next, err := loadConfig(d.path, keys)
	same := err == nil && next.hash == d.conf.hash && next.cfg.HTTP.Keys.Equal(d.policy.cfg.HTTP.Keys)
	if err == nil && (asked || !same) {
		defer d.manager.reloading()()
		err = d.install(ctx, next, terms{guard: d.guardFor(who), force: q.Force})
	}
	if err != nil {
		if d.conf.err == nil || d.conf.err.Error() != err.Error() {
			d.log.Error("config not reloaded: all stays as it was", "err", err)
		}
		d.conf.err = err
		return ReloadReply{}, err
	}
	if d.conf.err = nil; asked {
		d.conf.keysErr = nil // else the key file was not looked at
	}
	if !same {
		d.keepConfig(next)
		d.note(change{what: "reload", subject: d.path, detail: "hash " + short(next.hash), who: who})
		d.log.Info("config reloaded", "generation", d.conf.generation, "hash", short(next.hash))
	}
	return ReloadReply{
		Changed:    !same,
		Generation: d.conf.generation,
		Hash:       next.hash,
		Rules:      len(d.policy.rules),
		Warnings:   slices.Concat(d.policy.warnings(), d.tagWarnings(d.policy), d.network.notFiltered()),
	}, nil
}

func short(hash string) string { return hash[:min(12, len(hash))] }

// terms are what a config is put in force on.
type terms struct {
	guard guard
	force bool // whomever it locks out
	back  bool // it was in force before: nothing but a gate may refuse it
}

// install makes a config, with what was added from the command line, the policy
// of both gates. The network gate goes first, because it can go back without
// losing a connection.
func (d *daemon) install(ctx context.Context, l loaded, t terms) error {
	p, kept, err := d.prepare(l.cfg, t)
	if err != nil {
		return err
	}
	if err := d.network.apply(p); err != nil {
		return err
	}
	if err := d.http.apply(ctx, p.http()); err != nil {
		if back := d.network.apply(d.policy); back != nil {
			err = fmt.Errorf("%w; going back failed too: %w", err, back)
		}
		d.detachOthers(d.policy.cfg)
		return err
	}
	rekeyed := !p.cfg.HTTP.Keys.Equal(d.policy.cfg.HTTP.Keys)
	d.policy, d.kept = p, kept
	d.noteConfig(l, rekeyed)
	d.lists.keepAll(kept)
	select {
	case d.relist <- struct{}{}:
	default:
	}
	d.detachOthers(p.cfg)
	d.holdLeash()
	return nil
}

// noteConfig notes that l is in force, with other keys than before if rekeyed.
func (d *daemon) noteConfig(l loaded, rekeyed bool) {
	if l.hash == d.conf.hash && !rekeyed {
		return
	}
	d.conf.generation++
	d.conf.hash, d.conf.text, d.conf.loaded = l.hash, l.text, d.now()
	if d.board != nil && l.cfg.Fleet != nil {
		d.board.password.Set(l.cfg.Fleet.Redis.Password)
	}
}

// prepare makes the policy of a config and refuses one that cannot be put in
// force, or that would lock someone out.
func (d *daemon) prepare(cfg *config.Config, t terms) (*policy, map[string]keptList, error) {
	if err := needsRestart(d.policy.cfg, cfg); err != nil {
		return nil, nil, err
	}
	kept, err := d.lists.open(cfg, d.kept, d.now())
	if err != nil {
		return nil, nil, err
	}
	p, err := merge(cfg, d.added.live(d.now()), named(kept))
	if err != nil {
		return nil, nil, err
	}
	if t.back {
		return p, kept, nil
	}
	if !t.force {
		if err := d.newDangers(p, kept, t.guard); err != nil {
			return nil, nil, err
		}
	}
	if err := d.policy.loses(p); err != nil {
		return nil, nil, refuse("%v", err)
	}
	if err := d.refuseHidden(p); err != nil {
		return nil, nil, err
	}
	return p, kept, nil
}

// newDangers refuses a policy that would lock out someone whom the one in force
// does not.
func (d *daemon) newDangers(p *policy, kept map[string]keptList, g guard) error {
	for _, k := range kept {
		if err := checkList(p, k, g); err != nil {
			return refuse("list %s: %v", k.Name, err)
		}
	}
	old := d.policy.dangers(g)
	for _, line := range p.dangers(g) {
		if !slices.Contains(old, line) {
			return refuse("nothing was changed: %s (or add --force to `headgate reload` or `apply` if you mean it)", line)
		}
	}
	return nil
}

// detachOthers takes the program off interfaces that cfg does not name. It
// comes last and only logs: by then the new policy is in force.
func (d *daemon) detachOthers(cfg *config.Config) {
	if err := d.network.dropOthers(cfg); err != nil {
		d.log.Error("detach from interfaces that are no longer named", "err", err)
	}
}
