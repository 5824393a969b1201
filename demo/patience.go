package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// patience is how a client fares that takes Retry-After at its word.
type patience struct {
	done       bool
	retryAfter time.Duration
	early      int // the status one second before it was over
	due        int // and when it was over
}

// obey spends a key's burst, which leaves a wait of just under a whole
// number of seconds, and asks again one second before Retry-After is over and
// when it is over.
func obey(ctx context.Context, a *asker, burst int) patience {
	var p patience
	for range burst {
		if got := a.ask(); got.status != http.StatusOK {
			return p
		}
	}
	refused := a.ask()
	at := time.Now()
	p.retryAfter = refused.retryAfter
	if refused.status != http.StatusTooManyRequests || p.retryAfter < 2*time.Second {
		return p
	}
	if !sleepUntil(ctx, at.Add(p.retryAfter-time.Second)) {
		return p
	}
	p.early = a.ask().status
	if !sleepUntil(ctx, at.Add(p.retryAfter)) {
		return p
	}
	p.due = a.ask().status
	p.done = true
	return p
}

func (p patience) check() check {
	c := check{What: "Retry-After is true"}
	c.OK = p.done && p.early == http.StatusTooManyRequests && p.due == http.StatusOK
	c.Found = fmt.Sprintf("said %v; a second before: %s; then: %s", p.retryAfter, status(p.early), status(p.due))
	return c
}

func status(code int) string {
	if code == 0 {
		return "not answered"
	}
	return fmt.Sprint(code)
}

func sleepUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
