// Command init is the first and only process of a kernel under test: it loads
// the program, runs the packet tables, attaches to what interfaces the kernel
// can make, sends real packets, says on the serial line what became of each
// step, and ends the machine.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/internal/kernels/serial"
	"github.com/headgate/headgate/maps"
	"golang.org/x/sys/unix"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: not the first process of a machine: make test-kernels starts it")
		os.Exit(2)
	}
	run()
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

func run() {
	if len(os.Args) == 1 {
		// packages look into /proc when they are initialized: start again, with it
		err := prepare()
		if err == nil {
			err = unix.Exec("/init", []string{"/init", "mounted"}, os.Environ())
		}
		say(serial.Step{Kind: serial.Refused, Text: "start init: " + err.Error()})
		return
	}
	var name unix.Utsname
	unix.Uname(&name)
	say(serial.Step{Kind: serial.Release, Text: unix.ByteSliceToString(name.Release[:])})
	g, err := maps.Open(maps.Options{Slots: slots, Clock: maps.ClockFixed})
	if err != nil {
		say(serial.Step{Kind: serial.Refused, Text: err.Error(), Failed: verifierLog(err)})
		return
	}
	sayLoaded(g)
	runTables(g)
	g.Close()
	runChecks()
	say(serial.Step{Kind: serial.End})
}

// slots is the smallest bucket table.
const slots = 4096

func say(s serial.Step) { serial.Write(os.Stdout, s) }

// verifierLog is the end of what the verifier said, if it was asked.
func verifierLog(err error) []string {
	const enough = 60
	var refusal *ebpf.VerifierError
	if !errors.As(err, &refusal) {
		return nil
	}
	return refusal.Log[max(0, len(refusal.Log)-enough):]
}

// prepare mounts what the loader and the namespaces ask for.
func prepare() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"bpf", "/sys/fs/bpf"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}

func sayLoaded(g *maps.Gate) {
	s := serial.Step{Kind: serial.Loaded}
	for frags, count := range map[bool]*uint32{true: &s.Frags, false: &s.Plain} {
		info, err := g.Program(frags).Info()
		if err != nil {
			s.Failed = append(s.Failed, err.Error())
			continue
		}
		*count, _ = info.VerifiedInstructions()
	}
	say(s)
}
