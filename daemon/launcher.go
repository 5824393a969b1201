package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/internal/caps"
)

// LauncherCommand is the hidden command that the daemon starts the launcher
// with: without arguments for children of its own user, else with their user's
// and group's ids.
const LauncherCommand = "http-launcher"

// What the daemon may order of the launcher.
const (
	launchStart = "start" // with the child's end of its socketpair
	launchKill  = "kill"
)

// launch goes down to the launcher, launched comes up: once when the process was
// started or could not be, and once when it has ended. ID is the process's, of
// the daemon's choice.
type launch struct {
	ID uint64 `json:"id"`
	Do string `json:"do"`
}

type launched struct {
	ID    uint64 `json:"id"`
	PID   int    `json:"pid,omitempty"`
	Ended bool   `json:"ended,omitempty"`
	Error string `json:"error,omitempty"`
}

// launcher is the process that starts the HTTP gate's process. The daemon gives
// up the right to become another user as soon as it is up; this process keeps
// it, and keeps nothing else: it attaches nothing, opens nothing, and reads
// nothing but what the daemon sends.
type launcher struct {
	cred *syscall.Credential
	up   *frames

	mu       sync.Mutex
	children map[uint64]*exec.Cmd
	running  sync.WaitGroup
}

// RunLauncher is the whole life of the launcher. It ends when the daemon is
// gone, after the children have drained.
func RunLauncher(ids []string) error {
	cred, err := parseIDs(ids)
	if err != nil {
		return err
	}
	up, err := newFrames(os.NewFile(childFD, "daemon"))
	if err != nil {
		return fmt.Errorf("%w (%s is started by `headgate run`, not by hand)", err, LauncherCommand)
	}
	if err := caps.Keep(caps.OtherUser); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	l := &launcher{cred: cred, up: up, children: map[uint64]*exec.Cmd{}}
	err = l.obey()
	// The children see the daemon's end of their own, and drain.
	late := time.AfterFunc(stopTime, l.killAll)
	defer late.Stop()
	l.running.Wait()
	return err
}

func parseIDs(ids []string) (*syscall.Credential, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if len(ids) != 2 {
		return nil, fmt.Errorf("%d arguments, want a user's and a group's id", len(ids))
	}
	var got [2]uint32
	for i, id := range ids {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is no id of a user or group: %w", id, err)
		}
		got[i] = uint32(n)
	}
	if got[0] == 0 {
		return nil, errors.New("the HTTP gate needs a user without privilege")
	}
	return &syscall.Credential{Uid: got[0], Gid: got[1]}, nil
}

func (l *launcher) obey() error {
	for {
		var o launch
		files, err := l.up.readWithFiles(&o)
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read from the daemon: %w", err)
		}
		switch {
		case o.Do == launchStart && len(files) == 1:
			l.start(o.ID, files[0])
		case o.Do == launchKill:
			l.kill(o.ID)
		default:
			l.tell(launched{ID: o.ID, Error: fmt.Sprintf("unknown order %q with %d files", o.Do, len(files))})
		}
		for _, f := range files {
			f.Close()
		}
	}
}

// start starts a child and tells of its start and of its end.
func (l *launcher) start(id uint64, link *os.File) {
	cmd, err := spawn(l.cred, link)
	if err != nil {
		l.tell(launched{ID: id, Error: err.Error()})
		return
	}
	l.mu.Lock()
	l.children[id] = cmd
	l.mu.Unlock()
	l.tell(launched{ID: id, PID: cmd.Process.Pid})
	l.running.Go(func() {
		end := launched{ID: id, Ended: true}
		if err := cmd.Wait(); err != nil {
			end.Error = err.Error()
		}
		l.mu.Lock()
		delete(l.children, id)
		l.mu.Unlock()
		l.tell(end)
	})
}

func (l *launcher) kill(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cmd := l.children[id]; cmd != nil {
		cmd.Process.Kill()
	}
}

func (l *launcher) killAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cmd := range l.children {
		cmd.Process.Kill()
	}
}

// tell answers a daemon that may be gone, which obey sees too.
func (l *launcher) tell(a launched) { l.up.write(a, nil, time.Now().Add(drainTime)) }
