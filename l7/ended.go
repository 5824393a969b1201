package l7

import (
	"net/netip"
	"sync/atomic"

	"github.com/headgate/headgate/limit"
)

// EndReason is why the gate ended a connection without an answer. Each is a metric
// label.
type EndReason string

const (
	// EndHeld: the client held as many connections as it may.
	EndHeld EndReason = "held"
	// EndResets: it reset its streams of HTTP/2 faster than anybody has to.
	EndResets EndReason = "resets"
	// EndUndeclared: the listener expects the PROXY protocol, and the peer is no
	// declared proxy.
	EndUndeclared EndReason = "proxy_undeclared"
	// EndMissing: it is one, and began with something else.
	EndMissing EndReason = "proxy_missing"
	// EndLate: its header was not whole in time.
	EndLate EndReason = "proxy_late"
	// EndMalformed: its header makes no sense.
	EndMalformed EndReason = "proxy_malformed"
	// EndUnexpected: a header of the PROXY protocol where none is expected.
	EndUnexpected EndReason = "proxy_unexpected"
)

// EndReasons are all there are.
var EndReasons = []EndReason{EndHeld, EndResets, EndUndeclared, EndMissing, EndLate, EndMalformed, EndUnexpected}

// cures says, of the causes that are mistakes more often than attacks, what
// happened and what to do.
var cures = map[EndReason]string{
	EndUndeclared: "a connection to a listener with proxy_protocol comes from an undeclared peer and is closed: " +
		"if it is a proxy of yours, name it in http.proxies",
	EndMissing: "a declared proxy does not begin with the PROXY protocol and its connection is closed: " +
		"switch it on there, or take proxy_protocol from the listener",
	EndLate:      "a declared proxy did not send its header of the PROXY protocol in time and its connection is closed",
	EndMalformed: "a declared proxy sends a header of the PROXY protocol that makes no sense and its connection is closed: it has to be version 1 or 2",
	EndUnexpected: "a connection begins with the PROXY protocol where none is expected and is closed: " +
		"if the peer is a proxy of yours, name it in http.proxies and set proxy_protocol on the listener, or all its clients share one bucket",
}

// ended counts connections by why they were ended.
type ended map[EndReason]*endedCount

type endedCount struct {
	n    atomic.Uint64
	last atomic.Uint64 // when one was last logged, in ticks; 0: never
}

func newEnded() ended {
	e := ended{}
	for _, c := range EndReasons {
		e[c] = new(endedCount)
	}
	return e
}

// end counts one, and logs one of a kind a minute at most.
func (g *Gate) end(c EndReason, peer netip.Addr) {
	e := g.ended[c]
	e.n.Add(1)
	cure := cures[c]
	now := g.now() | 1
	if last := e.last.Load(); cure != "" && (last == 0 || now-last >= limit.FromDuration(warnEvery)) && e.last.CompareAndSwap(last, now) {
		g.log.Warn(cure, "peer", peer, "reason", c)
	}
}

// EndedConnections returns how many connections were ended without an answer, by
// reason.
func (g *Gate) EndedConnections() map[EndReason]uint64 {
	all := make(map[EndReason]uint64, len(g.ended))
	for c, e := range g.ended {
		all[c] = e.n.Load()
	}
	return all
}
