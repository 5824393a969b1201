package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// tally is what a receiver has seen and spent.
type tally struct {
	cpu      time.Duration // of the NAPI thread
	received uint64        // packets that the thread took from the ring
	overrun  uint64        // packets that found the ring full
	stack    uint64        // packets that reached the kernel's IP layer
	passed   uint64        // packets that reached UDP, where nobody listens
}

func (t tally) since(before tally) tally {
	return tally{
		cpu:      t.cpu - before.cpu,
		received: t.received - before.received,
		overrun:  t.overrun - before.overrun,
		stack:    t.stack - before.stack,
		passed:   t.passed - before.passed,
	}
}

func (t tally) plus(more tally) tally {
	return tally{
		cpu:      t.cpu + more.cpu,
		received: t.received + more.received,
		overrun:  t.overrun + more.overrun,
		stack:    t.stack + more.stack,
		passed:   t.passed + more.passed,
	}
}

// read reads a wire's tally. It is whole once the wire has settled.
func (w *wire) read() (t tally, err error) {
	if t.cpu, err = threadTime(w.thread); err != nil {
		return t, err
	}
	err = rig.Run(w.link.Gate.NS, func() error {
		if t.received, t.overrun, err = deviceCounters(w.link.Gate.Interface); err != nil {
			return err
		}
		if t.stack, err = snmpCounter("Ip", "InReceives"); err != nil {
			return err
		}
		t.passed, err = snmpCounter("Udp", "NoPorts")
		return err
	})
	return t, err
}

// threadTime reads how long a thread has been on a CPU. It is exact while the
// thread sleeps; of a running one the last tick is missing.
func threadTime(pid int) (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/schedstat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read the receiver's CPU time: %w (needs CONFIG_SCHED_INFO)", err)
	}
	first, _, _ := strings.Cut(string(text), " ")
	ns, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return time.Duration(ns), nil
}

// netFile reads a file of /proc/net in the calling thread's namespace.
func netFile(name string) (string, error) {
	text, err := os.ReadFile("/proc/thread-self/net/" + name)
	return string(text), err
}

// deviceCounters returns packets received and packets lost before: a veth
// pair counts those that find the receiver's ring full as dropped by it.
func deviceCounters(name string) (packets, dropped uint64, err error) {
	text, err := netFile("dev")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(text) {
		of, figures, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(of) != name {
			continue
		}
		fields := strings.Fields(figures) // bytes packets errs drop ...
		if len(fields) < 4 {
			return 0, 0, fmt.Errorf("read the counters of %s: odd line %q", name, line)
		}
		if packets, err = strconv.ParseUint(fields[1], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("read the packets of %s: %w", name, err)
		}
		if dropped, err = strconv.ParseUint(fields[3], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("read the drops of %s: %w", name, err)
		}
		return packets, dropped, nil
	}
	return 0, 0, fmt.Errorf("read the counters of %s: no such interface", name)
}

// snmpCounter returns one figure of /proc/net/snmp, in which a line of names
// comes before a line of figures.
func snmpCounter(protocol, name string) (uint64, error) {
	text, err := netFile("snmp")
	if err != nil {
		return 0, err
	}
	var names []string
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, protocol+": ")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if names == nil {
			names = fields
			continue
		}
		for i, n := range names {
			if n == name && i < len(fields) {
				return strconv.ParseUint(fields[i], 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("read %s %s: the kernel does not count it", protocol, name)
}
