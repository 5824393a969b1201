// Package daemon is the life of `headgate run`: it holds both gates to one
// config and to what was added from the command line.
//
// Filtering outlives it. When it stops or dies, programs stay attached and
// blocks keep their ends; the HTTP gate stops with it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/daemon/attachments"
	"github.com/headgate/headgate/internal/folderlock"
)

// Options say how to run.
type Options struct {
	ConfigPath string
	Socket     string // in the place of admin.socket, if not empty
	Version    string
	Log        *slog.Logger
	Stderr     io.Writer // for the log of the HTTP gate's process
}

// daemon is a running daemon.
type daemon struct {
	log     *slog.Logger
	path    string // of the config
	version string
	started time.Time
	now     func() time.Time
	store   store
	network *network
	http    *httpGate
	board   *fleetBoard   // nil: this host is in no fleet
	manager notifier      // of services, such as systemd
	wake    chan struct{} // the next end may have changed

	mu     sync.Mutex // one change at a time
	policy *policy    // in force
	added  state
	conf   reloadStatus
	keys   *keyFile

	importing sync.Mutex    // one import at a time; taken before mu
	filling   []*fillJob    // what the gates have yet to take, the oldest first
	unfilled  atomic.Int64  // prefixes in filling
	refill    chan struct{} // there may be something to fill

	lists  *lists
	kept   map[string]keptList // the lists of the config by name; replaced, not changed
	relist chan struct{}       // kept may have others

	gateways func() ([]netip.Addr, error) // of the default routes
	boot     func() bootTime
	trial    *trial        // the config in force is on trial; nil: it is not
	trialed  chan struct{} // trial may be another
	configs  configs
	history  *history
	hits     *hits
	events   events
	heavy    *heavyTable
	stateErr error // why the state file is not what it should be

}

// Run runs the daemon until ctx ends or it is told to stop. A *ConfigError is
// returned before anything was touched.
func Run(ctx context.Context, o Options) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	d, err := newDaemon(o)
	if err != nil {
		return err
	}
	cfg := d.policy.cfg
	lock, err := folderlock.Take(cfg.State.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := dropHalves(cfg.State.Dir); err != nil {
		d.log.Warn("what a killed daemon had begun to write is left", "err", err)
	}
	if err := d.recall(); err != nil {
		return err
	}
	socket := cfg.Admin.Socket
	if o.Socket != "" {
		socket = o.Socket
	}
	control, err := listenControl(socket)
	if err != nil {
		return err
	}
	defer control.Close()
	admin, err := listenAdmin(cfg.Admin.Listen)
	if err != nil {
		return err
	}
	if admin != nil {
		defer admin.Close()
	}
	defer d.network.close()
	if err := d.open(ctx); err != nil {
		return err
	}
	if err := giveUpPrivilege(o.Log); err != nil {
		d.http.close()
		return err
	}

	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return d.http.run(ctx) })
	tasks.Go(func() error {
		return serve(ctx, control, &http.Server{Handler: d.controlHandler(), ConnContext: withPeer})
	})
	tasks.Go(func() error { return serve(ctx, admin, &http.Server{Handler: d.adminHandler()}) })
	tasks.Go(func() error { return d.expire(ctx) })
	tasks.Go(func() error { return d.keepFilling(ctx) })
	tasks.Go(func() error { return d.network.attached.Follow(ctx) })
	tasks.Go(func() error { return d.network.attached.CheckGateways(ctx) })
	tasks.Go(func() error { return d.network.follow(ctx) })
	tasks.Go(func() error { return d.network.sweep(ctx) })
	tasks.Go(func() error { return d.heedStrikes(ctx) })
	tasks.Go(func() error { return d.watchSamples(ctx) })
	tasks.Go(func() error { return d.watchRefusals(ctx) })
	tasks.Go(func() error { return d.watchConfig(ctx) })
	tasks.Go(func() error { return d.watchKeys(ctx) })
	tasks.Go(func() error { return d.watchLists(ctx) })
	tasks.Go(func() error { return d.fetchLists(ctx) })
	tasks.Go(func() error { return d.obeyHangups(ctx, hangup) })
	tasks.Go(func() error { return d.watchTrial(ctx) })
	tasks.Go(func() error { return d.keepLeash(ctx) })
	tasks.Go(func() error { return d.watchHits(ctx) })
	tasks.Go(func() error { return d.summarize(ctx) })
	tasks.Go(func() error { return d.audit(ctx) })
	tasks.Go(func() error { return d.keepBoard(ctx) })
	tasks.Go(func() error { return d.countHosts(ctx) })
	tasks.Go(func() error { return d.pet(ctx) })
	context.AfterFunc(ctx, func() { d.manager.tell(sd.SdNotifyStopping) })
	if err := d.manager.tell(sd.SdNotifyReady); err != nil {
		d.log.Warn(err.Error())
	}
	d.log.Info("up", "pid", os.Getpid(), "config", d.path, "control", socket, "rules", len(d.policy.rules))
	err = tasks.Wait()
	d.log.Info("stopped: what is attached goes on filtering")
	return err
}

