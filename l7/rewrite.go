package l7

import (
	"net/http"
	"net/http/httputil"
	"strings"
)

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
