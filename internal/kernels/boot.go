package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/kernels/serial"
)

// patience is how long a machine may take. It has no hardware help: it takes
// half a minute where nothing else is done, and longer on a busy one.
const patience = 10 * time.Minute

// run is what a kernel said.
type run struct {
	release string
	refused string
	loaded  *serial.Step
	tables  []serial.Step
	checks  []serial.Step
	ended   bool
	trouble []string // lines of the kernel's own that tell of a fault
	last    []string // the last lines that were no steps
}

// boot starts a kernel under QEMU and listens until the machine ends.
func boot(ctx context.Context, k *kernel, init, dir string) (*run, error) {
	archive := filepath.Join(dir, "initramfs")
	if err := writeInitramfs(k, init, archive); err != nil {
		return nil, err
	}
	defer os.Remove(archive)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-accel", "tcg", "-cpu", "max", "-m", "1024", "-smp", "2",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", k.image, "-initrd", archive,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start QEMU: %w (deploy/packages kernels installs it)", err)
	}
	r := &run{}
	readErr := serial.Read(out, func(s serial.Step) {
		r.note(s)
		fmt.Println("  " + inWords(s))
	}, r.other)
	waitErr := cmd.Wait()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return r, fmt.Errorf("the machine did not end within %v", patience)
	}
	return r, errors.Join(readErr, waitErr)
}

func writeInitramfs(k *kernel, init, archive string) error {
	files, err := k.initramfs(init)
	if err != nil {
		return err
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	return errors.Join(writeCPIO(f, files), f.Close())
}

func (r *run) note(s serial.Step) {
	switch s.Kind {
	case serial.Release:
		r.release = s.Text
	case serial.Refused:
		r.refused = s.Text
	case serial.Loaded:
		r.loaded = &s
	case serial.Table:
		r.tables = append(r.tables, s)
	case serial.Check:
		r.checks = append(r.checks, s)
	case serial.End:
		r.ended = true
	}
}

func (r *run) other(line string) {
	const keep = 30
	for _, sign := range []string{"Kernel panic", "BUG:", "Oops", "WARNING:", "Call Trace"} {
		if strings.Contains(line, sign) {
			r.trouble = append(r.trouble, line)
		}
	}
	r.last = append(r.last, line)
	r.last = r.last[max(0, len(r.last)-keep):]
}

// inWords is a step in one line, and a line more for each fault.
func inWords(s serial.Step) string {
	line := ""
	switch s.Kind {
	case serial.Release:
		line = "Linux " + s.Text
	case serial.Refused:
		line = "refused: " + s.Text
	case serial.Loaded:
		line = fmt.Sprintf("loaded: the verifier walked %d instructions, %d of the plain program", s.Frags, s.Plain)
	case serial.Table:
		line = fmt.Sprintf("table %s: %d frames passed, %d failed", s.Name, s.Passed, len(s.Failed))
		if s.NotRun > 0 {
			line += fmt.Sprintf(", %d not run (a test run fills the first buffer here)", s.NotRun)
		}
	case serial.Check:
		line = s.Name + ": passed"
		if s.Text != "" {
			line = s.Name + ": not made: " + s.Text
		}
		if len(s.Failed) > 0 {
			line = s.Name + ": FAILED"
		}
	case serial.End:
		line = "ended"
	}
	for _, f := range s.Failed {
		line += "\n    " + strings.ReplaceAll(f, "\n", "\n    ")
	}
	return line
}