// newDaemon reads the config and touches nothing but the state folder.
func newDaemon(o Options) (*daemon, error) {
	keys := new(keyFile)
	l, err := loadConfig(o.ConfigPath, keys.read)
	if err != nil {
		return nil, err
	}
	l, onTrial, err := resume(o.ConfigPath, l, keys.read, bootClock)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(l.cfg.State.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("make state.dir: %w", err)
	}
	manager := newNotifier()
	shared, err := takeOver(o.Log, manager)
	if err != nil {
		return nil, err
	}
	d := &daemon{
		log:     o.Log,
		manager: manager,
		path:    o.ConfigPath,
		version: o.Version,
		started: time.Now(),
		now:     time.Now,
		store:   newStore(l.cfg.State.Dir),
		network: newNetwork(o.Log),
		http:    newHTTPGate(o.Log, o.Stderr, shared),
		wake:    make(chan struct{}, 1),
		refill:  make(chan struct{}, 1),
	}
	d.keys = keys
	d.conf = reloadStatus{generation: 1, hash: l.hash, text: l.text, loaded: d.started}
	d.relist = make(chan struct{}, 1)
	d.gateways, d.boot, d.trial = attachments.DefaultGateways, bootClock, onTrial
	d.trialed = make(chan struct{}, 1)
	d.heavy = newHeavyTable(d.started, &d.events)
	d.configs = configs{dir: filepath.Join(l.cfg.State.Dir, "configs")}
	if d.hits, err = openHits(l.cfg.State.Dir); err != nil {
		d.log.Warn(err.Error())
	}
	d.history = &history{log: o.Log, path: filepath.Join(l.cfg.State.Dir, "history.jsonl")}
	d.lists = &lists{
		log: o.Log, config: o.ConfigPath, copies: filepath.Join(l.cfg.State.Dir, "lists"), fetch: newFetcher(o.Version),
	}
	if d.kept, err = d.lists.open(l.cfg, nil, d.now()); err != nil {
		return nil, err
	}
	d.policy, err = merge(l.cfg, state{}, named(d.kept))
	return d, err
}

