package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// wire is a veth pair between two namespaces of its own. What its gate end
// receives is handled by one kernel thread, whose CPU time is the receiver's.
type wire struct {
	net    *rig.Network
	link   rig.Link
	thread int // process id of the threaded NAPI
}

// newWire makes a wire whose receiver runs on cpu. Nothing but the flood is
// on it: neighbours are known, and there is no IPv6.
func newWire(cpu int) (*wire, error) {
	n, err := rig.New(1)
	if err != nil {
		return nil, err
	}
	w := &wire{net: n, link: n.Links[0]}
	if err := w.build(cpu); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *wire) build(cpu int) error {
	if err := w.link.StaticNeighbours(); err != nil {
		return err
	}
	for _, ns := range []*rig.Namespace{w.link.Gate.NS, w.link.Peer.NS} {
		if err := ns.SetSysctl("net/ipv6/conf/all/disable_ipv6", "1"); err != nil {
			return err
		}
	}
	err := w.link.Gate.SetGRO()
	if err != nil {
		return err
	}
	if w.thread, err = w.startThread(); err != nil {
		return err
	}
	return keepOn(w.thread, cpu)
}

func (w *wire) close() error { return w.net.Close() }

// startThread gives the receiver's NAPI a thread of its own (Linux 5.12) and
// returns its process id. The kernel names it by interface; which of that
// name is new is the one.
func (w *wire) startThread() (pid int, err error) {
	name := w.link.Gate.Interface
	before, err := napiThreads(name)
	if err != nil {
		return 0, err
	}
	err = rig.Run(w.link.Gate.NS, func() error {
		return writeSysfs(filepath.Join("class/net", name, "threaded"), "1")
	})
	if err != nil {
		return 0, err
	}
	after, err := napiThreads(name)
	if err != nil {
		return 0, err
	}
	var made []int
	for pid := range after {
		if !before[pid] {
			made = append(made, pid)
		}
	}
	if len(made) != 1 {
		return 0, fmt.Errorf("find the NAPI thread of %s: %d new ones (does another benchmark run?)", name, len(made))
	}
	return made[0], nil
}

// napiThreads returns the process ids of the NAPI threads of interfaces called
// name, in any namespace.
func napiThreads(name string) (map[int]bool, error) {
	comms, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	pids := map[int]bool{}
	for _, path := range comms {
		comm, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		if !strings.HasPrefix(string(comm), "napi/"+name+"-") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, fmt.Errorf("read the process id in %s: %w", path, err)
		}
		pids[pid] = true
	}
	return pids, nil
}

// settle waits until the receiver sleeps: it has handled all that was sent,
// and the kernel has accounted the time it took.
func (w *wire) settle() error {
	const patience = 10 * time.Second
	for start := time.Now(); time.Since(start) < patience; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.thread))
		if err != nil {
			return fmt.Errorf("look at the receiver's thread: %w", err)
		}
		// pid (name) state ...
		_, rest, ok := strings.Cut(string(stat), ") ")
		if !ok {
			return fmt.Errorf("look at the receiver's thread: odd line %q", stat)
		}
		if rest[0] != 'R' {
			return nil
		}
	}
	return fmt.Errorf("wait for the receiver to come to rest: not within %v", patience)
}
