// Package rig is what Headgate's tests and its demo send real traffic with:
// network namespaces joined by veth pairs, senders of crafted frames, and a
// receiver that counts what came through.
//
// It needs root. Everything it makes carries the name of the run and the
// process that made it, is removed when the test ends, and what a killed
// process left behind is removed by the next one.
package rig

import (
	"fmt"
	"os"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// TB is what the rig needs of a test; *testing.T and *testing.B have it.
type TB interface {
	Helper()
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// prefix starts the name of everything that outlives a crash of its maker:
// namespaces and folders in the bpffs are prefix-PID-N.
const prefix = "headgate-test"

var made atomic.Uint64

// uniqueName returns a name that no other call and no other living process
// of this machine returns.
func uniqueName() string {
	return fmt.Sprintf("%s-%d-%d", prefix, os.Getpid(), made.Add(1))
}

// RequireRoot skips the test, with the reason, where the process may not make
// network namespaces or load XDP programs.
func RequireRoot(tb TB) {
	tb.Helper()
	if err := Privileged(); err != nil {
		tb.Skipf("%v", err)
	}
}

// Privileged tells what this process lacks to run the rig, nil if nothing.
func Privileged() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("needs root to make network namespaces (run as root)")
	}
	err := inThread(func(home netns.NsHandle) error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("needs to make network namespaces: %w (give CAP_SYS_ADMIN)", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := features.HaveProgramType(ebpf.XDP); err != nil {
		return fmt.Errorf("needs to load XDP programs: %w (give CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON)", err)
	}
	return nil
}
