package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// daemon is a running headgate.
type daemon struct {
	world  *world
	binary string
	cmd    *exec.Cmd
	log    *os.File
	ended  chan struct{}
	err    error // how it ended, once it has
}

// startDaemon starts the binary in the gate's namespace. Its output goes to
// a file, which is shown if it fails.
func startDaemon(w *world, binary string) (*daemon, error) {
	d := &daemon{world: w, binary: binary, ended: make(chan struct{})}
	var err error
	if d.log, err = os.Create(filepath.Join(w.dir, "headgate.log")); err != nil {
		return nil, err
	}
	d.cmd = d.command("run")
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	// Ctrl-C is for the demo, which then ends the daemon in its order.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		d.log.Close()
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()
	return d, nil
}

func (d *daemon) command(args ...string) *exec.Cmd {
	return rig.Command(d.world.net.Gate, d.binary, append(args, "-c", d.world.config)...)
}

// ask runs a command of the CLI and returns what it prints.
func (d *daemon) ask(args ...string) (string, error) {
	cmd := d.command(args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("headgate %v: %w: %s", args, err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// stop ends the daemon and takes the filter, which outlives it, off the
// interface.
func (d *daemon) stop() error {
	defer d.log.Close()
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(10 * time.Second):
		syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL)
		<-d.ended
		return fmt.Errorf("stop the daemon: still running 10 s after SIGTERM: killed")
	}
	_, err := d.ask("detach", "--all")
	return err
}

// logTail returns the end of what the daemon has said.
func (d *daemon) logTail() string {
	const most = 4 << 10
	text, err := os.ReadFile(d.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}