// recall joins the config with what was added from the command line before.
func (d *daemon) recall() error {
	added, warning, err := d.store.recover(d.now())
	if err != nil {
		return err
	}
	if warning != "" {
		d.log.Error(warning)
	}
	if d.board, err = d.joinBoard(d.policy.cfg); err != nil {
		return err
	}
	added = d.recallBoard(added).live(d.now())
	p, err := merge(d.policy.cfg, added, named(d.kept))
	if err != nil {
		return err
	}
	d.added, d.policy = added, p
	d.settleTrial()
	d.tidy()
	d.lists.keepAll(d.kept)
	g := d.guardFor(Origin{})
	for _, line := range p.dangers(g) {
		d.log.Warn("the config may lock someone out", "cause", line)
	}
	for _, k := range d.kept {
		if err := checkList(p, k, g); err != nil {
			d.log.Warn(fmt.Sprintf("list %s: %v", k.Name, err))
		}
	}
	for _, w := range append(p.warnings(), d.tagWarnings(p)...) {
		d.log.Warn(w)
	}
	if why := pinsEnd(p.cfg); why != "" {
		d.log.Warn(why)
	}
	return nil
}

// open puts the policy in force for the first time. The HTTP gate's ports come
// first, so that a port that is taken is found before a packet is dropped.
func (d *daemon) open(ctx context.Context) error {
	acc, warning, err := lookupAccount(d.policy.cfg.HTTP.User)
	if err != nil {
		return err
	}
	d.http.acc, d.http.dir = acc, d.policy.cfg.State.Dir
	var made string
	if d.http.secret, made, err = idSecret(d.policy.cfg.State.Dir); err != nil {
		return err
	}
	if made != "" {
		d.log.Warn(made)
	}
	if httpOn(d.policy.http()) {
		if err := acc.checkChange(); err != nil {
			return err
		}
	}
	if err := d.http.apply(ctx, d.policy.http()); err != nil {
		return err
	}
	if err := d.network.apply(d.policy); err != nil {
		d.http.close()
		return err
	}
	d.http.shared.warnUnused(d.policy.cfg.HTTP.Listeners)
	d.detachOthers(d.policy.cfg)
	if warning != "" && httpOn(d.policy.http()) {
		d.log.Warn(warning)
	}
	if err := d.http.start(ctx); err != nil {
		d.http.close()
		return err
	}
	return nil
}

// serve answers on ln until ctx ends; on no listener it does nothing.
func serve(ctx context.Context, ln net.Listener, s *http.Server) error {
	if ln == nil {
		return nil
	}
	s.ReadHeaderTimeout = 10 * time.Second
	s.IdleTimeout = time.Minute
	stopped := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Shutdown(end)
		s.Close()
	})
	defer stopped()
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}

func (d *daemon) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// expire lifts blocks and allows as they end. The network gate sees to the
// ends of blocks by itself; the HTTP gate and allows need this.
func (d *daemon) expire(ctx context.Context) error {
	for ctx.Err() == nil {
		d.mu.Lock()
		next, ok := d.added.nextEnd()
		wait := next.Sub(d.now())
		d.mu.Unlock()
		var ended <-chan time.Time
		if ok {
			ended = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-d.wake:
		case <-ended:
			if err := d.dropEnded(ctx); err != nil {
				d.log.Error("lift what has ended", "err", err)
				pause(ctx, time.Second)
			}
		}
	}
	return nil
}

// dropEnded takes what has ended out of force. The file is left to the next
// change: what has ended is not read back from it.
func (d *daemon) dropEnded(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	live := d.added.live(d.now())
	p, err := merge(d.policy.cfg, live, named(d.kept))
	if err != nil {
		return err
	}
	if err := d.enforce(ctx, p); err != nil {
		return err
	}
	d.added = live
	return nil
}

// watchConfig reloads after changes of the config or of the files beside it.
func (d *daemon) watchConfig(ctx context.Context) error {
	w := watcher{
		log:   d.log,
		quiet: 200 * time.Millisecond,
		most:  time.Second,
		poll:  2 * time.Second,
		files: func() []string {
			d.mu.Lock()
			defer d.mu.Unlock()
			return files(d.path, d.policy.cfg)
		},
	}
	return w.run(ctx, func() { d.reload(ctx, false) })
}

// obeyHangups reloads on SIGHUP.
func (d *daemon) obeyHangups(ctx context.Context, hangup <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			d.reload(ctx, true)
		}
	}
}
