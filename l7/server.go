package l7

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/fleet"
	"github.com/headgate/headgate/limit"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	sweepEvery    = time.Minute
	maxStreams    = 128              // of one HTTP/2 connection at a time
	pingAfter     = 30 * time.Second // without a frame, on HTTP/2
	pingTimeout   = 15 * time.Second
	deafTime      = time.Minute // a client that takes nothing of what it is sent
)

// Gate is the HTTP gate. Its methods may be called at the same time.
type Gate struct {
	// Clock returns the time since a fixed moment, never running backwards. It
	// may be replaced before the first call of SetPolicy.
	Clock func() time.Duration

	// Wall returns the time of day, which tokens and overrides end by and
	// clients are told. It may be replaced before the first call of SetPolicy.
	Wall func() time.Time

	log      *slog.Logger
	store    *limit.Store
	policy   atomic.Pointer[policy]
	warned   atomic.Bool // of forged forwarding headers, under this list of proxies
	statuses [600]atomic.Uint64

	connections *connections
	ended       ended
	deafTime    time.Duration
	drainTime   time.Duration
	listening   listening
	bodyIdle    time.Duration

	panics     atomic.Uint64
	lastPanic  atomic.Uint64       // when one was last logged, in ticks
	buffers    httputil.BufferPool // that answers are copied through
	headerTime time.Duration
	proxyTime  time.Duration // for a header of the PROXY protocol

	undeclared undeclared // peers that name clients

	blur    blur // of partition keys
	access  *accessLog
	watcher *watcher

	mu      sync.Mutex
	sealing Policy // Host and Secret that seal was made from
	seal    seal
	proxies []netip.Prefix     // of the policy in force
	counts  map[string]*counts // of the rules in force
	servers map[*http.Server]struct{}
	stop    chan struct{} // closed by Shutdown
	sweeps  bool
	joined  *joined // nil: in no fleet
}

// New returns a gate that logs to log. It serves nothing before it has a
// policy.
func New(log *slog.Logger) *Gate {
	begin := time.Now()
	g := &Gate{
		Clock:       func() time.Duration { return time.Since(begin) },
		Wall:        time.Now,
		blur:        newBlur(),
		log:         log,
		connections: newConnections(), ended: newEnded(), deafTime: deafTime, drainTime: drainTime, bodyIdle: bodyIdle, headerTime: headerTimeout, proxyTime: headerTimeout,
		store:  limit.NewStore(limit.DefaultMemory),
		access: newAccessLog(), watcher: newWatcher(),
		servers: map[*http.Server]struct{}{},
		stop:    make(chan struct{}),
		buffers: new(buffers),
	}
	g.listening.round.Store(1)
	g.undeclared.reset(0)
	g.store.Wall = func() time.Time { return g.Wall() }
	return g
}

func (g *Gate) now() limit.Ticks { return limit.FromDuration(g.Clock()) }

// SetPolicy puts p in force for all requests that come after, or, when it has
// errors, leaves everything as it was and names them all. Rules of the same
// name, per, algorithm and unit as before keep their buckets and counters.
func (g *Gate) SetPolicy(p Policy) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.join(p.Fleet); err != nil {
		return err
	}
	if g.policy.Load() == nil && g.joined == nil && p.Secret != nil {
		g.store.Hash(limit.NewSecretHasher(p.Secret))
	}
	var member *fleet.Member
	if g.joined != nil {
		member = g.joined.Member
	}
	next := map[string]*counts{}
	ready, err := p.compileFor(member, g.store, func(name string) *counts {
		c := g.counts[name]
		if c == nil {
			c = new(counts)
		}
		next[name] = c
		return c
	})
	if err != nil {
		return err
	}
	if ready.seal, err = g.reseal(p); err != nil {
		return err
	}
	ready.blur = g.blur
	if !slices.Equal(g.proxies, p.HTTP.Proxies) {
		g.proxies = slices.Clone(p.HTTP.Proxies)
		g.warned.Store(false)
		g.undeclared.reset(g.answeredInAll())
	}
	ready.undeclared = &g.undeclared
	old := g.policy.Load()
	if p.SameKeys {
		if old == nil {
			return errors.New("there are no keys to go on with: send them")
		}
		ready.keys = old.keys
	}
	if old != nil && ready.tokens.same(old.tokens) {
		ready.tokens = old.tokens
	} else if ready.tokens != nil {
		ready.tokens.now = g.Wall
	}
	ready.wall = g.Wall
	g.counts = next
	g.access.forget(next)
	g.policy.Store(ready)
	g.store.SetMemory(int(p.HTTP.Memory))
	g.store.Keep(ready.accounts())
	return nil
}

// reseal returns the seal of request ids under p: the one there is, if p has the
// same secret. The caller holds g.mu.
func (g *Gate) reseal(p Policy) (seal, error) {
	if g.seal.aead != nil && g.sealing.Host == p.Host && bytes.Equal(g.sealing.Secret, p.Secret) {
		return g.seal, nil
	}
	secret := p.Secret
	if secret == nil {
		secret = make([]byte, SecretSize)
		rand.Read(secret)
	}
	s, err := newSeal(secret, p.Host)
	if err != nil {
		return seal{}, err
	}
	g.seal, g.sealing = s, Policy{Host: p.Host, Secret: bytes.Clone(p.Secret)}
	return s, nil
}

