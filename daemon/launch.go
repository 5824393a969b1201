package daemon

import (
	"context"
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
)

// launchTime is how long the launcher may take to start a process.
const launchTime = 10 * time.Second

// launcherLink is the daemon's side of the launcher.
type launcherLink struct {
	pid  int
	acc  account
	down *frames
	gone chan struct{} // closed when it is gone

	mu        sync.Mutex
	lastID    uint64
	processes map[uint64]*process
}

// process is one HTTP gate process, as its launcher tells of it.
type process struct {
	id      uint64
	by      *launcherLink
	started chan launched // gets one
	ended   chan struct{}

	pid int
	how error // how it ended, nil: with status 0; set before ended is closed
}

// startLauncher starts the launcher for children that run as acc.
func startLauncher(acc account, stderr io.Writer) (*launcherLink, error) {
	if err := acc.checkChange(); err != nil {
		return nil, err
	}
	down, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"headgate", LauncherCommand}
	if acc.cred != nil {
		cmd.Args = append(cmd.Args, strconv.FormatUint(uint64(acc.cred.Uid), 10), strconv.FormatUint(uint64(acc.cred.Gid), 10))
	}
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stderr = stderr
	cmd.ExtraFiles = []*os.File{theirs}
	// A session of its own, as for the children: a Ctrl-C is the daemon's to handle.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := keepFiles(); err != nil {
		down.Close()
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		down.Close()
		return nil, fmt.Errorf("start the launcher of the HTTP gate's process: %w", err)
	}
	l := &launcherLink{pid: cmd.Process.Pid, acc: acc, down: down, gone: make(chan struct{}), processes: map[uint64]*process{}}
	go cmd.Wait()
	go l.listen()
	return l, nil
}

// listen hands on what the launcher tells until it is gone.
func (l *launcherLink) listen() {
	defer close(l.gone)
	defer l.down.Close()
	for {
		var a launched
		if err := l.down.read(&a); err != nil {
			return
		}
		l.mu.Lock()
		p := l.processes[a.ID]
		if a.Ended || a.PID == 0 {
			delete(l.processes, a.ID)
		}
		l.mu.Unlock()
		switch {
		case p == nil:
		case a.Ended:
			if a.Error != "" {
				p.how = errors.New(a.Error)
			}
			close(p.ended)
		default:
			p.started <- a
		}
	}
}

// alive reports whether the launcher is there.
func (l *launcherLink) alive() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.gone:
		return false
	default:
		return true
	}
}

// start has a process started that finds link as its only file beside stderr.
func (l *launcherLink) start(link *os.File) (*process, error) {
	p := &process{by: l, started: make(chan launched, 1), ended: make(chan struct{})}
	l.mu.Lock()
	l.lastID++
	p.id = l.lastID
	l.processes[p.id] = p
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), launchTime)
	defer cancel()
	deadline, _ := ctx.Deadline()
	err := l.down.write(launch{ID: p.id, Do: launchStart}, []int{int(link.Fd())}, deadline)
	if err == nil {
		select {
		case a := <-p.started:
			if a.Error != "" {
				return nil, fmt.Errorf("start the HTTP gate's process as %s: %s", l.acc.name, a.Error)
			}
			p.pid = a.PID
			return p, nil
		case <-l.gone:
			err = errors.New("its launcher ended")
		case <-ctx.Done():
			err = errors.New("its launcher does not answer")
		}
	}
	// Whatever it did, it is of no more use, and its end is the child's.
	l.down.Close()
	return nil, fmt.Errorf("start the HTTP gate's process as %s: %w", l.acc.name, err)
}

// kill ends the process at once, if its launcher is there. Without it, the end of
// the link is what ends it.
func (p *process) kill() {
	p.by.down.write(launch{ID: p.id, Do: launchKill}, nil, time.Now().Add(launchTime))
}

// stop ends the launcher after its children.
func (l *launcherLink) stop() {
	l.down.conn.CloseWrite()
	select {
	case <-l.gone:
	case <-time.After(stopTime + time.Second):
		unix.Kill(l.pid, unix.SIGKILL)
	}
}
