package l7

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// youngTime is how long a connection may take, after the listener was closed,
// to bring its first request.
const youngTime = time.Second

// young are the connections of a server whose first request was not answered
// yet. net/http drops, without an answer, a request that it reads after Shutdown
// was called; so Shutdown waits for these.
type young struct {
	n     atomic.Int64 // conns in conns: most requests find none, and take no lock
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// follow is a http.Server.ConnState.
func (y *young) follow(c net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		y.mu.Lock()
		defer y.mu.Unlock()
		if y.conns == nil {
			y.conns = map[net.Conn]struct{}{}
		}
		y.conns[c] = struct{}{}
		y.n.Store(int64(len(y.conns)))
	case http.StateIdle, http.StateClosed, http.StateHijacked:
		if y.n.Load() == 0 {
			return
		}
		y.mu.Lock()
		defer y.mu.Unlock()
		delete(y.conns, c)
		y.n.Store(int64(len(y.conns)))
	}
}

// wait returns when there are none any more, or after most.
func (y *young) wait(most time.Duration) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	enough := time.After(most)
	for y.n.Load() > 0 {
		select {
		case <-tick.C:
		case <-enough:
			return
		}
	}
}
