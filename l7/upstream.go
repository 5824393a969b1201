package l7

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

const (
	// answerTime is how long an upstream may think about a request, unless the
	// listener has another figure.
	answerTime = time.Minute
	// restTime is how long a URL that could not be reached is passed over while
	// there are others.
	restTime = 5 * time.Second
	// mostTries is how many URLs are tried for one request.
	mostTries = 3
	// sickAfter is how many checks in a row fail before a URL is passed over.
	sickAfter = 2
)

// upstream is a config.Upstream made ready.
type upstream struct {
	hosts     []string
	paths     []pattern
	targets   []*target
	least     bool
	turn      atomic.Uint32
	transport *http.Transport
	check     *config.HealthCheck
}

// target is one URL of an upstream and how it fares.
type target struct {
	scheme, host string
	inFlight     atomic.Int64
	rests        atomic.Uint64 // until when it is passed over, in ticks; 0: it is not
	sick         atomic.Bool   // the last checks failed
	warned       atomic.Uint64 // when a failure was last logged, in ticks
}

// newUpstreams makes those of a listener ready.
func newUpstreams(l config.Listener) ([]*upstream, error) {
	all := l.Upstreams
	if len(all) == 0 {
		all = []config.Upstream{{URLs: []string{l.Upstream}}}
	}
	out := make([]*upstream, len(all))
	for i, u := range all {
		var err error
		if out[i], err = newUpstream(u, cmp.Or(l.AnswerTimeout, answerTime)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func newUpstream(c config.Upstream, answerTime time.Duration) (*upstream, error) {
	m, err := newMatcher(config.Match{Hosts: c.Hosts, Paths: c.Paths})
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	u := &upstream{hosts: m.hosts, paths: m.paths, least: c.Balance == config.LeastRequests, check: c.Check}
	h2c := false
	for i, text := range c.URLs {
		t, err := url.Parse(text)
		if err != nil || t.Scheme != "http" && t.Scheme != "https" && t.Scheme != "h2c" || t.Host == "" || strings.Trim(t.Path, "/") != "" {
			return nil, fmt.Errorf("upstream %q: give a URL such as http://127.0.0.1:9000, without a path", text)
		}
		if i > 0 && h2c != (t.Scheme == "h2c") {
			return nil, fmt.Errorf("upstream %q: it has another scheme than the first", text)
		}
		if h2c = t.Scheme == "h2c"; h2c {
			t.Scheme = "http"
		}
		u.targets = append(u.targets, &target{scheme: t.Scheme, host: t.Host})
	}
	if len(u.targets) == 0 {
		return nil, errors.New("upstream without a URL")
	}
	u.transport = newTransport(h2c, len(u.targets) > 1, answerTime)
	return u, nil
}

// newTransport returns the way to an upstream: no proxy from the environment,
// no decompression, and no limit on how long a body or stream takes, but on how
// long an answer takes to begin once the request is sent. Where there are others
// to turn to, a connection is given up sooner.
func newTransport(h2c, several bool, answerTime time.Duration) *http.Transport {
	speaks := new(http.Protocols)
	speaks.SetHTTP1(!h2c)
	speaks.SetHTTP2(!h2c) // by ALPN
	speaks.SetUnencryptedHTTP2(h2c)
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	if several {
		dialer.Timeout = 3 * time.Second
	}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		ResponseHeaderTimeout:  answerTime,
		MaxResponseHeaderBytes: 256 << 10,
		MaxIdleConnsPerHost:    256,
		// Below what common servers keep an idle connection for, lest a POST
		// meets one that is just being closed and cannot be sent again.
		IdleConnTimeout:    4 * time.Second,
		DisableCompression: true,
		Protocols:          speaks,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// takes reports whether u relays requests for host and path, in normal forms.
func (u *upstream) takes(host, path string) bool {
	if len(u.hosts) > 0 && !slices.ContainsFunc(u.hosts, func(h string) bool { return hostMatches(h, host) }) {
		return false
	}
	return len(u.paths) == 0 || slices.ContainsFunc(u.paths, func(p pattern) bool { return p.match(path) })
}

// hostMatches reports whether host is pattern, or below it where that is
// "*.example.com".
func hostMatches(pattern, host string) bool {
	if below, ok := strings.CutPrefix(pattern, "*"); ok {
		return len(host) > len(below) && strings.HasSuffix(host, below)
	}
	return host == pattern
}

// pick returns the target that is next, not one of those tried. One that rests
// or is sick is taken when there is no other.
func (u *upstream) pick(now limit.Ticks, tried []*target) *target {
	if len(u.targets) == 1 {
		return u.targets[0]
	}
	from := int(u.turn.Add(1) % uint32(len(u.targets)))
	var best, poor *target
	for i := range u.targets {
		t := u.targets[(from+i)%len(u.targets)]
		switch {
		case slices.Contains(tried, t):
		case t.sick.Load() || t.rests.Load() > uint64(now):
			if poor == nil {
				poor = t
			}
		case best == nil || u.least && t.inFlight.Load() < best.inFlight.Load():
			best = t
		}
		if best != nil && !u.least {
			break
		}
	}
	if best == nil {
		best = poor
	}
	return best
}

// send is the proxy's http.RoundTripper. A request that reached no server, and
// that may be sent twice (RFC 9110, 9.2.2), goes to another URL of its upstream.
func (p *proxy) send(r *http.Request) (*http.Response, error) {
	v := r.Context().Value(visitKey{}).(*visit)
	u := v.upstream
	tries := 1
	if idempotent(r.Method) {
		tries = min(mostTries, len(u.targets))
	}
	if tries > 1 && r.Body != nil {
		r.Body = io.NopCloser(r.Body) // a transport that failed closes it; the proxy does so itself
	}
	var tried [mostTries]*target
	for n := range tries {
		t := u.pick(p.gate.now(), tried[:n])
		v.leave()
		v.target, tried[n] = t, t
		t.inFlight.Add(1)
		r.URL.Scheme, r.URL.Host = t.scheme, t.host // r is the proxy's own
		resp, err := u.transport.RoundTrip(r)
		if err == nil {
			if t.rests.Load() != 0 {
				t.rests.Store(0)
			}
			return resp, nil
		}
		if !unreached(err) {
			return nil, err
		}
		t.rests.Store(uint64(p.gate.now() + limit.FromDuration(restTime)))
		p.warnUpstream(t, err)
		if n+1 == tries || r.Context().Err() != nil {
			return nil, err
		}
	}
	panic("no try was made")
}

// idempotent are the methods of RFC 9110, 9.2.2.
func idempotent(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}

// unreached reports whether a request failed before a connection was there.
func unreached(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// leave ends what v counts for at the target it was sent to.
func (v *visit) leave() {
	if v.target != nil {
		v.target.inFlight.Add(-1)
		v.at, v.target = v.target.host, nil
	}
}

// warnUpstream says, once in a while, that a target does not answer.
func (p *proxy) warnUpstream(t *target, err error) {
	now := p.gate.now() | 1 // 0: never warned
	if last := t.warned.Load(); (last == 0 || now-last >= limit.FromDuration(warnEvery)) && t.warned.CompareAndSwap(last, now) {
		p.gate.log.Warn("upstream does not answer", "upstream", t.host, "error", err)
	}
}

// watch asks each URL of u, each interval, how it fares until ctx ends.
func (p *proxy) watch(ctx context.Context, u *upstream) {
	for _, t := range u.targets {
		p.checks.Go(func() {
			client := &http.Client{
				Transport: u.transport, Timeout: max(u.check.Interval, time.Second),
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			}
			tick := time.NewTicker(u.check.Interval)
			defer tick.Stop()
			for failed := 0; ; {
				err := ask(ctx, client, t.scheme+"://"+t.host+u.check.Path)
				switch {
				case ctx.Err() != nil:
					return
				case err == nil:
					if failed = 0; t.sick.CompareAndSwap(true, false) {
						p.gate.log.Info("upstream is well again", "upstream", t.host)
					}
				default:
					if failed++; failed >= sickAfter && t.sick.CompareAndSwap(false, true) {
						p.gate.log.Warn("upstream is sick: passed over while others are well", "upstream", t.host, "error", err)
					}
				}
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
}

// ask makes one check.
func ask(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "headgate-check")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("answered %d", resp.StatusCode)
	}
	return nil
}
