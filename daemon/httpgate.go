package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/heavy"
	"github.com/headgate/headgate/l7"
)

const (
	setTime   = 10 * time.Second // for the child to take a policy
	countTime = time.Second      // for the child to tell its counters
	bindTime  = 2 * time.Second  // for a port to become free
	pollEvery = time.Second      // counters are asked for, so that a death loses little
)

// httpGate is the daemon's side of the HTTP gate: it keeps the sockets, the
// policy and the counters, and sees to it that a process serves them.
type httpGate struct {
	log    *slog.Logger
	stderr io.Writer
	secret []byte    // of request ids; set before the first apply
	dir    string    // that buckets are saved in between processes; the same
	shared *handover // with the service manager

	changing sync.Mutex // one apply or start at a time
	acc      account
	launcher *launcherLink // starts the children; nil: none was needed yet
	access   accessLog
	logFault error     // why it could not be opened anew
	logTried time.Time // and when that was

	mu       sync.Mutex
	want     l7.Policy
	whole    func() l7.Policy   // want with lists as they have become; nil: want has them
	socks    map[string]*socket // by address
	child    *childLink         // nil: down
	lastErr  error              // how the last child ended
	restored *BucketsRestored   // by the child; nil: the one before left none
	restarts uint64             // children that died
	counts   httpCounts
	lastTop  l7.Top        // of the child that was stopped
	wake     chan struct{} // something about want changed
}

// httpOn reports whether p asks for an HTTP gate at all.
func httpOn(p l7.Policy) bool { return len(p.HTTP.Listeners) > 0 }

func newHTTPGate(log *slog.Logger, stderr io.Writer, shared *handover) *httpGate {
	return &httpGate{log: log, shared: shared, stderr: stderr, socks: map[string]*socket{}, wake: make(chan struct{}, 1), counts: newHTTPCounts()}
}

// apply makes p what the HTTP gate does, or leaves all as it was. While the
// child is down, p is kept for the next.
func (h *httpGate) apply(ctx context.Context, p l7.Policy) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	if n := len(p.HTTP.Listeners); n > maxFDs {
		return fmt.Errorf("%d http listeners are over %d", n, maxFDs)
	}
	if err := h.checkLauncher(p); err != nil {
		return err
	}
	h.mu.Lock()
	old, child := h.want, h.child
	h.mu.Unlock()
	bind, cancel := context.WithTimeout(ctx, bindTime)
	defer cancel()
	fresh, err := openSockets(bind, p.HTTP.Listeners, h.socks, h.shared)
	if err != nil {
		return err
	}
	log := h.access
	if path := logPath(p); path != log.path || log.moved() {
		if log, err = openAccessLog(path); err != nil {
			closeSockets(fresh)
			return err
		}
	}
	socks := maps.Clone(h.socks)
	maps.Copy(socks, fresh)
	if child != nil && httpOn(p) {
		if err := h.give(ctx, child, p, socks); err != nil {
			closeSockets(fresh)
			if log.file != h.access.file {
				log.close()
			}
			return err
		}
	}
	h.keep(p, socks)
	if log.file != h.access.file {
		if err := h.logTo(ctx, child, log); err != nil {
			h.log.Error("the HTTP gate did not take its access log", "err", err)
		}
	}
	if httpOn(old) != httpOn(p) {
		h.poke()
	}
	return nil
}

// logPath returns where p's access log is, empty for none.
func logPath(p l7.Policy) string {
	if p.HTTP.AccessLog == nil || !httpOn(p) {
		return ""
	}
	return p.HTTP.AccessLog.File
}

// give sends p to the child.
func (h *httpGate) give(ctx context.Context, c *childLink, p l7.Policy, socks map[string]*socket) error {
	p.Host, p.Secret = hostName(), h.secret
	return h.ordered(ctx, c, func(ctx context.Context) error { return c.set(ctx, p, socks) })
}

