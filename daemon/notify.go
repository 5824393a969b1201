package daemon

import (
	"context"
	"fmt"
	"os"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// notifier tells the service manager how the daemon fares, in the protocol of
// sd_notify(3): datagrams of NAME=value lines, sockets riding on them. Where no
// manager asked to be told, it tells nobody.
type notifier struct{ path string }

// newNotifier takes the manager's address out of the environment.
func newNotifier() notifier {
	n := notifier{path: os.Getenv("NOTIFY_SOCKET")}
	os.Unsetenv("NOTIFY_SOCKET")
	return n
}

// tell sends state with files. A manager that does not take it in time is not
// waited for.
func (n notifier) tell(state string, files ...int) error {
	if n.path == "" {
		return nil
	}
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	if err := n.send([]byte(state), rights); err != nil {
		return fmt.Errorf("tell the service manager %q: %w", state, err)
	}
	return nil
}

func (n notifier) send(state, rights []byte) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return err
	}
	return unix.Sendmsg(fd, state, rights, &unix.SockaddrUnix{Name: n.path}, unix.MSG_NOSIGNAL)
}

// reloading says that a reload has begun; the returned func, that it is over.
func (n notifier) reloading() (done func()) {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	n.tell(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", sd.SdNotifyReloading, now.Nano()/1000))
	return func() { n.tell(sd.SdNotifyReady) }
}

// pet keeps the manager's watchdog quiet, if it has one, as long as the daemon
// can make changes.
func (d *daemon) pet(ctx context.Context) error {
	limit, err := sd.SdWatchdogEnabled(true)
	if err != nil || limit == 0 {
		return err
	}
	for ; ctx.Err() == nil; pause(ctx, limit/3) {
		d.mu.Lock()
		rules := len(d.policy.rules)
		d.mu.Unlock()
		if err := d.manager.tell(fmt.Sprintf("%s\nSTATUS=%d rules in force", sd.SdNotifyWatchdog, rules)); err != nil {
			d.log.Warn(err.Error())
		}
	}
	return nil
}
