package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/internal/caps"
)

// account is the system user that the HTTP gate's process runs as.
type account struct {
	name string
	cred *syscall.Credential // nil: the daemon's own user
}

// noUser and noGroup own nothing on any Linux (the kernel's overflow ids).
const noUser, noGroup = 65534, 65534

// lookupAccount finds the user, else nobody with a warning. A daemon that is
// not root cannot change users and runs the HTTP gate as itself.
func lookupAccount(name string) (acc account, warning string, err error) {
	if os.Geteuid() != 0 {
		return account{name: currentUser()}, "not root: the HTTP gate runs as the daemon's own user", nil
	}
	u, err := user.Lookup(name)
	if errors.Is(err, fs.ErrNotExist) { // an image without /etc/passwd
		cred := &syscall.Credential{Uid: noUser, Gid: noGroup}
		return account{name: strconv.Itoa(noUser), cred: cred}, fmt.Sprintf("no users here (%v): the HTTP gate runs as user %d", err, noUser), nil
	}
	if err != nil {
		var unknown user.UnknownUserError
		if !errors.As(err, &unknown) {
			return account{}, "", fmt.Errorf("look up user %s: %w", name, err)
		}
		if u, err = user.Lookup("nobody"); err != nil {
			return account{}, "", fmt.Errorf("look up user %s, then nobody: %w (make one: useradd --system %s)", name, err, name)
		}
		warning = fmt.Sprintf("user %s does not exist: the HTTP gate runs as nobody (make it: useradd --system %s)", name, name)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return account{}, "", fmt.Errorf("user %s has uid %q: %w", u.Username, u.Uid, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return account{}, "", fmt.Errorf("user %s has gid %q: %w", u.Username, u.Gid, err)
	}
	if uid == 0 {
		return account{}, "", fmt.Errorf("http.user %s is root: the HTTP gate needs a user without privilege", name)
	}
	if control, ok := lookupGroup(controlGroup); ok {
		gid = outside(gid, uint64(control))
	}
	return account{name: u.Username, cred: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, warning, nil
}

// outside keeps the HTTP gate's process out of the group that may use the
// control socket: a user's own group often has the user's name.
func outside(gid, control uint64) uint64 {
	if gid == control {
		return noGroup
	}
	return gid
}

// checkChange names what is missing to start processes as acc, before anything
// is attached.
func (acc account) checkChange() error {
	if acc.cred == nil {
		return nil
	}
	missing, err := caps.Missing(caps.OtherUser)
	if err != nil || missing == 0 {
		return err
	}
	return fmt.Errorf("start the HTTP gate's process as %s: %w: %v missing (headgate needs %v to give up its privilege)", acc.name, unix.EPERM, missing, caps.OtherUser)
}

func currentUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Geteuid())
}

// spawn starts this very binary (also after it was replaced on disk) as the
// HTTP gate's process, with link as its only file beside stderr, which is the
// launcher's.
func spawn(cred *syscall.Credential, link *os.File) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"headgate", ChildCommand}
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{link}
	// A session of its own keeps a Ctrl-C in the daemon's terminal from ending
	// the child before the daemon has asked it to drain.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Setsid: true}
	started := make(chan error)
	go func() {
		// What the child inherits is set on one thread, which then ends with
		// this goroutine: it is never unlocked.
		runtime.LockOSThread()
		if err := renounce(); err != nil {
			started <- err
			return
		}
		if err := keepFiles(); err != nil {
			started <- err
			return
		}
		started <- cmd.Start()
	}()
	return cmd, <-started
}

// keepFiles keeps from what is started what the daemon itself was started with: a
// shell or supervisor may have left files open that only root could open.
func keepFiles() error {
	const lowest, highest = 3, 1<<32 - 1
	if err := unix.CloseRange(lowest, highest, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep open files from the HTTP gate's process: %w", err)
	}
	return nil
}

// renounce gives up for this thread, and so for what it starts, the ways to
// gain privilege. The change of user then clears the capabilities themselves.
func renounce() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	if err := clearInheritable(); err != nil {
		return err
	}
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // past the last capability of this kernel
		}
		if errors.Is(err, unix.EPERM) {
			return nil // no CAP_SETPCAP; with no_new_privs the set cannot be used
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
}

// clearInheritable empties the one set that neither a change of user nor an
// exec clears; some container engines leave it full.
func clearInheritable() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	caps[0].Inheritable, caps[1].Inheritable = 0, 0
	if err := unix.Capset(&head, &caps[0]); err != nil {
		return fmt.Errorf("clear inheritable capabilities: %w", err)
	}
	return nil
}
