package caps

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

const keepTwo = "HEADGATE_TEST_KEEP"

// What a process gives up is gone from each of its threads, also after an exec
// as root. The test binary does it to a copy of itself.
func TestKeep(t *testing.T) {
	const kept = NetAdmin | Kill
	if os.Getenv(keepTwo) != "" {
		if err := Keep(kept); err != nil {
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			t.Fatal(err)
		}
		for range 2 {
			has := make(chan Set)
			go func() {
				runtime.LockOSThread() // and so on a thread that is new or ends
				set, _ := Effective()
				has <- set
			}()
			if set := <-has; set != kept {
				t.Errorf("a thread has %v, want %v", set, kept)
			}
		}
		out, err := exec.Command("grep", "CapEff:\t0000000000001020", "/proc/self/status").CombinedOutput()
		if err != nil {
			t.Errorf("after an exec: %v, %s", err, out)
		}
		return
	}
	if missing, err := Missing(kept); err != nil || missing != 0 {
		t.Skipf("needs %v, has no %v, %v", kept, missing, err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestKeep$", "-test.v")
	cmd.Env = append(os.Environ(), keepTwo+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	if bytes.Contains(out, []byte("--- SKIP")) {
		t.Skip("the copy of this test gave nothing up: a binary with cgo cannot")
	}
	if noNewPrivs, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); noNewPrivs != 0 {
		t.Error("the test itself gave up something")
	}
}
