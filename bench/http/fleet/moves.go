package main

import (
	"bufio"
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/limit"
)

// Move is what four hosts of one fleet admit of one key while its load moves.
type Move struct {
	Stage   string  `json:"stage"`
	Clients float64 `json:"clients"` // admitted, as the clients count, over the limit
	Redis   float64 `json:"redis"`   // debited, by the key in Redis, over the limit
	Calls   float64 `json:"calls"`   // a request, by MONITOR
	Refused int     `json:"refused"`
}

const (
	moveHosts  = 4
	moveSettle = 2 * time.Second
	moveStage  = 5 * time.Second
)

// moves offers three times the limit to one host, then to all, then to all but
// one, which is gone; and before that 80 % of it. Each stage is measured when it
// has settled.
func moves(address string, client *redis.Client) (all []Move, err error) {
	client.FlushAll(context.Background())
	var hosts []*host
	for range moveHosts {
		h, err := newHost(address)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, h)
	}
	time.Sleep(moveSettle) // until they know each other
	for _, stage := range []struct {
		name  string
		hosts []*host
		rate  float64 // of the limit
		key   string
	}{
		{"80 % on all", hosts, 0.8, "low"}, {"all on one host", hosts[:1], 3, "k"},
		{"on all hosts", hosts, 3, "k"}, {"one host gone", hosts[:moveHosts-1], 3, "k"},
	} {
		if len(stage.hosts) == moveHosts-1 {
			hosts[moveHosts-1].stop()
		}
		offer(stage.hosts, stage.key, stage.rate*perKey, moveSettle)
		watched, err := monitor(address)
		if err != nil {
			return nil, err
		}
		tat := tatOf(client)
		begin := time.Now()
		passed, refused := offer(stage.hosts, stage.key, stage.rate*perKey, moveStage)
		took := time.Since(begin).Seconds()
		debited := float64(tatOf(client)-tat) / 1e6 // seconds of the limit
		m := Move{Stage: stage.name, Clients: float64(passed) / perKey / took, Redis: debited / took, Refused: refused}
		m.Calls = float64(watched()) / float64(passed+refused)
		all = append(all, m)
	}
	for _, h := range hosts[:moveHosts-1] {
		h.stop()
	}
	return all, nil
}

// offer sends requests of key at rate a second, spread over hosts.
func offer(hosts []*host, key string, rate float64, length time.Duration) (passed, refused int) {
	var in, out atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for i, h := range hosts {
		all.Go(func() {
			for n := i; ; n += len(hosts) {
				due := time.Duration(float64(n) / rate * float64(time.Second))
				if due >= length {
					return
				}
				time.Sleep(time.Until(begin.Add(due)))
				if h.take(limit.Lines, key) {
					in.Add(1)
				} else {
					out.Add(1)
				}
			}
		})
	}
	all.Wait()
	return int(in.Load()), int(out.Load())
}

// tatOf is the latest moment, in microseconds, up to which a bucket is charged.
func tatOf(client *redis.Client) (latest int64) {
	ctx := context.Background()
	for _, k := range client.Keys(ctx, "*:b:*").Val() {
		text, _, _ := strings.Cut(client.Get(ctx, k).Val(), " ")
		if tat, err := strconv.ParseInt(text, 10, 64); err == nil {
			latest = max(latest, tat)
		}
	}
	return latest
}

// monitor counts the scripts that Redis runs, by its MONITOR, until the returned
// function is called.
func monitor(address string) (count func() int, err error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write([]byte("MONITOR\r\n")); err != nil {
		return nil, err
	}
	n, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(c); lines.Scan(); {
			if strings.Contains(strings.ToLower(lines.Text()), `"evalsha"`) {
				n++
			}
		}
	}()
	return func() int {
		c.Close()
		<-done
		return n
	}, nil
}
