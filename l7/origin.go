package l7

import (
	"net/http"
	"net/netip"

	"github.com/headgate/headgate/limit"
)

// origin is what all requests of one connection have in common under one policy.
// It is found out once a connection, not once a request, and never changed.
type origin struct {
	edition  *edition
	peer     netip.Addr // of the socket, or that the PROXY protocol names
	text     string     // the same
	declared bool       // it is a declared proxy
	forged   bool       // it is not, and its first request names another client
	bucket   [17]byte   // the peer as a client, as a part of bucket keys
	own      limit.Key  // of that client: see whom
	lost     limit.Key
}

// edition tells policies apart that differ in who is a proxy or what makes a
// client. An idle connection keeps it, and must not keep a whole policy.
type edition struct{ _ byte }

// origin returns where r comes from. What a connection keeps is that of the
// policy of its last request.
func (p *policy) origin(r *http.Request) *origin {
	c := connectionOf(r)
	if c == nil {
		return p.newOrigin(r)
	}
	o := c.origin.Load()
	if o == nil || o.edition != p.edition {
		o = p.newOrigin(r)
		c.origin.Store(o)
	}
	return o
}

func (p *policy) newOrigin(r *http.Request) *origin {
	o := &origin{edition: p.edition, peer: peerOf(r.RemoteAddr)}
	o.text, o.declared = o.peer.String(), contains(p.proxies, o.peer)
	if o.forged = !o.declared && claimsAddress(r.Header); o.forged && p.undeclared != nil {
		p.undeclared.meet(o.peer)
	}
	o.bucket = clientOf(o.peer, p.clientBits)
	a := asker{bucket: o.bucket}
	o.own, o.lost = p.whoms[ownClient].key(p.store, &a, nil), p.whoms[lostClient].key(p.store, &a, nil)
	return o
}