// Serve answers what arrives at ln through the front door l until ln is closed
// or Shutdown is called; then it waits for requests in flight and returns nil.
// It closes ln.
func (g *Gate) Serve(ln net.Listener, l config.Listener) error {
	fresh := &young{}
	srv, door, err := g.open(l, fresh)
	if err != nil {
		ln.Close()
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	door.open()
	if err = listenAndAnswer(srv, &boundedListener{ln, g, l.ProxyProtocol}); errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		err = nil
	}
	srv.SetKeepAlivesEnabled(false)
	fresh.wait(youngTime)
	// Shutdown ends this wait early: it closes the server when its time is up.
	srv.Shutdown(context.Background())
	door.close()
	g.mu.Lock()
	delete(g.servers, srv)
	g.mu.Unlock()
	if err != nil {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}

// protocols are HTTP/1.1 and HTTP/2, the latter also in the clear for a client
// that starts with it (RFC 9113, 3.3).
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// listenAndAnswer serves ln encrypted where srv has TLS.
func listenAndAnswer(srv *http.Server, ln net.Listener) error {
	if srv.TLSConfig != nil {
		return srv.ServeTLS(ln, "", "")
	}
	return srv.Serve(ln)
}

// open makes the server of a front door.
func (g *Gate) open(l config.Listener, fresh *young) (*http.Server, *proxy, error) {
	if g.policy.Load() == nil {
		return nil, nil, errors.New("no policy is set: nothing would be limited")
	}
	if l.Door != "proxy" {
		return nil, nil, fmt.Errorf("door %q is not known: use proxy", l.Door)
	}
	door, err := newProxy(g, l)
	if err != nil {
		return nil, nil, err
	}
	secured, err := g.tlsConfig(l.TLS)
	if err != nil {
		return nil, nil, err
	}
	srv := &http.Server{
		Handler:           door,
		ReadHeaderTimeout: g.headerTime,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		TLSConfig:         secured,
		Protocols:         protocols(),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
			MaxReadFrameSize: 64 << 10, MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 256 << 10,
		},
		ConnContext:                  keepConnection,
		ConnState:                    fresh.follow,
		DisableGeneralOptionsHandler: true, // OPTIONS * is held to the rules too
		ErrorLog:                     log.New(io.Discard, "", 0),
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.stop:
		return nil, nil, errors.New("the gate is shut down")
	default:
	}
	g.servers[srv] = struct{}{}
	if !g.sweeps {
		g.sweeps = true
		go g.sweep()
		go g.watchDeaf()
	}
	return srv, door, nil
}

// sweep drops idle buckets until the gate is shut down.
func (g *Gate) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.store.Sweep(g.now())
		case <-g.stop:
			return
		}
	}
}

// Shutdown stops listening at once and waits for requests in flight until ctx
// ends; then it cuts them off and returns ctx's error. Connections that were
// upgraded are not waited for.
func (g *Gate) Shutdown(ctx context.Context) error {
	g.mu.Lock()
	select {
	case <-g.stop:
	default:
		close(g.stop)
	}
	servers := make([]*http.Server, 0, len(g.servers))
	for srv := range g.servers {
		servers = append(servers, srv)
	}
	member := g.joined
	g.mu.Unlock()
	defer g.access.close(ctx)
	if member != nil {
		defer func() {
			member.leave()
			<-member.left
		}()
	}

	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, srv := range servers {
		wg.Go(func() {
			if errs[i] = srv.Shutdown(ctx); errs[i] != nil {
				srv.Close()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Counters are the requests that a rule has seen since the gate was made, over
// all changes of policy while the rule was in force. A request that passes
// counts for each rule that was charged; one that is refused counts for each
// rule that refuses it.
type Counters struct {
	Passed  uint64 `json:"passed"`
	Refused uint64 `json:"refused"`
	Watched uint64 `json:"watched"` // would have been refused
	Over    uint64 `json:"over"`    // of Passed, those above the rule's line, in its soft part
}

// Counters returns the counters of each rule in force, by name.
func (g *Gate) Counters() map[string]Counters {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]Counters, len(g.counts))
	for name, c := range g.counts {
		all[name] = Counters{c.passed.Load(), c.refused.Load(), c.watched.Load(), c.over.Load()}
	}
	return all
}

// Answers returns how many answers were sent by status, those of the upstream
// among them.
func (g *Gate) Answers() map[int]uint64 {
	all := map[int]uint64{}
	for status := range g.statuses {
		if n := g.statuses[status].Load(); n > 0 {
			all[status] = n
		}
	}
	return all
}

// Held returns what the bucket keys of each rule in force take, by name.
func (g *Gate) Held() map[string]limit.Held {
	all := map[string]limit.Held{}
	p := g.policy.Load()
	if p == nil {
		return all
	}
	fills := g.store.Fills()
	for i := range p.rules {
		r := &p.rules[i]
		all[r.name] = g.store.Held(r.account, &r.limit, &fills)
	}
	return all
}

// Buckets tells how the store of buckets fares.
func (g *Gate) Buckets() limit.Stats { return g.store.Stats() }

func (g *Gate) answered(status int) {
	if status < len(g.statuses) {
		g.statuses[status].Add(1)
	}
}

// Panics returns how many requests met a fault of the gate.
func (g *Gate) Panics() uint64 { return g.panics.Load() }

// panicked counts a fault and logs one a minute at most, with its stack.
func (g *Gate) panicked(fault any) {
	g.panics.Add(1)
	now := uint64(g.now() | 1) // 0: never
	if last := g.lastPanic.Load(); (last == 0 || now-last >= uint64(limit.FromDuration(warnEvery))) && g.lastPanic.CompareAndSwap(last, now) {
		g.log.Error("a request met a fault of the gate: please report it", "fault", fault, "stack", string(debug.Stack()))
	}
}

// warnForged says once that someone who may not names clients.
func (g *Gate) warnForged(peer netip.Addr) {
	if g.warned.Load() || !g.warned.CompareAndSwap(false, true) {
		return
	}
	g.log.Warn("forwarding headers arrive from an undeclared peer and are ignored: "+
		"if it is a proxy of yours, name it in http.proxies, or all its clients share one bucket", "peer", peer)
}
