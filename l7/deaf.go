package l7

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// listening watches those who are written to on HTTP/2. A client there may open
// no window for the answer and yet keep the connection alive, so that no timeout
// of the connection ever ends the wait. Whether a write goes on is noted with
// two stores; only the watch itself looks at a clock.
type listening struct {
	round atomic.Uint32 // of the watch, from 1 on

	mu    sync.Mutex
	first *hearer
}

// rounds is how many rounds of the watch a write may take.
const rounds = 4

// hearer is an answer on its way, in the list of all.
type hearer struct {
	http.ResponseWriter
	since      atomic.Uint32 // the round in which a write began; 0: none goes on
	next, prev *hearer
}

func (l *listening) add(h *hearer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.next = l.first; h.next != nil {
		h.next.prev = h
	}
	l.first = h
}

func (l *listening) remove(h *hearer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.next != nil {
		h.next.prev = h.prev
	}
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		l.first = h.next
	}
	h.next, h.prev = nil, nil
}

// begin and end stand around each write.
func (l *listening) begin(h *hearer) { h.since.Store(l.round.Load()) }

func (h *hearer) end() { h.since.Store(0) }

// cut ends the writes that have waited for all rounds.
func (l *listening) cut() {
	round := l.round.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := l.first; h != nil; h = h.next {
		if since := h.since.Load(); since != 0 && round-since > rounds {
			http.NewResponseController(h.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
		}
	}
}

// watchDeaf cuts off who does not listen, until the gate is shut down.
func (g *Gate) watchDeaf() {
	tick := time.NewTicker(g.deafTime / rounds)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.listening.cut()
		case <-g.stop:
			return
		}
	}
}
