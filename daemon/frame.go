package daemon

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The daemon and the HTTP gate's process talk over a Unix socketpair. A frame
// is a length in 4 bytes, big-endian, and that many bytes of JSON. Listening
// sockets ride on the length bytes of a frame that goes down (SCM_RIGHTS,
// unix(7)), in the order of the listeners it names.
const (
	maxDown = 256 << 20 // a policy with a million blocks and keys
	maxUp   = 8 << 20   // the child is not trusted to be brief
	maxFDs  = 250       // the kernel takes 253 at once (SCM_MAX_FD)
)

// frames is one end of the socketpair. Any number may send, one may receive.
type frames struct {
	conn *net.UnixConn
	send sync.Mutex
}

// socketpair returns the daemon's end and the file that becomes the child's.
func socketpair() (*frames, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socketpair: %w", err)
	}
	own, err := newFrames(os.NewFile(uintptr(fds[0]), "http-gate"))
	if err != nil {
		unix.Close(fds[1])
		return nil, nil, err
	}
	return own, os.NewFile(uintptr(fds[1]), "daemon"), nil
}

// newFrames takes f over.
func newFrames(f *os.File) (*frames, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("use file %d as a socket: %w", f.Fd(), err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("the file is no Unix socket")
	}
	return &frames{conn: u}, nil
}

func (f *frames) Close() error { return f.conn.Close() }

// write sends v with fds and gives up after the deadline.
func (f *frames) write(v any, fds []int, deadline time.Time) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxDown {
		return fmt.Errorf("a frame of %d bytes is over %d", len(body), maxDown)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	f.send.Lock()
	defer f.send.Unlock()
	if err := f.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	n, _, err := f.conn.WriteMsgUnix(head, rights, nil)
	if err != nil {
		return err
	}
	if _, err := f.conn.Write(append(head[n:], body...)); err != nil {
		return err
	}
	return nil
}

// read receives into v. Files that ride on the frame are dropped by the
// kernel: the daemon takes none from a child.
func (f *frames) read(v any) error {
	var head [4]byte
	if _, err := io.ReadFull(f.conn, head[:]); err != nil {
		return err
	}
	return f.body(head, maxUp, v)
}

// readWithFiles receives into v, with the files that ride on the frame.
func (f *frames) readWithFiles(v any) ([]*os.File, error) {
	var head [4]byte
	var files []*os.File
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	for got := 0; got < len(head); {
		n, oobn, _, _, err := f.conn.ReadMsgUnix(head[got:], oob)
		if err != nil {
			return files, err
		}
		if n == 0 {
			return files, io.EOF
		}
		more, err := rightsIn(oob[:oobn])
		if err != nil {
			return files, err
		}
		got, files = got+n, append(files, more...)
	}
	return files, f.body(head, maxDown, v)
}

func (f *frames) body(head [4]byte, limit uint32, v any) error {
	n := binary.BigEndian.Uint32(head[:])
	if n > limit {
		return fmt.Errorf("a frame of %d bytes is over %d", n, limit)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(f.conn, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

func rightsIn(oob []byte) ([]*os.File, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("read passed files: %w", err)
	}
	var files []*os.File
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, fmt.Errorf("read passed files: %w", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "listener"))
		}
	}
	return files, nil
}
