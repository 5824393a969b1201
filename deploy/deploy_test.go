package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// installed is a root folder in which the units lie as a package would put
// them, beside systemd's own targets.
func installed(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	targets, err := filepath.Glob("/usr/lib/systemd/system/*.target")
	if err != nil || len(targets) == 0 {
		t.Skip("needs systemd's units (deploy/packages test)")
	}
	put := map[string]string{
		"systemd/headgate.service":  "usr/lib/systemd/system/headgate.service",
		"systemd/headgate.socket":   "usr/lib/systemd/system/headgate.socket",
		"systemd/headgate.sysusers": "usr/lib/sysusers.d/headgate.conf",
		"/bin/true":                 "usr/bin/headgate",
	}
	for _, path := range targets {
		put[path] = "usr/lib/systemd/system/" + filepath.Base(path)
	}
	for from, to := range put {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		to = filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if filepath.Base(filepath.Dir(to)) == "bin" {
			mode = 0o755
		}
		if err := os.WriteFile(to, text, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// run runs one of systemd's tools, which must end well.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("needs %s (deploy/packages test)", name)
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// systemd knows every key and value of the units.
func TestUnitsAreSound(t *testing.T) {
	root := installed(t)
	if out := run(t, "systemd-analyze", "verify", "--man=no", "--root="+root, "headgate.service", "headgate.socket"); out != "" {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
}

// What the service could do if it were taken over is 2.4 of 10 by systemd's
// measure; most of that is what a network gate is for.
func TestUnitIsHardened(t *testing.T) {
	root := installed(t)
	out := run(t, "systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=25", "--root="+root, "headgate.service")
	if !strings.Contains(out, "Overall exposure level") {
		t.Errorf("no level in\n%s", out)
	}
}

// The user of the HTTP gate's process and the group of the control socket.
func TestUsers(t *testing.T) {
	root := installed(t)
	run(t, "systemd-sysusers", "--root="+root)
	for file, want := range map[string]string{"passwd": `(?m)^headgate:x:\d+:\d+:`, "group": `(?m)^headgate:x:\d+:`} {
		text, err := os.ReadFile(filepath.Join(root, "etc", file))
		if err != nil || !regexp.MustCompile(want).Match(text) {
			t.Errorf("%s: %v\n%s", file, err, text)
		}
	}
}