// ordered gives the child an order and the time for it. One that does not
// answer is ended: it might hold half of it, and its successor starts with what
// is in force.
func (h *httpGate) ordered(ctx context.Context, c *childLink, order func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, setTime)
	defer cancel()
	err := order(ctx)
	if err != nil && !errors.Is(err, errRefused) {
		c.end()
		err = fmt.Errorf("%w (it was ended and is started again: try once more)", err)
	}
	return err
}

// keep makes p and socks the ones to go by and closes sockets that no listener
// names any more.
func (h *httpGate) keep(p l7.Policy, socks map[string]*socket) {
	named := map[string]bool{}
	for _, l := range p.HTTP.Listeners {
		named[l.Address] = true
	}
	for address, s := range socks {
		if !named[address] {
			s.Close()
			delete(socks, address)
		}
	}
	h.shared.settle(socks)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.want, h.whole, h.socks = p, nil, socks
	h.counts.prune(p.Rules)
}

func (h *httpGate) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// start brings a child up with what is wanted.
func (h *httpGate) start(ctx context.Context) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	h.mu.Lock()
	p, whole, socks := h.want, h.whole, h.socks
	h.mu.Unlock()
	if !httpOn(p) {
		return nil
	}
	if whole != nil {
		keys := p.HTTP.Keys // they may have changed since
		p = whole()
		p.HTTP.Keys = keys
	}
	if err := h.launch(); err != nil {
		return err
	}
	c, err := startChild(h.launcher)
	if err != nil {
		return err
	}
	if err := h.giveBack(ctx, c); err != nil {
		c.end()
		<-c.exited
		return err
	}
	if err := h.give(ctx, c, p, socks); err != nil {
		c.end()
		<-c.exited
		return err
	}
	h.noteRestored(c.restored)
	if err := h.logTo(ctx, c, h.access); err != nil {
		c.end()
		<-c.exited
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.child = c
	h.log.Info("http gate up", "pid", c.proc.pid, "user", h.acc.name)
	return nil
}

// errNoLauncher means that no HTTP gate process can be started any more: the
// daemon gave up the right to another user once it was up.
var errNoLauncher = errors.New("nothing is left that could start the HTTP gate's process (restart headgate)")

// launch sees to it that there is a launcher.
func (h *httpGate) launch() error {
	if h.launcher.alive() {
		return nil
	}
	if err := h.acc.checkChange(); err != nil {
		return fmt.Errorf("%w: %w", errNoLauncher, err)
	}
	l, err := startLauncher(h.acc, h.stderr)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.launcher = l
	return nil
}

// checkLauncher refuses a policy that needs a launcher where none can be had: a
// daemon that started without an HTTP gate has none.
func (h *httpGate) checkLauncher(p l7.Policy) error {
	if !httpOn(p) || h.launcher.alive() {
		return nil
	}
	if err := h.acc.checkChange(); err != nil {
		return fmt.Errorf("%w (headgate gives this up once it is up: restart it to switch the HTTP gate on)", err)
	}
	return nil
}

// run keeps a child up while one is wanted, until ctx ends. It fails where no
// child can be started any more.
func (h *httpGate) run(ctx context.Context) error {
	defer h.close()
	deaths := 0
	for ctx.Err() == nil {
		began := time.Now()
		if err := h.attend(ctx); err != nil {
			h.note(err)
			if time.Since(began) > steadyTime {
				deaths = 0
			}
			deaths++
			pause(ctx, backoff(deaths))
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := h.revive(ctx); err != nil {
			h.note(err)
			if errors.Is(err, errNoLauncher) {
				return err
			}
			deaths++
			pause(ctx, backoff(deaths))
		}
	}
	return nil
}

// attend watches over the child, or over its absence, until it is gone, until
// none is wanted, or until one is. A death is returned as an error.
func (h *httpGate) attend(ctx context.Context) error {
	h.mu.Lock()
	c, on, launcher := h.child, httpOn(h.want), h.launcher
	h.mu.Unlock()
	switch {
	case c == nil && on:
		return nil
	case c == nil:
		select {
		case <-ctx.Done():
		case <-h.wake:
		}
		return nil
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	launching := launcher.gone
	for {
		select {
		case <-launching:
			launching = nil
			if h.acc.checkChange() != nil {
				h.log.Error("the launcher is gone: the HTTP gate goes on, but ends the daemon when it dies (restart headgate)", "pid", launcher.pid)
			}
		case <-ctx.Done():
			return nil
		case <-c.exited:
			h.bury(c)
			h.mu.Lock()
			h.restarts++
			h.mu.Unlock()
			return c.how
		case <-h.wake:
			if !h.wants() {
				h.halt(c)
				h.bury(c)
				return nil
			}
		case <-tick.C:
			h.count(ctx)
			h.followLog(ctx)
		}
	}
}

func (h *httpGate) wants() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return httpOn(h.want)
}

// revive starts a child if one is wanted and none is there.
func (h *httpGate) revive(ctx context.Context) error {
	h.mu.Lock()
	needed := h.child == nil && httpOn(h.want)
	h.mu.Unlock()
	if !needed {
		return nil
	}
	return h.start(ctx)
}

// bury forgets a child and keeps what it had counted.
func (h *httpGate) bury(c *childLink) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.child == c {
		h.child = nil
		h.counts.bank()
	}
}

