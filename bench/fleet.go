package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/fleet/sim"
)

// fleetPart measures counting together. First what a request costs Redis and
// this host by the credit line, by a call a decision and by redis_rate, in one
// run on one Redis; then how long decisions take while Redis lives, is slow and
// is dead; what the simulator says of 8 and 64 hosts; and how soon a block is in
// force on 8 hosts.
func fleetPart(ctx context.Context, _ options) ([]Result, error) {
	r, err := startRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	lines, err := fleetLoad(ctx, r.address, "alive")
	if err != nil {
		return nil, err
	}
	all := fleetCosts(lines)
	moved, err := fleetMoves(ctx, r.address)
	if err != nil {
		return nil, err
	}
	all = append(all, moved...)
	outages, err := fleetOutages(ctx, r)
	if err != nil {
		return nil, err
	}
	simulated, err := fleetSimulated()
	if err != nil {
		return nil, err
	}
	everywhere, err := fleetAllHosts(ctx)
	if err != nil {
		return nil, err
	}
	all = append(all, outages...)
	all = append(all, simulated...)
	return append(all, everywhere...), nil
}

// fleetLine is what bench/http/fleet prints of one load.
type fleetLine struct {
	Who      string  `json:"who"`
	Rate     int     `json:"rate"`
	Keys     int     `json:"keys"`
	Requests int     `json:"requests"`
	Calls    float64 `json:"calls"`
	RedisCPU float64 `json:"redis_cpu"`
	OwnCPU   float64 `json:"own_cpu"`
	P99      float64 `json:"p99"`
	Refused  int     `json:"refused"`
}

// fleetMoves is what four hosts admit of one limit while its load moves: on one of
// them, on all, and when one is gone.
func fleetMoves(ctx context.Context, address string) (all []Result, err error) {
	moves, err := fleetRun[struct {
		Stage                 string
		Clients, Redis, Calls float64
		Refused               int
	}](ctx, address, "moves")
	for _, m := range moves {
		name := "fleet: 4 hosts, " + m.Stage
		if m.Stage == "80 % on all" {
			all = append(all, Result{Name: name + ": refused", Value: float64(m.Refused), Unit: "requests", Floor: "0"})
			continue
		}
		all = append(all,
			Result{Name: name + ": admitted by clients' count", Value: m.Clients, Unit: "of the limit", Floor: "0.97 to 1.03"},
			Result{Name: name + ": debited in Redis", Value: m.Redis, Unit: "of the limit", Floor: "0.97 to 1.03"},
			Result{Name: name + ": calls by MONITOR", Value: m.Calls, Unit: "calls/request"})
	}
	return all, err
}

// fleetLoad runs the loads.
func fleetLoad(ctx context.Context, address, state string) ([]fleetLine, error) {
	return fleetRun[fleetLine](ctx, address, state)
}

// fleetRun runs bench/http/fleet and reads what it prints.
func fleetRun[T any](ctx context.Context, address, state string) ([]T, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./fleet", "-redis", address, "-state", state)
	cmd.Dir = "bench/http"
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("load a fleet's Redis: %w\n%s", err, &stderr)
	}
	var all []T
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var l T
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("read %q: %w", lines.Text(), err)
		}
		all = append(all, l)
	}
	return all, nil
}

// fleetCosts is what the loads cost, beside redis_rate.
func fleetCosts(lines []fleetLine) (all []Result) {
	name := func(l fleetLine, what string) string {
		return fmt.Sprintf("fleet: %s, %d/s, %s keys: %s", l.Who, l.Rate, keysText(l.Keys), what)
	}
	for _, l := range lines {
		peer := l
		peer.Who = "redis_rate"
		calls := Result{Name: name(l, "calls"), Value: l.Calls, Unit: "calls/request", To: name(peer, "calls")}
		if l.Who == "credit line" && l.Rate == 10_000 {
			calls.Floor = "0.01"
		}
		all = append(all, calls,
			Result{Name: name(l, "CPU of Redis"), Value: l.RedisCPU, Unit: "µs/request", To: name(peer, "CPU of Redis")},
			Result{Name: name(l, "CPU of the host"), Value: l.OwnCPU, Unit: "µs/request", To: name(peer, "CPU of the host")},
			Result{Name: name(l, "p99"), Value: l.P99, Unit: "µs", To: name(peer, "p99")})
	}
	return withRatios(all)
}

