package rig

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolRequest is struct ifreq with a pointer for ethtool in it.
type ethtoolRequest struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// SetGRO turns generic receive offload on. A veth end takes redirected frames
// when it has NAPI, and without an XDP program it has NAPI when GRO is on, as
// real cards have it.
func (e End) SetGRO() error {
	return Run(e.NS, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open a socket for ethtool: %w", err)
		}
		defer unix.Close(fd)
		value := &struct{ command, data uint32 }{unix.ETHTOOL_SGRO, 1}
		request := ethtoolRequest{data: unsafe.Pointer(value)}
		copy(request.name[:unix.IFNAMSIZ-1], e.Interface)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
		runtime.KeepAlive(value)
		if errno != 0 {
			return fmt.Errorf("turn GRO on for %s: %w", e.Interface, errno)
		}
		return nil
	})
}
