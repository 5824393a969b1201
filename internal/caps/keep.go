package caps

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Keep gives up, for every thread of this process and all that it starts, every
// capability outside set, and for good: also an exec as root brings none back
// (no_new_privs, prctl(2)). What of set the process does not have it does not
// gain.
//
// The bounding set shrinks only with CAP_SETPCAP; without it, no_new_privs makes
// what is left in it worthless. A binary that is linked with C cannot change all
// its threads: Keep then changes nothing and returns an error that is
// errors.ErrUnsupported.
func Keep(set Set) error {
	if err := prctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	if err := shrinkBounding(set); err != nil {
		return err
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	for i := range data {
		data[i].Permitted &= uint32(set >> (32 * i))
		data[i].Effective &= data[i].Permitted
		data[i].Inheritable = 0
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno != 0 {
		return fmt.Errorf("give up capabilities: %w", errno)
	}
	return nil
}

func shrinkBounding(set Set) error {
	for bit := uintptr(0); bit < 64; bit++ {
		if set&(1<<bit) != 0 {
			continue
		}
		err := prctl(unix.PR_CAPBSET_DROP, bit)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
			return nil // past the last capability of this kernel, or no CAP_SETPCAP
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", bit, err)
		}
	}
	return nil
}

// prctl is prctl(2) on every thread.
func prctl(option, arg uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, option, arg, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
