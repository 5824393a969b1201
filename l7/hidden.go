package l7

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// Hidden tells how much of what arrives seems to come through a proxy that is not
// declared: from few addresses, with headers that name other clients. Such clients
// share the buckets of the proxy's address.
type Hidden struct {
	Requests  uint64 `json:"requests"`  // with such headers, from undeclared addresses
	Of        uint64 `json:"of"`        // all requests answered since then
	Addresses int    `json:"addresses"` // that they came from, at most mostUndeclared + 1
}

const (
	// mostUndeclared is how many addresses are few: proxies, and not clients that
	// write headers of their own.
	mostUndeclared = 4

	// leastHidden is how many requests tell anything.
	leastHidden = 100
)

// Likely reports whether nearly all requests come through an undeclared proxy.
func (h Hidden) Likely() bool {
	return h.Requests >= leastHidden && h.Requests >= h.Of/10*9 && h.Addresses <= mostUndeclared
}

// undeclared counts for Hidden, since the list of proxies last changed.
type undeclared struct {
	requests atomic.Uint64

	mu    sync.Mutex
	peers map[netip.Addr]bool
	since uint64 // requests answered before
}

// meet notes where a connection comes from whose requests name another client.
func (u *undeclared) meet(peer netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.peers) <= mostUndeclared {
		u.peers[peer] = true
	}
}

// reset begins anew after so many requests were answered.
func (u *undeclared) reset(answered uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests.Store(0)
	u.peers, u.since = map[netip.Addr]bool{}, answered
}

// Hidden tells what seems to come through a proxy that is not declared, since
// the proxies that are declared last changed.
func (g *Gate) Hidden() Hidden {
	answered := g.answeredInAll()
	u := &g.undeclared
	u.mu.Lock()
	defer u.mu.Unlock()
	return Hidden{Requests: u.requests.Load(), Of: answered - u.since, Addresses: len(u.peers)}
}

func (g *Gate) answeredInAll() (all uint64) {
	for status := range g.statuses {
		all += g.statuses[status].Load()
	}
	return all
}
