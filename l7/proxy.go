package l7

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"
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

// warnEvery bounds the log of a failing upstream.
const warnEvery = time.Minute

func newProxy(g *Gate, l config.Listener) (*proxy, error) {
	upstreams, err := newUpstreams(l)
	if err != nil {
		return nil, err
	}
	p := &proxy{gate: g, upstreams: upstreams, dialect: l.Dialect}
	p.relay = httputil.ReverseProxy{
		Transport:      sender{p},
		FlushInterval:  -1, // what an upstream sends is not held back
		BufferPool:     new(buffers),
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

type visitKey struct{}

// visit is one request on its way through the proxy, and what its answer is
// written to.
type visit struct {
	http.ResponseWriter
	gate     *Gate
	policy   *policy
	dialect  config.Dialect
	origin   []string // of the page that asks
	asker    asker
	decision *decision // nil: not counted
	body     *body     // nil: it has none
	relayed  bool      // the answer is the upstream's
	upstream *upstream
	target   *target // that it is at; nil: at none
	wrote    bool
	last     bool // its connection brings no further request
	access        // for the log
}

// Unwrap lets http.ResponseController reach the connection.
func (v *visit) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// WriteHeader adds the limits to a final answer where they may be seen.
func (v *visit) WriteHeader(status int) {
	if status >= 200 && !v.wrote {
		v.wrote, v.status = true, status
		v.gate.answered(status)
		if _, ok := v.Header()["Content-Type"]; !ok {
			v.Header()["Content-Type"] = nil // none is guessed: the upstream said nothing
		}
		v.complete(status, v.Header())
		if v.last {
			v.Header()["Connection"] = []string{"close"}
		}
	}
	v.ResponseWriter.WriteHeader(status)
}

// complete adds to a final answer what the gate has to say.
func (v *visit) complete(status int, h http.Header) {
	if v.decision != nil && maySeeLimits(status, h) {
		v.policy.tell(h, v.dialect, v.decision.standing(), false, v.gate.Wall())
	}
	if v.relayed {
		v.policy.answers.cors.expose(h, v.dialect)
	} else {
		v.policy.answers.cors.allow(h, v.origin, v.dialect)
	}
}

func (v *visit) Write(b []byte) (int, error) {
	if !v.wrote {
		v.WriteHeader(http.StatusOK)
	}
	n, err := v.ResponseWriter.Write(b)
	v.sent += int64(n)
	return n, err
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	policy := p.gate.policy.Load()
	v := &visit{ResponseWriter: w, gate: p.gate, policy: policy, dialect: p.dialect, origin: r.Header["Origin"], last: endsConnection(r)}
	if v.dialect == "" {
		v.dialect = policy.answers.dialect
	}
	if policy.access != nil {
		v.request, v.began, v.verdict = r, p.gate.Wall(), verdictPassed
	}
	defer p.finish(v)
	d := newDecision(policy)
	defer d.release()
	if p.decide(v, d, r) {
		p.pass(v, r)
		return
	}
	hurry(w, r)
}

// decide judges r and answers it, or reports that it passes.
func (p *proxy) decide(v *visit, d *decision, r *http.Request) bool {
	policy := v.policy
	if policy.identify(r, &v.asker); v.asker.forged {
		p.gate.warnForged(v.asker.peer)
	}
	if bad := malformed(r); bad.Status != 0 {
		v.last = r.ProtoMajor == 1
		answer(v, bad)
		return false
	}
	switch d.judge(policy, r, &v.asker, p.gate.now()) {
	case refused:
		v.verdict = verdictRefused
		v.refuse(r, d)
		return false
	case blocked:
		v.verdict = verdictBlocked
		v.block()
		return false
	case unreadable:
		answer(v, tooLong)
		return false
	case pass:
		v.decision = d
		v.rule = d.watched()
	}
	var ok bool
	if v.upstream, ok = p.route(r, d); !ok {
		answer(v, tooLong)
	} else if v.upstream == nil {
		answer(v, problem{Status: http.StatusNotFound, Detail: "no upstream takes this host and path"})
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
	// An upstream may answer before it has read all: without this, the server
	// would swallow the rest of the body. Only HTTP/1 needs it.
	http.NewResponseController(v.ResponseWriter).EnableFullDuplex()
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	if v.body = newBody(v.ResponseWriter, r, p.gate.bodyIdle); v.body != nil {
		r.Body = v.body
	}
	p.relay.ServeHTTP(v, r)
}

// finish ends a visit. A panic costs this request and no other: it is answered
// where that is still possible, and logged.
func (p *proxy) finish(v *visit) {
	v.leave()
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
			v.Header().Set("Connection", "close")
			answer(v, problem{Status: http.StatusInternalServerError, Detail: "this request met a fault of the gate"})
			return
		}
	}
	panic(http.ErrAbortHandler)
}

// rewrite makes the request to the upstream: path and query as they came, the
// host as the client wrote it, and no identity that the peer made up.
func (p *proxy) rewrite(pr *httputil.ProxyRequest) {
	v := pr.In.Context().Value(visitKey{}).(*visit)
	out := pr.Out
	out.URL.RawQuery, out.URL.ForceQuery = pr.In.URL.RawQuery, pr.In.URL.ForceQuery
	out.Host = pr.In.Host
	if path := pathOf(pr.In); !strings.HasPrefix(path, "//") {
		// A path that begins with two slashes would be taken for a host here,
		// and needs no help: it is kept by Path and RawPath.
		out.URL.Opaque = path
	}
	if carriesHTTP(out.Header.Get("Upgrade")) {
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
		out.Header.Del("Http2-Settings")
	}
	policy := v.gate.policy.Load()
	policy.forward(&v.asker, pr.In, out.Header)
	if v.body != nil {
		v.body.trailers = policy.announce(pr.In, out, v.asker.declared)
	}
	v.decision.mark(out.Header)
}

// carriesHTTP reports whether what a client wants to switch to would carry more
// requests, past every rule.
func carriesHTTP(upgrade string) bool {
	for protocol := range strings.SplitSeq(strings.ToLower(upgrade), ",") {
		if name, _, _ := strings.Cut(strings.TrimSpace(protocol), "/"); name == "h2c" || name == "http" || name == "h2" || name == "tls" {
			return true
		}
	}
	return false
}

// forward tells the upstream who asks, and for what. What a declared proxy said
// is passed on.
func (p *policy) forward(a *asker, in *http.Request, out http.Header) {
	p.stripIdentity(out, a.declared)
	scheme := "http"
	if in.TLS != nil {
		scheme = "https"
	}
	out.Set("X-Forwarded-Host", in.Host)
	out.Set("X-Forwarded-Proto", scheme)
	chain := a.origin.text
	if a.declared {
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if values, ok := in.Header[name]; ok {
				out[name] = values
			}
		}
		if prior := in.Header["X-Forwarded-For"]; len(prior) > 0 && !p.forwarded {
			chain = strings.Join(prior, ", ") + ", " + chain
		} else if a.client != a.peer {
			chain = a.client.String() + ", " + chain
		}
	}
	out.Set("X-Forwarded-For", chain)
	if !p.forwarded {
		return
	}
	own := string(append(appendNode([]byte("for="), a.peer), ";proto="...)) + scheme
	if prior := in.Header["Forwarded"]; a.declared && len(prior) > 0 {
		own = strings.Join(prior, ", ") + ", " + own
	}
	out.Set("Forwarded", own)
}

func (p *proxy) seen(r *http.Response) error {
	v := r.Request.Context().Value(visitKey{}).(*visit)
	v.relayed = true
	if r.StatusCode == http.StatusSwitchingProtocols {
		v.status = r.StatusCode
		p.gate.answered(r.StatusCode) // written past visit.WriteHeader
	}
	return nil
}

// failed answers for an upstream that did not.
func (p *proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	gone := r.Context().Err() != nil
	v := r.Context().Value(visitKey{}).(*visit)
	switch body := v.body; {
	case gone && body.fellSilent(), !gone && body.isStalled():
		w.Header().Set("Connection", "close")
		answer(w, problem{Status: http.StatusRequestTimeout, Detail: "the request's body stopped coming"})
		return
	case !gone && body.isBroken():
		v.last = r.ProtoMajor == 1
		answer(w, problem{Status: http.StatusBadRequest, Detail: "the request's body is malformed or incomplete"})
		return
	case gone:
		panic(http.ErrAbortHandler) // the client is
	}
	if v.target != nil && !unreached(err) { // else it was warned of
		p.warnUpstream(v.target, err)
	}
	answer(w, problem{Status: http.StatusBadGateway, Detail: "the upstream does not answer"})
}
