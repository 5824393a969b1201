package l7

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/headgate/headgate/config"
)

// proxy is the front door that relays to its upstreams what the gate passes.
type proxy struct {
	gate      *Gate
	upstreams []*upstream    // the first that takes a request gets it
	dialect   config.Dialect // "": that of the policy
	relay     httputil.ReverseProxy

	checks   sync.WaitGroup
	stopping context.CancelFunc // of the checks
}

const (
	// warnEvery bounds the log of a failing upstream.
	warnEvery = time.Minute

	// flushAfter is how long a part of an answer of known length may wait for more.
	// An answer that is there as a whole, as most are, then leaves in one write
	// rather than in two. Streams, whose length is not known, do not wait.
	flushAfter = 10 * time.Millisecond
)

func newProxy(g *Gate, l config.Listener) (*proxy, error) {
	upstreams, err := newUpstreams(l)
	if err != nil {
		return nil, err
	}
	p := &proxy{gate: g, upstreams: upstreams, dialect: l.Dialect}
	p.relay = httputil.ReverseProxy{
		Transport:      sender{p},
		FlushInterval:  flushAfter,
		BufferPool:     g.buffers,
		Rewrite:        p.rewrite,
		ModifyResponse: p.seen,
		ErrorHandler:   p.failed,
		ErrorLog:       log.New(io.Discard, "", 0), // no line per request
	}
	return p, nil
}

type sender struct{ *proxy }

func (s sender) RoundTrip(r *http.Request) (*http.Response, error) { return s.send(r) }

// open starts to look after the upstreams.
func (p *proxy) open() {
	ctx, stop := context.WithCancel(context.Background())
	p.stopping = stop
	for _, u := range p.upstreams {
		if u.check != nil {
			p.watch(ctx, u)
		}
	}
}

// close ends what open started and lets go of idle connections.
func (p *proxy) close() {
	p.stopping()
	p.checks.Wait()
	for _, u := range p.upstreams {
		u.transport.CloseIdleConnections()
	}
}

// buffers are what answers are copied through.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return buf[:]
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buf []byte) { b.pool.Put((*[32 << 10]byte)(buf)) }

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	policy := p.gate.policy.Load()
	v := &visit{hearer: hearer{ResponseWriter: w}, gate: p.gate, policy: policy, dialect: p.dialect, origin: r.Header["Origin"], last: endsConnection(r), large: isLarge(r)}
	if v.dialect == "" {
		v.dialect = policy.answers.dialect
	}
	if policy.access != nil {
		v.request, v.began, v.verdict = r, p.gate.Wall(), verdictPassed
	}
	// An upstream, or the gate, may answer before all is read: without this, the
	// server would swallow the rest of the body first. Only HTTP/1 needs it.
	http.NewResponseController(w).EnableFullDuplex()
	defer p.finish(v, r)
	d := newDecision(policy)
	defer d.release()
	if p.decide(v, d, r) {
		p.pass(v, r)
		return
	}
	v.linger(r)
}

// decide judges r and answers it, or reports that it passes.
func (p *proxy) decide(v *visit, d *decision, r *http.Request) bool {
	policy := v.policy
	if policy.identify(r, &v.asker); v.asker.origin.forged {
		p.gate.undeclared.requests.Add(1)
		p.gate.warnForged(v.asker.peer)
	}
	if bad := malformed(r); bad.Status != 0 {
		v.last = r.ProtoMajor == 1
		v.verdict = verdictInvalid
		v.say(bad)
		return false
	}
	now := p.gate.now()
	became := d.judge(policy, r, &v.asker, now)
	p.gate.saw(r, d, &v.asker, now, became)
	switch became {
	case refused:
		v.verdict = verdictRefused
		v.refuse(r, d)
		return false
	case down:
		v.verdict = verdictRefused
		v.close()
		return false
	case blocked:
		v.verdict = verdictBlocked
		v.block()
		return false
	case unreadable:
		v.verdict = verdictInvalid
		v.say(tooLong)
		return false
	case pass:
		if v.decision = d; v.request != nil {
			v.rule = d.watched()
		}
	}
	var ok bool
	if v.upstream, ok = p.route(r, d); !ok {
		v.verdict = verdictInvalid
		v.say(tooLong)
	} else if v.upstream == nil {
		v.verdict = verdictInvalid
		v.say(problem{Status: http.StatusNotFound, Detail: "no upstream takes this host and path"})
	}
	return v.upstream != nil
}

var tooLong = problem{
	Status: http.StatusRequestURITooLong,
	Detail: fmt.Sprintf("a path has at most %d bytes here, fewer if it can be read in several ways", longestPath),
}

// route returns the upstream of r, nil where none takes it. A path that can be
// read in several ways goes by the plainest reading; it is false where it is too
// long to be read.
func (p *proxy) route(r *http.Request, d *decision) (*upstream, bool) {
	if first := p.upstreams[0]; len(first.hosts) == 0 && len(first.paths) == 0 {
		return first, true
	}
	if len(d.paths) == 0 { // the client is allowed: its path was not looked at
		var ok bool
		if d.paths, ok = readings(pathOf(r), d.paths); !ok {
			return nil, false
		}
	}
	host, path := hostOf(r.Host), d.paths[len(d.paths)-1]
	for _, u := range p.upstreams {
		if u.takes(host, path) {
			return u, true
		}
	}
	return nil, true
}

// pass relays r.
func (p *proxy) pass(v *visit, r *http.Request) {
	if r.ProtoMajor > 1 {
		p.gate.listening.add(&v.hearer)
		defer p.gate.listening.remove(&v.hearer)
	}
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	if v.body = newBody(v.ResponseWriter, r, p.gate.bodyIdle); v.body != nil {
		r.Body = v.body
	}
	p.relay.ServeHTTP(v, r)
	if !v.relayed {
		v.linger(r)
	}
}

// finish ends a visit. A panic costs this request and no other: it is answered
// where that is still possible, and logged.
func (p *proxy) finish(v *visit, r *http.Request) {
	v.leave()
	p.gate.noteReset(r, &v.asker)
	fault := recover()
	if fault == nil {
		v.log()
		return
	}
	defer v.log()
	v.decision = nil // it is another request's by now
	if fault != http.ErrAbortHandler {
		p.gate.panicked(fault)
		if !v.wrote {
			v.last = r.ProtoMajor == 1
			v.say(problem{Status: http.StatusInternalServerError, Detail: "this request met a fault of the gate"})
			return
		}
	}
	if v.relayed && v.wrote {
		http.NewResponseController(v.ResponseWriter).Flush() // what came before the upstream broke off is the client's
	}
	panic(http.ErrAbortHandler)
}

func (p *proxy) seen(r *http.Response) error {
	v := r.Request.Context().Value(visitKey{}).(*visit)
	v.relayed = true
	if len(r.Trailer) > 0 && r.Request.Header.Get("Te") == "trailers" {
		r.Header.Del("Content-Length") // HTTP/1 has trailers after chunks only
	}
	if r.StatusCode == http.StatusSwitchingProtocols {
		v.status = r.StatusCode
		p.gate.answered(r.StatusCode) // written past visit.WriteHeader
	}
	return nil
}