func keysText(n int) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%dM", n/1_000_000)
	case n >= 1000:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprint(n)
}

// fleetOutages measures decisions while Redis stands still every other 20 ms, and
// while it is dead.
func fleetOutages(ctx context.Context, r *redisServer) (all []Result, err error) {
	add := func(state string) error {
		lines, err := fleetLoad(ctx, r.address, state)
		for _, l := range lines {
			to := ""
			if state != "alive" {
				to = fmt.Sprintf("fleet: %s, Redis steady: p99", l.Who)
			}
			all = append(all, Result{Name: fmt.Sprintf("fleet: %s, Redis %s: p99", l.Who, state), Value: l.P99, Unit: "µs", To: to})
		}
		return err
	}
	if err := add("steady"); err != nil {
		return nil, err
	}
	slow, end := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for slow.Err() == nil {
			r.cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(20 * time.Millisecond)
			r.cmd.Process.Signal(syscall.SIGCONT)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	err = add("slow")
	end()
	<-stopped
	if err != nil {
		return nil, err
	}
	r.stop()
	if err := add("dead"); err != nil {
		return nil, err
	}
	return withRatios(all), nil
}

// fleetSimulated is what the simulator says of one hot key of 1000/s, burst
// 1000, over 20 s: what more than the limit the worst second admits of 100 times
// the load, and what is refused wrongly at 95 %.
func fleetSimulated() (all []Result, err error) {
	for _, hosts := range []int{8, 64} {
		c := sim.Config{Seed: 1, Hosts: hosts, Rate: 1000, Burst: 1000, Length: 20 * time.Second}
		c.Load = func(time.Duration, int) float64 { return 100_000 / float64(hosts) }
		over, err := sim.Run(c)
		if err != nil {
			return nil, err
		}
		c.Load = func(time.Duration, int) float64 { return 950 / float64(hosts) }
		below, err := sim.Run(c)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("fleet: %d hosts simulated", hosts)
		all = append(all,
			Result{Name: name + ": overshoot in the worst second", Value: math.Max(0, float64(over.Window(time.Second))/2000-1) * 100, Unit: "%", Floor: "5 %"},
			Result{Name: name + ": calls at 100 times the load", Value: float64(over.Calls) / float64(over.Offered), Unit: "calls/request"},
			Result{Name: name + ": refused wrongly at 95 %", Value: 100 * float64(below.Wrong) / float64(below.Offered), Unit: "%", Floor: "1 %"})
	}
	return all, nil
}

// redisServer is a Redis of the benchmark's own.
type redisServer struct {
	cmd     *exec.Cmd
	address string
	ended   chan struct{}
}

// startRedis starts one on a free port of loopback.
func startRedis(ctx context.Context) (*redisServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	r := &redisServer{address: fmt.Sprintf("127.0.0.1:%d", port), ended: make(chan struct{})}
	r.cmd = exec.CommandContext(ctx, "redis-server", "--bind", "127.0.0.1", "--port", fmt.Sprint(port), "--save", "", "--dir", "/tmp")
	out := &bytes.Buffer{}
	r.cmd.Stdout, r.cmd.Stderr = out, out
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server: %w (deploy/packages bench installs it)", err)
	}
	go func() { r.cmd.Wait(); close(r.ended) }()
	for range 200 {
		ping, err := exec.CommandContext(ctx, "redis-cli", "-p", fmt.Sprint(port), "ping").Output()
		if err == nil && strings.HasPrefix(string(ping), "PONG") {
			return r, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.stop()
	return nil, errors.New("redis-server does not answer:\n" + out.String())
}

func (r *redisServer) stop() {
	r.cmd.Process.Signal(syscall.SIGCONT)
	r.cmd.Process.Kill()
	<-r.ended
}
