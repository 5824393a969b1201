package rig

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const bpffs = "/sys/fs/bpf"

// BPFFS returns a folder of the test's own in the bpffs, which is mounted if
// it is not, and removes it with all its pins when the test ends. It skips
// the test without root.
func BPFFS(tb TB) string {
	tb.Helper()
	RequireRoot(tb)
	dir, err := MakeBPFFS()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove the test's pins: %v", err)
		}
	})
	return dir
}

// MakeBPFFS makes a folder in the bpffs, which is mounted if it is not. The
// caller removes it.
func MakeBPFFS() (string, error) {
	removeStale()
	if err := mountBPFFS(); err != nil {
		return "", err
	}
	dir := filepath.Join(bpffs, uniqueName())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("make a folder for pins: %w", err)
	}
	return dir, nil
}

// mountBPFFS leaves the mount in place: it is the machine's, not the test's.
func mountBPFFS() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(bpffs, &fs); err != nil {
		return fmt.Errorf("look at %s: %w (mount sysfs)", bpffs, err)
	}
	if fs.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", bpffs, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount bpffs on %s: %w (needs CAP_SYS_ADMIN)", bpffs, err)
	}
	return nil
}
