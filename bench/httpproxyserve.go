package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

const (
	startTime = 20 * time.Second // for a proxy to take connections
	stopTime  = 15 * time.Second // for one to end when it is told to
	clockTick = 10 * time.Millisecond
)

// served is a program that was started.
type served struct {
	cmd   *exec.Cmd
	said  tail
	ended chan struct{}
	err   error // how it ended; set before ended is closed
}

// serve starts a program on some CPUs. It is told to end with this process.
func serve(cpus []int, name string, args ...string) (*served, error) {
	s := &served{cmd: onCPUs(cpus, exec.Command, name, args...), ended: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = &s.said, &s.said
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

// onCPUs makes a command that runs on these CPUs only.
func onCPUs(cpus []int, command func(string, ...string) *exec.Cmd, name string, args ...string) *exec.Cmd {
	list := make([]string, len(cpus))
	for i, cpu := range cpus {
		list[i] = strconv.Itoa(cpu)
	}
	return command("taskset", append([]string{"-c", strings.Join(list, ","), name}, args...)...)
}

// awaitPort waits until the program takes connections.
func (s *served) awaitPort(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(clockTick)
	defer tick.Stop()
	for {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-s.ended:
			return fmt.Errorf("%s ended: %w: %s", s.cmd.Path, errors.Join(s.err), s.said.String())
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", err, s.said.String())
		case <-tick.C:
		}
	}
}

// stop ends the program and waits for it.
func (s *served) stop() error {
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
		return nil
	case <-time.After(stopTime):
		syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.ended
		return fmt.Errorf("%v: still there %v after SIGTERM: killed", s.cmd.Args, stopTime)
	}
}

// cpu returns what the program and those it started have used so far, of those
// that still run. It is counted in ticks of 10 ms.
func (s *served) cpu() (time.Duration, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	stats := make(map[int]procfs.ProcStat, len(all))
	for _, p := range all {
		if st, err := p.Stat(); err == nil { // else it has ended meanwhile
			stats[p.PID] = st
		}
	}
	if _, ok := stats[s.cmd.Process.Pid]; !ok {
		return 0, fmt.Errorf("%v is gone: %s", s.cmd.Args, s.said.String())
	}
	var ticks uint
	for pid, st := range stats {
		if descends(stats, pid, s.cmd.Process.Pid) {
			ticks += st.UTime + st.STime
		}
	}
	return time.Duration(ticks) * clockTick, nil
}

func descends(stats map[int]procfs.ProcStat, pid, from int) bool {
	for range len(stats) {
		if pid == from {
			return true
		}
		st, ok := stats[pid]
		if !ok {
			return false
		}
		pid = st.PPID
	}
	return false
}

// tail keeps the end of what a program says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(len(t.text)-tailSize, 0):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}

// freeAddress returns an address of loopback that nobody listens on just now.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}
