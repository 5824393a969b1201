package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/headgate/headgate/config"
)

// keyFile reads the file of API keys, and not again while it stays as it is: it
// may have a million, and the config is read for much less.
type keyFile struct {
	mu    sync.Mutex
	path  string
	stamp string
	keys  *config.Keyring
}

// keyReader returns what the key file at path holds.
type keyReader = func(path string) (*config.Keyring, error)

// read is a keyReader: it returns what the file at path holds.
func (k *keyFile) read(path string) (*config.Keyring, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	stamp, err := stampOf(path)
	if err != nil {
		return nil, err
	}
	if k.keys != nil && k.path == path && k.stamp == stamp {
		return k.keys, nil
	}
	keys, err := config.ReadKeys(path)
	if err != nil {
		return nil, err
	}
	if k.keys != nil && k.path == path && k.keys.Equal(keys) {
		keys = k.keys // so that the memory is there once
	}
	k.path, k.stamp, k.keys = path, stamp, keys
	if len(keys.Block()) > muchKeyed {
		freeKeys()
	}
	return keys, nil
}

// stampOf returns something that differs when the file at path does.
func stampOf(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	stamp := fmt.Sprint(st.Size(), st.ModTime().UnixNano())
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		stamp = fmt.Sprint(stamp, sys.Dev, sys.Ino, sys.Ctim)
	}
	return stamp, nil
}

// keyPath returns where the key file in force is, empty if there is none. The
// caller holds d.mu.
func (d *daemon) keyPath() string {
	if f := d.policy.cfg.HTTP.KeyFile; f != "" {
		return besideConfig(d.path, f)
	}
	return ""
}

// keysInForce is a keyReader that leaves the key file in force as it is. The
// caller holds d.mu.
func (d *daemon) keysInForce(path string) (*config.Keyring, error) {
	if path == d.keyPath() {
		return d.policy.cfg.HTTP.Keys, nil
	}
	return d.keys.read(path)
}

// watchKeys puts the key file in force when it changes, and nothing else: rules
// are not compiled anew, and no listener is touched.
func (d *daemon) watchKeys(ctx context.Context) error {
	w := watcher{
		log:   d.log,
		quiet: 200 * time.Millisecond,
		most:  time.Second,
		poll:  2 * time.Second,
		files: func() []string {
			d.mu.Lock()
			defer d.mu.Unlock()
			if path := d.keyPath(); path != "" {
				return []string{path}
			}
			return nil
		},
	}
	return w.run(ctx, func() { d.followKeys(ctx) })
}

// followKeys puts the keys on disk in force, all or none. A config that could
// not be loaded may be good with them, so it is tried again.
func (d *daemon) followKeys(ctx context.Context) {
	d.mu.Lock()
	path, failed := d.keyPath(), d.conf.err != nil
	d.mu.Unlock()
	if path == "" {
		return
	}
	if failed {
		d.reload(ctx, false)
	}
	keys, err := d.keys.read(path) // it takes a while, and others may go on
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keyPath() != path {
		return // what is in force now was read with keys of its own
	}
	if err == nil {
		err = d.rekey(ctx, keys)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil && (d.conf.keysErr == nil || d.conf.keysErr.Error() != err.Error()) {
		d.log.Error("key file not reloaded: the keys stay as they were", "err", err)
	}
	d.conf.keysErr = err
}

// rekey puts keys in force in the place of those that are. The caller holds d.mu.
func (d *daemon) rekey(ctx context.Context, keys *config.Keyring) error {
	was := d.policy.cfg.HTTP.Keys
	if keys.Equal(was) {
		return nil
	}
	if err := d.http.rekey(ctx, keys); err != nil {
		return err
	}
	cfg, p := *d.policy.cfg, *d.policy
	cfg.HTTP.Keys, p.cfg = keys, &cfg
	d.network.relabel(d.policy, &p)
	d.policy = &p
	d.conf.generation++
	d.conf.loaded = d.now()
	d.note(change{what: "keys", subject: cfg.HTTP.KeyFile, detail: fmt.Sprintf("%d keys, %d before", keys.Len(), was.Len()), who: Origin{From: FromConfig}})
	d.log.Info("key file reloaded", "generation", d.conf.generation, "keys", keys.Len())
	if len(keys.Block()) > muchKeyed {
		freeKeys() // those before
	}
	return nil
}

// rekey makes keys the ones that the HTTP gate goes by.
func (h *httpGate) rekey(ctx context.Context, keys *config.Keyring) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	h.mu.Lock()
	on, child := httpOn(h.want), h.child
	h.mu.Unlock()
	if on && child != nil {
		err := h.ordered(ctx, child, func(ctx context.Context) error { return child.sendKeys(ctx, keys, true) })
		if err != nil && (errors.Is(err, errRefused) || ctx.Err() != nil) {
			return err
		}
		child.keys = keys // a child that was ended has them when it is back
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.want.HTTP.Keys = keys
	return nil
}
