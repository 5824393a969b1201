package live

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/caps"
)

// procField reads a field of /proc/PID/status; a process that is gone, or dead
// and not yet waited for, has none.
func procField(pid int, name string) string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	var value string
	for line := range strings.Lines(string(status)) {
		field, rest, _ := strings.Cut(line, ":")
		if field == "State" && strings.Contains(rest, "Z") {
			return ""
		}
		if field == name {
			value = strings.TrimSpace(rest)
		}
	}
	return value
}

// childrenOf lists the processes that pid started and that live.
func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range all {
		child, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && procField(child, "PPid") == strconv.Itoa(pid) {
			children = append(children, child)
		}
	}
	return children
}

// onlyChild is the one process that pid started: the daemon's is its launcher,
// the launcher's the HTTP gate's process.
func onlyChild(t *testing.T, pid int) int {
	t.Helper()
	children := childrenOf(t, pid)
	if len(children) != 1 {
		t.Fatalf("process %d has the children %v, want one", pid, children)
	}
	return children[0]
}

func (h *host) launcher() int { return onlyChild(h.t, h.cmd.Process.Pid) }

// wantCaps looks at every thread of a process.
func wantCaps(t *testing.T, who string, pid int, which string, want caps.Set) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		if has, err := capsOf(tid, which); err == nil && has != want {
			t.Errorf("%s, thread %d: %s %v, want %v", who, tid, which, has, want)
		} else if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	}
}

// The daemon, its launcher and the HTTP gate's process are killed in every
// order, and the daemon is started again where it ended, as a service manager
// does: no connection is refused, and of what was killed or orphaned nothing is
// left.
func TestKilledInEveryOrder(t *testing.T) {
	h := newHost(t, "")
	address := h.link.Gate.IPv4.String() + ":8080"
	h.write("http: {listen: \"" + address + "\", upstream: " + upstream(t, h.net) + "}\n")
	manage(t, h)
	h.start()
	load := ask(h, "http://"+address+"/")
	seen := map[int]bool{}
	note := func() (launcher int) {
		launcher = h.launcher()
		seen[h.cmd.Process.Pid], seen[launcher], seen[h.status().HTTP.PID] = true, true, true
		return launcher
	}
	again := func() int {
		h.start()
		return note()
	}
	launcher := note()
	kill := func(pid int) {
		t.Helper()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %d: %v", pid, err)
		}
	}
	for _, order := range []string{"launcher child daemon", "launcher daemon child", "child launcher daemon", "child daemon launcher", "daemon launcher child", "daemon child launcher"} {
		for victim := range strings.FieldsSeq(order) {
			switch victim {
			case "launcher":
				kill(launcher)
				h.await("the launcher to be gone", func() bool { return procField(launcher, "State") == "" })
			case "child":
				child := h.status().HTTP.PID
				kill(child)
				if procField(launcher, "State") != "" {
					h.await("another child", func() bool { s := h.status().HTTP; return s.Up && s.PID != child })
					seen[h.status().HTTP.PID] = true
					break
				}
				<-h.done
				if h.cmd.ProcessState.Success() || !strings.Contains(h.log.String(), "restart headgate") {
					t.Errorf("without launcher and child the daemon ended with %v", h.cmd.ProcessState)
				}
				launcher = again()
			case "daemon":
				h.kill()
				launcher = again()
			}
			before := load.answered.Load()
			h.await("answers after the kill of the "+victim, func() bool { return load.answered.Load() > before+10 })
		}
		if procField(launcher, "State") == "" { // the last of its order
			h.stop()
			launcher = again()
		}
	}
	load.stop()
	if n := load.refused.Load(); n != 0 {
		t.Errorf("%d connections were refused, %d answered", n, load.answered.Load())
	}
	h.stop()
	for pid := range seen {
		h.await(fmt.Sprintf("process %d to be gone", pid), func() bool { return procField(pid, "State") == "" })
	}
	t.Logf("%d answered, %d lost in flight", load.answered.Load(), load.failed.Load())
}
