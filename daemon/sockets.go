package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/caps"
)

// socket is a listening socket that the daemon keeps and does not accept from:
// while the HTTP gate's process is away, connections wait in its queue. It is
// a bare descriptor, because a net.Listener would wake the daemon's poller for
// every connection that the child accepts.
type socket struct{ fd int }

func (s *socket) Close() error { return unix.Close(s.fd) }

// deafTime is how long a client may leave what it was sent unread or
// unacknowledged before the kernel cuts its connection: TCP_USER_TIMEOUT of
// tcp(7), which accepted connections inherit. A stream on which nothing is sent
// is not affected.
const deafTime = time.Minute

// listenOn opens the socket of one address.
func listenOn(address string) (*socket, error) {
	open := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deafTime/time.Millisecond))
		})
		return errors.Join(err, failed)
	}}
	ln, err := open.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{}
	var dup error
	err = raw.Control(func(fd uintptr) {
		s.fd, dup = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, dup); err != nil {
		return nil, fmt.Errorf("keep the socket of %s: %w", address, err)
	}
	return s, nil
}

// openSockets opens those that listeners need and have lacks, or takes them from
// what was handed over: all or none. A port that is taken is tried again until ctx ends, since the HTTP gate of a
// daemon that was killed lets go of it a moment after.
func openSockets(ctx context.Context, listeners []config.Listener, have map[string]*socket, from *handover) (map[string]*socket, error) {
	fresh := map[string]*socket{}
	for _, l := range listeners {
		if have[l.Address] != nil || fresh[l.Address] != nil {
			continue
		}
		s, err := from.take(l.Address)
		if s == nil && err == nil {
			s, err = listenPatiently(ctx, l.Address)
		}
		if err != nil {
			closeSockets(fresh)
			return nil, fmt.Errorf("open http listener: %w (%s)", err, cureFor(err, l.Address, have))
		}
		fresh[l.Address] = s
	}
	return fresh, nil
}

func cureFor(err error, address string, have map[string]*socket) string {
	if errors.Is(err, unix.EACCES) {
		return fmt.Sprintf("ports this low need %v, which headgate has only while it starts, or a socket from systemd: docs/deploy.md", caps.NetBindService)
	}
	return inTheWay(address, have)
}

// inTheWay says what helps where address cannot be opened. A socket of our own on
// the same port stays open until the new ones are there, and may be what is in
// the way.
func inTheWay(address string, have map[string]*socket) string {
	_, port, _ := net.SplitHostPort(address)
	for own := range have {
		if _, p, _ := net.SplitHostPort(own); p == port {
			return fmt.Sprintf("this daemon listens on %s: restart it to change the host of a port, or take another port", own)
		}
	}
	return "see who has it: ss -ltnp"
}

func listenPatiently(ctx context.Context, address string) (*socket, error) {
	for {
		s, err := listenOn(address)
		if err == nil || !errors.Is(err, unix.EADDRINUSE) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func closeSockets(socks map[string]*socket) {
	for _, s := range socks {
		s.Close()
	}
}
