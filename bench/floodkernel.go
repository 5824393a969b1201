package main

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

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

// ethtoolRequest is struct ifreq with a pointer for ethtool in it.
type ethtoolRequest struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// setGRO turns generic receive offload on.
func setGRO(iface string) error {
	if len(iface) >= unix.IFNAMSIZ {
		return fmt.Errorf("turn GRO on: %s is no name of an interface", iface)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket for ethtool: %w", err)
	}
	defer unix.Close(fd)
	value := &struct{ command, data uint32 }{unix.ETHTOOL_SGRO, 1}
	request := ethtoolRequest{data: unsafe.Pointer(value)}
	copy(request.name[:], iface)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(value)
	if errno != 0 {
		return fmt.Errorf("turn GRO on for %s: %w", iface, errno)
	}
	return nil
}
