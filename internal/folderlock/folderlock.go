// Package folderlock lets one process at a time own a folder.
package folderlock

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Take takes the folder for this process, until the file is closed or the
// process ends, however it ends. A folder is locked and no file in it, because
// a bpffs holds no files.
func Take(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	defer f.Close()
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if pid := lockHolder(f); pid > 0 {
		return nil, fmt.Errorf("already running pid %d, which holds %s", pid, dir)
	}
	return nil, fmt.Errorf("already running, in another pid namespace: it holds %s", dir)
}

// lockHolder finds in /proc/locks who holds the flock on f, or returns 0.
func lockHolder(f *os.File) int {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	lines := bufio.NewScanner(locks)
	for lines.Scan() {
		// 1: FLOCK  ADVISORY  WRITE 1234 00:1f:567 0 EOF
		w := strings.Fields(lines.Text())
		if len(w) < 6 || w[1] != "FLOCK" || w[5] != want {
			continue
		}
		pid, _ := strconv.Atoi(w[4])
		return pid
	}
	return 0
}
