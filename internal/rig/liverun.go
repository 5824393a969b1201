package rig

import (
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const liveFrames = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18

// testRun is what BPF_PROG_TEST_RUN takes of union bpf_attr.
type testRun struct {
	program, verdict   uint32
	sizeIn, sizeOut    uint32
	dataIn             unsafe.Pointer
	dataOut            unsafe.Pointer
	repeat, duration   uint32
	contextIn, context uint32
	_                  [2]uint64
	flags, cpu         uint32
	batch, _           uint32
}

// liveRun runs a program on frames that are really sent where it redirects
// them to, as often as a test run can: minutes. It returns EINTR on a signal,
// which ebpf.Program.Run would not.
func liveRun(p *ebpf.Program, frame []byte, batch uint32) error {
	attr := testRun{
		program: uint32(p.FD()), dataIn: unsafe.Pointer(&frame[0]), sizeIn: uint32(len(frame)),
		repeat: 1<<32 - 1, flags: liveFrames, batch: batch,
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(p)
	runtime.KeepAlive(frame)
	if errno != 0 {
		return errno
	}
	return nil
}
