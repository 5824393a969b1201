package main

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// asker sends requests and counts what is answered.
type asker struct {
	client *http.Client
	url    string
	key    string // of X-Api-Key; empty: none

	mu      sync.Mutex
	answers answers
}

// answers are what an asker got.
type answers struct {
	Served      int // 200
	Refused     int // 429 with a usable Retry-After
	Other       int // any other answer, or none
	Trouble     string
	First, Last time.Time // before the first request, after the last answer
}

// answer is one of them.
type answer struct {
	status     int
	retryAfter time.Duration // of a 429
}

// run asks at a steady pace until ctx or d ends.
func (a *asker) run(ctx context.Context, every, d time.Duration) {
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	pace := time.NewTicker(every)
	defer pace.Stop()
	for {
		a.ask()
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
	}
}

// ask sends one request, which has a time limit but is not cut short by the
// end of the demo: it would count as lost.
func (a *asker) ask() answer {
	began := time.Now()
	got, trouble := a.fetch()
	a.mu.Lock()
	defer a.mu.Unlock()
	n := &a.answers
	if n.First.IsZero() {
		n.First = began
	}
	n.Last = time.Now()
	switch {
	case trouble != "":
		n.Other++
		n.Trouble = trouble
	case got.status == http.StatusOK:
		n.Served++
	default:
		n.Refused++
	}
	return got
}

// fetch returns the answer, and what is wrong with it: it is neither 200 nor
// a 429 that says when to come back.
func (a *asker) fetch() (got answer, trouble string) {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url, nil)
	if err != nil {
		return got, err.Error()
	}
	if a.key != "" {
		req.Header.Set("X-Api-Key", a.key)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return got, err.Error()
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return got, err.Error()
	}
	got.status = resp.StatusCode
	switch resp.StatusCode {
	case http.StatusOK:
		return got, ""
	case http.StatusTooManyRequests:
		after := resp.Header.Get("Retry-After")
		seconds, err := strconv.Atoi(after)
		if err != nil || seconds < 1 {
			return got, "429 with Retry-After " + strconv.Quote(after)
		}
		got.retryAfter = time.Duration(seconds) * time.Second
		return got, ""
	}
	return got, "answer " + resp.Status
}

func (a *asker) count() answers {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answers
}
