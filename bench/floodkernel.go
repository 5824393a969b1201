package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// writeSysfs writes a file below /sys as the calling thread's network
// namespace has it. /sys shows the namespace of whoever mounted it, so this
// mounts one more, which no path leads to and which ends with its descriptor.
func writeSysfs(name, value string) error {
	root, err := mountSysfs()
	if err != nil {
		return fmt.Errorf("mount a sysfs: %w (needs CAP_SYS_ADMIN)", err)
	}
	defer unix.Close(root)
	fd, err := unix.Openat(root, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /sys/%s: %w", name, err)
	}
	_, err = unix.Write(fd, []byte(value))
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return fmt.Errorf("write %s to /sys/%s: %w", value, name, err)
	}
	return nil
}

func mountSysfs() (fd int, err error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
}
