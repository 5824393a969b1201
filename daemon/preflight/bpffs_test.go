package preflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// procfs is a made-up /proc of a process whose mounts are own, with those of
// the first process, if it can see them.
func procfs(t *testing.T, pids, own, init string) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"self/ns", "1/ns"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, target := range map[string]string{"self/ns/pid": pids, "self/ns/mnt": "mnt:[11]", "1/ns/mnt": "mnt:[22]"} {
		if err := os.Symlink(target, filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{"self/mountinfo": own, "1/mountinfo": init} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// RC-036, RC-113: what the mounts of a container say of its pins.
func TestPinsOfAContainer(t *testing.T) {
	const (
		root     = "1 0 8:1 / / rw shared:1 - ext4 /dev/root rw\n"
		sysfs    = "20 1 0:21 / /sys ro - sysfs sysfs rw\n"
		private  = "30 20 0:40 / /sys/fs/bpf rw - bpf bpf rw\n"
		slave    = "30 20 0:31 / /sys/fs/bpf rw master:9 - bpf bpf rw\n"
		shared   = "30 20 0:31 / /sys/fs/bpf rw shared:9 - bpf bpf rw\n"
		hosts    = "9 1 0:31 / /sys/fs/bpf rw shared:9 - bpf bpf rw\n"
		again    = "31 30 0:41 / /sys/fs/bpf rw - bpf bpf rw\n"
		spaced   = "30 20 0:31 / /sys/fs/my\\040bpf rw master:9 - bpf bpf rw\n"
		host     = initialPIDs
		separate = "pid:[4026532200]"
	)
	for _, c := range []struct {
		name, pids, own, init string
		dir, kind             string
		times                 int
		survives, sure        bool
	}{
		{"none", host, root + sysfs, root + hosts, "/sys/fs/bpf/headgate", "sysfs", 1, false, true},
		{"its own, host in sight", host, root + sysfs + private, root + hosts, "/sys/fs/bpf/headgate", "bpf", 1, false, true},
		{"the host's, host in sight", host, root + sysfs + slave, root + hosts, "/sys/fs/bpf/headgate", "bpf", 1, true, true},
		{"its own", separate, root + sysfs + private, root + sysfs, "/sys/fs/bpf/headgate", "bpf", 1, false, false},
		{"HostToContainer", separate, root + sysfs + slave, root + sysfs, "/sys/fs/bpf/headgate", "bpf", 1, true, false},
		{"Bidirectional", separate, root + sysfs + shared, root + sysfs, "/sys/fs/bpf/headgate", "bpf", 1, true, false},
		{"one over the other", separate, root + sysfs + slave + again, "", "/sys/fs/bpf/headgate", "bpf", 2, false, false},
		{"a name with a space", separate, root + sysfs + spaced, "", "/sys/fs/my bpf/headgate", "bpf", 1, true, false},
		{"a name that only begins alike", host, root + sysfs + private, root, "/sys/fs/bpfx", "sysfs", 1, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := LookAtPins(procfs(t, c.pids, c.own, c.init), c.dir)
			if err != nil {
				t.Fatal(err)
			}
			if p.Mount.Type != c.kind || p.Times != c.times || p.Survives != c.survives || p.Sure != c.sure || p.Mounts != strings.Count(c.own, "\n") {
				t.Errorf("%+v", p)
			}
		})
	}
}

// On the host itself what is pinned stays.
func TestPinsOfThisHost(t *testing.T) {
	if pids, _ := os.Readlink("/proc/self/ns/pid"); pids != initialPIDs {
		t.Skipf("in a pid namespace of its own (%s): this is a container", pids)
	}
	p, err := LookAtPins("/proc", "/sys/fs/bpf/headgate")
	if err != nil || !p.Survives || !p.Sure {
		t.Errorf("%+v %v", p, err)
	}
}
