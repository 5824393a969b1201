package rig

import (
	"fmt"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// OnCPU calls fn on a thread that runs on one CPU, and returns its error.
func OnCPU(cpu int, fn func() error) error {
	return inThread(func(netns.NsHandle) error { return onThisCPU(cpu, fn) })
}

// onThisCPU calls fn with the calling thread, which is locked, on one CPU.
func onThisCPU(cpu int, fn func() error) error {
	var home, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &home); err != nil {
		return fmt.Errorf("read own CPUs: %w", err)
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("run on CPU %d: %w", cpu, err)
	}
	defer unix.SchedSetaffinity(0, &home)
	return fn()
}

func writeOn(cpu, fd int, frame []byte) error {
	return OnCPU(cpu, func() error {
		_, err := unix.Write(fd, frame)
		return err
	})
}
