package live

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// unitKey is the value of a key of the systemd unit, over all its lines.
func unitKey(t *testing.T, key string) (values []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/systemd/headgate.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^`+key+`=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		values = append(values, strings.Fields(line[1])...)
	}
	if len(values) == 0 {
		t.Fatalf("the unit has no %s", key)
	}
	return values
}

// systemCalls are the names that a SystemCallFilter allows, as this machine's
// systemd understands it.
func systemCalls(t *testing.T, filter []string) []string {
	t.Helper()
	all := map[string]bool{}
	for len(filter) > 0 {
		name := filter[0]
		filter = filter[1:]
		if all[name] {
			continue
		}
		all[name] = true
		if !strings.HasPrefix(name, "@") {
			continue
		}
		out, err := exec.Command("systemd-analyze", "--no-pager", "syscall-filter", name).Output()
		if err != nil {
			t.Skipf("needs systemd-analyze (deploy/packages test): %v", err)
		}
		for line := range strings.Lines(string(out)) {
			if line = strings.TrimSpace(line); line != name && !strings.HasPrefix(line, "#") && line != "" {
				filter = append(filter, line)
			}
		}
	}
	maps.DeleteFunc(all, func(name string, _ bool) bool { return strings.HasPrefix(name, "@") })
	return slices.Sorted(maps.Keys(all))
}

// The capabilities and system calls that the systemd unit leaves to the service
// suffice for both gates, a reload, a death of the HTTP gate's process and a
// stop. (The rest of its confinement is the DaemonSet's too.)
func TestUnitLeavesWhatIsNeeded(t *testing.T) {
	h := newHost(t, "")
	m := readManifest(t, "headgate.yaml")
	address := shipped(t, h, m)
	p := newPod(h, m)
	p.calls = systemCalls(t, unitKey(t, "SystemCallFilter"))
	security := &m.Pod.Containers[0].SecurityContext
	security.Capabilities.Add = nil
	for _, c := range unitKey(t, "CapabilityBoundingSet") {
		security.Capabilities.Add = append(security.Capabilities.Add, strings.TrimPrefix(c, "CAP_"))
	}
	p.start()
	p.judged("started")
	h.do("block", "198.51.100.7", "--for", "1h")
	h.do("reload")
	first := h.status().HTTP.PID
	if out, err := p.runc("exec", p.id, "/headgate", "version").CombinedOutput(); err != nil {
		t.Errorf("a command in the same confinement: %v\n%s", err, out)
	}
	_, pid := p.inspect()
	if err := syscall.Kill(onlyChild(t, onlyChild(t, pid)), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.await("another HTTP gate's process", func() bool { s := h.status().HTTP; return s.Up && s.PID != first })
	if code, err := get(h.client(h.link.Peer.IPv4.String()), "http://"+address+"/"); code != 200 {
		t.Errorf("the HTTP gate answers %d, %v", code, err)
	}
	p.signal(syscall.SIGTERM)
	if !strings.Contains(p.logged(), "stopped: what is attached goes on filtering") || strings.Contains(p.logged(), "not permitted") {
		t.Errorf("the log:\n%s", p.logged())
	}
}

// RC-086: a seccomp filter without bpf(2) is named, where the kernel says EPERM.
func TestSeccompIsNamed(t *testing.T) {
	h := newHost(t, "")
	m := readManifest(t, "headgate.yaml")
	shipped(t, h, m)
	p := newPod(h, m)
	p.calls = slices.DeleteFunc(systemCalls(t, unitKey(t, "SystemCallFilter")), func(name string) bool { return name == "bpf" })
	if err := p.run(m.Pod.Containers[0], true); err == nil || !strings.Contains(p.logged(), "a seccomp filter is in force") {
		t.Errorf("it ends with %v and says\n%s", err, p.logged())
	}
}