// note logs how a child ended and remembers it for status.
func (h *httpGate) note(err error) {
	h.log.Error("http gate down: connections wait until it is back", "err", err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastErr = err
}

// close stops the child and lets go of the sockets.
func (h *httpGate) close() {
	h.changing.Lock()
	defer h.changing.Unlock()
	last := h.top(context.Background(), l7.TopQuery{Window: heavy.Window, Most: mostTop}) // for the last summary
	h.mu.Lock()
	c, launcher := h.child, h.launcher
	h.child, h.launcher, h.lastTop = nil, nil, last
	defer h.access.close()
	socks := h.socks
	h.socks = map[string]*socket{}
	h.mu.Unlock()
	// Closed first, so that new connections go elsewhere while old ones end.
	closeSockets(socks)
	if c != nil {
		h.halt(c)
	}
	if launcher != nil {
		launcher.stop()
	}
}

// count asks the child for its counters and reports whether it answered.
func (h *httpGate) count(ctx context.Context) bool {
	h.mu.Lock()
	c := h.child
	h.mu.Unlock()
	if c == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	a, err := c.ask(ctx, order{Do: orderCount}, nil)
	if err != nil || a.Error != "" {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.child == c {
		h.counts.take(a, h.want.Rules)
	}
	return true
}

// status tells how the HTTP gate fares, with counters as fresh as can be had.
func (h *httpGate) status(ctx context.Context) (HTTPStatus, map[string]l7.Counters) {
	fresh := h.count(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	st := HTTPStatus{On: httpOn(h.want), Restarts: h.restarts, Fresh: fresh, Listeners: []Listener{}}
	ends := endsByListener(h.want.HTTP)
	for _, l := range h.want.HTTP.Listeners {
		w := wireListener(l)
		w.CertificateEnds = ends[l.Address].UTC()
		st.Listeners = append(st.Listeners, w)
	}
	if h.lastErr != nil {
		st.Error = h.lastErr.Error()
	}
	st.Restored, st.StopsWithin = h.restored, int64(stopTime/time.Second)
	if h.child != nil {
		st.Up, st.PID, st.User = true, h.child.proc.pid, h.acc.name
	}
	st.Ended, st.Faults, st.LostLines = h.counts.endedByName(), h.counts.faults(), h.counts.lost()
	st.Buckets, st.Fleet, st.held = h.counts.buckets(), h.counts.fleet, h.counts.held
	st.Hidden = hiddenWords(h.counts.hidden)
	rules, codes := h.counts.total()
	if len(codes) > 0 {
		st.Answers = make(map[string]uint64, len(codes))
	}
	for code, n := range codes {
		st.Answers[strconv.Itoa(code)] = n
	}
	return st, rules
}

func wireListener(l config.Listener) Listener {
	return Listener{Address: l.Address, Door: l.Door, Upstream: strings.Join(l.Targets(), ", ")}
}
