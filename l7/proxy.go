package l7

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// proxy is the front door that relays to one upstream what the gate passes.
type proxy struct {
	gate     *Gate
	upstream *url.URL
	dialect  config.Dialect // "": that of the policy
	relay    httputil.ReverseProxy
	warned   atomic.Uint64 // when a failure of the upstream was last logged, in ticks
}

// warnEvery bounds the log of a failing upstream.
const warnEvery = time.Minute

func newProxy(g *Gate, l config.Listener) (*proxy, error) {
	u, err := url.Parse(l.Upstream)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("upstream %q: give a URL such as http://127.0.0.1:9000, without a path", l.Upstream)
	}
	h2c := u.Scheme == "h2c"
	if h2c {
		u.Scheme = "http"
	}
	p := &proxy{gate: g, upstream: u, dialect: l.Dialect}
	p.relay = httputil.ReverseProxy{
		Transport:      newTransport(h2c),
		FlushInterval:  -1, // what an upstream sends is not held back
		BufferPool:     new(buffers),
		Rewrite:        p.rewrite,
		ModifyResponse: p.seen,
		ErrorHandler:   p.failed,
		ErrorLog:       log.New(io.Discard, "", 0), // no line per request
	}
	return p, nil
}

// newTransport returns the way to an upstream: no proxy from the environment,
// no decompression, and no limit on how long a body or stream takes.
func newTransport(h2c bool) *http.Transport {
	speaks := new(http.Protocols)
	speaks.SetHTTP1(!h2c)
	speaks.SetHTTP2(!h2c) // by ALPN
	speaks.SetUnencryptedHTTP2(h2c)
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   256,
		// Below what common servers keep an idle connection for, lest a POST
		// meets one that is just being closed and cannot be sent again.
		IdleConnTimeout:    4 * time.Second,
		DisableCompression: true,
		Protocols:          speaks,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// close lets go of idle connections to the upstream.
func (p *proxy) close() { p.relay.Transport.(*http.Transport).CloseIdleConnections() }

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
	wrote    bool
}

// Unwrap lets http.ResponseController reach the connection.
func (v *visit) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// WriteHeader adds the limits to a final answer where they may be seen.
func (v *visit) WriteHeader(status int) {
	if status >= 200 && !v.wrote {
		v.wrote = true
		v.gate.answered(status)
		if _, ok := v.Header()["Content-Type"]; !ok {
			v.Header()["Content-Type"] = nil // none is guessed: the upstream said nothing
		}
		v.complete(status, v.Header())
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
	return v.ResponseWriter.Write(b)
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	policy := p.gate.policy.Load()
	v := &visit{ResponseWriter: w, gate: p.gate, policy: policy, dialect: p.dialect, origin: r.Header["Origin"]}
	if v.dialect == "" {
		v.dialect = policy.answers.dialect
	}
	if policy.identify(r, &v.asker); v.asker.forged {
		p.gate.warnForged(v.asker.peer)
	}
	if bad := malformed(r); bad.Status != 0 {
		answer(v, bad)
		return
	}
	d := newDecision()
	defer d.release()
	switch d.judge(policy, p.gate.store, r, &v.asker, p.gate.now()) {
	case refused:
		v.refuse(r, d)
		return
	case blocked:
		v.block()
		return
	case unreadable:
		answer(v, problem{Status: http.StatusRequestURITooLong, Detail: fmt.Sprintf("a path has at most %d bytes here, fewer if it can be read in several ways", longestPath)})
		return
	case pass:
		v.decision = d
	}
	// An upstream may answer before it has read all: without this, the server
	// would swallow the rest of the body. Only HTTP/1 needs it.
	http.NewResponseController(w).EnableFullDuplex()
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	if v.body = newBody(w, r, p.gate.bodyIdle); v.body != nil {
		r.Body = v.body
	}
	p.relay.ServeHTTP(v, r)
}

// malformed returns the answer to a request that no rule could hold, or none.
func malformed(r *http.Request) problem {
	switch {
	case r.Method == http.MethodConnect:
		return problem{Status: http.StatusMethodNotAllowed, Detail: "this is no tunnel"}
	case strings.Contains(r.RequestURI, "#"):
		// Not allowed in a request (RFC 9112, 3.2); some servers cut there.
		return problem{Status: http.StatusBadRequest, Detail: "a request has no fragment"}
	}
	return problem{}
}

// rewrite makes the request to the upstream: path and query as they came, the
// host as the client wrote it, and no identity that the peer made up.
func (p *proxy) rewrite(pr *httputil.ProxyRequest) {
	v := pr.In.Context().Value(visitKey{}).(*visit)
	out := pr.Out
	out.URL.Scheme, out.URL.Host = p.upstream.Scheme, p.upstream.Host
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
	v.gate.policy.Load().forward(&v.asker, pr.In, out.Header)
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
	chain := a.peer.String()
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
	r.Request.Context().Value(visitKey{}).(*visit).relayed = true
	if r.StatusCode == http.StatusSwitchingProtocols {
		p.gate.answered(r.StatusCode) // written past visit.WriteHeader
	}
	return nil
}

// failed answers for an upstream that did not.
func (p *proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	gone := r.Context().Err() != nil
	switch body := r.Context().Value(visitKey{}).(*visit).body; {
	case gone && body.fellSilent(), !gone && body.isStalled():
		w.Header().Set("Connection", "close")
		answer(w, problem{Status: http.StatusRequestTimeout, Detail: "the request's body stopped coming"})
		return
	case gone:
		panic(http.ErrAbortHandler) // the client is
	}
	now := p.gate.now() | 1 // 0: never warned
	if last := p.warned.Load(); (last == 0 || now-last >= limit.FromDuration(warnEvery)) && p.warned.CompareAndSwap(last, now) {
		p.gate.log.Warn("upstream does not answer", "upstream", p.upstream.Host, "error", err)
	}
	answer(w, problem{Status: http.StatusBadGateway, Detail: "the upstream does not answer"})
}
