package rig

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of sendmmsg(2) and recvmmsg(2). The kernel pads
// it to the alignment of a pointer, as Go does.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// batch is a vector of frames for one system call.
type batch struct {
	frames [][]byte
	iovs   []unix.Iovec
	msgs   []mmsghdr

	controls [][]byte // for what the kernel says of a received frame; made when needed
}

// newBatch makes n buffers of size bytes.
func newBatch(n, size int) *batch {
	b := &batch{
		frames: make([][]byte, n),
		iovs:   make([]unix.Iovec, n),
		msgs:   make([]mmsghdr, n),
	}
	for i := range b.frames {
		b.frames[i] = make([]byte, size)
		b.iovs[i].Base = &b.frames[i][0]
		b.iovs[i].SetLen(size)
		b.msgs[i].hdr.Iov = &b.iovs[i]
		b.msgs[i].hdr.SetIovlen(1)
	}
	return b
}

// set puts a copy of frame at place i.
func (b *batch) set(i int, frame []byte) []byte {
	n := copy(b.frames[i], frame)
	b.iovs[i].SetLen(n)
	return b.frames[i][:n]
}

// send sends places from to to-1 and returns how many the kernel took.
func (b *batch) send(fd, from, to int) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&b.msgs[from])), uintptr(to-from), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// receive waits for one frame and takes what else is there.
func (b *batch) receive(fd int) (int, error) {
	b.takeControls()
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&b.msgs[0])), uintptr(len(b.msgs)), unix.MSG_WAITFORONE, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// takeControls makes room for control messages again.
func (b *batch) takeControls() {
	if b.controls == nil {
		b.controls = make([][]byte, len(b.msgs))
	}
	for i := range b.msgs {
		if b.controls[i] == nil {
			b.controls[i] = make([]byte, controlRoom)
		}
		b.msgs[i].hdr.Control = &b.controls[i][0]
		b.msgs[i].hdr.SetControllen(controlRoom)
	}
}

// received returns the frame at place i, truncated true if it did not fit.
func (b *batch) received(i int) (frame []byte, truncated bool) {
	n := int(b.msgs[i].len)
	return b.frames[i][:min(n, len(b.frames[i]))], b.msgs[i].hdr.Flags&unix.MSG_TRUNC != 0
}

// packetSocket opens a raw packet socket on the interface, inside its
// namespace. protocol 0 receives nothing.
func packetSocket(at End, protocol uint16, options ...func(fd int) error) (int, error) {
	fd := -1
	err := Run(at.NS, func() (err error) {
		// Bound before it listens: else it would first hear all interfaces.
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, err
	}
	for _, option := range options {
		if err := option(fd); err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	address := &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: at.Index}
	if err := unix.Bind(fd, address); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
