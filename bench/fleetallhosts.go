package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	allHosts  = 8
	allBlocks = 60
)

// fleetAllHosts starts 8 daemons on one Redis and measures how long a block with
// --all-hosts takes until it is in force on all of them: the command returns
// then.
func fleetAllHosts(ctx context.Context) (_ []Result, err error) {
	r, err := startRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary := filepath.Join(dir, "headgate")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/headgate").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build headgate: %w\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "fleet.key"), []byte("a secret of the benchmark's hosts"), 0o600); err != nil {
		return nil, err
	}
	var configs []string
	for i := range allHosts {
		config := filepath.Join(dir, fmt.Sprintf("%d.yaml", i))
		text := fmt.Sprintf("version: 1\nadmin: {socket: %q, listen: off}\nstate: {dir: %q, pins: %q}\nfleet: {name: bench, secret_file: fleet.key, redis: {addresses: [%q]}}\n",
			fmt.Sprintf("%s/%d.sock", dir, i), fmt.Sprintf("%s/state-%d", dir, i), fmt.Sprintf("%s/pins-%d", dir, i), r.address)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return nil, err
		}
		configs = append(configs, config)
		cmd := exec.CommandContext(ctx, binary, "run", "-c", config)
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		defer func() { cmd.Process.Signal(syscall.SIGINT); cmd.Wait() }()
	}
	if err := awaitHosts(ctx, binary, configs[0]); err != nil {
		return nil, err
	}
	var took []float64
	missed := 0
	for n := range allBlocks {
		begin := time.Now()
		out, err := exec.CommandContext(ctx, binary, "block", fmt.Sprintf("203.0.113.%d", n), "--for", "10m", "--all-hosts", "-o", "json", "-c", configs[n%allHosts]).Output()
		if err != nil {
			return nil, fmt.Errorf("block on all hosts: %w", err)
		}
		took = append(took, float64(time.Since(begin).Microseconds())/1000)
		var reply struct {
			Fleet struct{ Hosts, Have int } `json:"fleet"`
		}
		if err := json.Unmarshal(out, &reply); err != nil || reply.Fleet.Have != allHosts {
			missed++
		}
	}
	slices.Sort(took)
	name := fmt.Sprintf("fleet: a block on %d hosts", allHosts)
	return []Result{
		{Name: name + ": p50", Value: took[len(took)/2], Unit: "ms", Spread: spread(took)},
		{Name: name + ": p99", Value: took[len(took)*99/100], Unit: "ms", Floor: "500 ms"},
		{Name: name + ": not in force on all within a second", Value: float64(missed), Unit: fmt.Sprintf("of %d", allBlocks)},
	}, nil
}

// awaitHosts waits until all daemons know each other.
func awaitHosts(ctx context.Context, binary, config string) error {
	for range 200 {
		out, err := exec.CommandContext(ctx, binary, "status", "-o", "json", "-c", config).Output()
		var st struct {
			Board struct{ Hosts []struct{ Alive bool } } `json:"board"`
		}
		if err == nil && json.Unmarshal(out, &st) == nil && len(st.Board.Hosts) == allHosts {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%d daemons on one Redis do not know each other", allHosts)
}

// freePort returns a port of loopback that nobody listens on.
func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}
