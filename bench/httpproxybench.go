package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/load"
	"golang.org/x/sys/unix"
)

// proxyBench is all proxies in place, each a process of its own, with one upstream
// behind them. They have CPUs to themselves, the load and the upstream the others.
type proxyBench struct {
	ctx                 context.Context
	keys                int // API keys of the load
	dir                 string
	headgate, loader    string // binaries
	proxyCPUs, loadCPUs []int
	upstream            string // its address
	endUpstream         func() error
	proxies             []*proxyUnder
}

// newProxyBench builds what it needs in dir and starts the upstream. The load will
// have so many API keys.
func newProxyBench(ctx context.Context, dir string, keys int) (*proxyBench, error) {
	b := &proxyBench{ctx: ctx, keys: keys, dir: dir, headgate: filepath.Join(dir, "headgate"), loader: filepath.Join(dir, "load")}
	var err error
	if b.proxyCPUs, b.loadCPUs, err = halves(); err != nil {
		return nil, err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	for _, build := range [][]string{
		{"build", "-C", root, "-o", b.headgate, "./cmd/headgate"},
		{"build", "-C", filepath.Join(root, "bench", "http"), "-o", b.loader, "./load"},
	} {
		cmd := exec.CommandContext(ctx, "go", build...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is shipped
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go %v: %w\n%s", build, err, out)
		}
	}
	// who the HTTP gate's process runs as must reach its config, and no more
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	if err := b.startUpstream(); err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	return b, nil
}

// moduleRoot returns the folder of go.mod.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// halves shares out the CPUs that this process may use.
func halves() (proxies, others []int, err error) {
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		return nil, nil, fmt.Errorf("read own CPUs: %w", err)
	}
	var all []int
	for cpu := range len(own) * 64 {
		if own.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	if len(all) == 1 {
		return all, all, nil
	}
	return all[:len(all)/2], all[len(all)/2:], nil
}

// startUpstream starts the upstream, which ends with its standard input.
func (b *proxyBench) startUpstream() error {
	cmd := onCPUs(b.loadCPUs, exec.Command, b.loader, "upstream")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	b.endUpstream = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return errors.Join(fmt.Errorf("it told no address: %w", err), b.endUpstream())
	}
	go io.Copy(io.Discard, out)
	b.upstream = strings.TrimSpace(line)
	return nil
}

// add starts a product with and without limits, and with limits far exceeded.
func (b *proxyBench) add(k proxyKind) error {
	for _, s := range []struct{ limits, refuse bool }{{}, {limits: true}, {true, true}} {
		p, err := k.start(b, s.limits, s.refuse)
		if err != nil {
			return err
		}
		b.proxies = append(b.proxies, p)
	}
	return nil
}

// addAll starts every product that this host has.
func (b *proxyBench) addAll() error {
	for _, k := range proxyKinds {
		if err := k.here(); err != nil {
			fmt.Fprintf(os.Stderr, "bench: http: %s is left out: %v\n", k.product, err)
			continue
		}
		if err := b.add(k); err != nil {
			return err
		}
	}
	return nil
}

func (b *proxyBench) close() error {
	var errs []error
	for _, p := range b.proxies {
		errs = append(errs, p.stop())
	}
	return errors.Join(append(errs, b.endUpstream())...)
}

// driven is what came of one load.
type driven struct {
	load.Report
	cpu time.Duration // a request, of the proxy's processes
}

// drive sends p a load and returns what came of it.
func (b *proxyBench) drive(p *proxyUnder, l load.Load) (driven, error) {
	l.URL, l.Keys = "http://"+p.Listen+"/item", b.keys
	text, err := json.Marshal(l)
	if err != nil {
		return driven{}, err
	}
	before, err := p.cpu()
	if err != nil {
		return driven{}, err
	}
	ctx, cancel := context.WithTimeout(b.ctx, l.Warm+l.For+time.Minute)
	defer cancel()
	command := func(name string, args ...string) *exec.Cmd { return exec.CommandContext(ctx, name, args...) }
	cmd := onCPUs(b.loadCPUs, command, b.loader, "drive", string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return driven{}, fmt.Errorf("drive %s: %w", p.name(), errors.Join(err, ctx.Err()))
	}
	after, err := p.cpu()
	if err != nil {
		return driven{}, err
	}
	var d driven
	if err := json.Unmarshal(out, &d.Report); err != nil {
		return driven{}, fmt.Errorf("drive %s: %w", p.name(), err)
	}
	if err := d.Check(p.status()); err != nil {
		return driven{}, fmt.Errorf("drive %s: %w", p.name(), err)
	}
	d.cpu = (after - before) / time.Duration(d.Sent)
	return d, nil
}
