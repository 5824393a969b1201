package live

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/daemon"
	"github.com/headgate/headgate/internal/rig"
)

// With the daemon dead, status and blocks tell from the pins what goes on, with
// the counters of what arrived since, and say that it is dead.
func TestAskedWithTheDaemonDead(t *testing.T) {
	h := newHost(t, `
network: {interfaces: [IFACE]}
allow: [192.0.2.0/24]
block: ["2001:db8:66::/48"]
rules:
  - {name: all, per: source, rate: 1/min, burst: 10}
`)
	h.start()
	h.do("block", "203.0.113.9", "--for", "1h", "--reason", "port scan")
	h.kill()
	sent := h.flow(1000, 100*time.Millisecond, h.packet("198.51.100.7", 80))()
	h.flow(1000, 10*time.Millisecond, h.packet("203.0.113.9", 80))()

	h.exits(1, []string{"THE DAEMON IS DEAD", "no daemon answers", h.link.Gate.Interface + " native", "2 blocked, 1 allowed", "over_rate", "else: pass"}, "status")
	out, err := rig.Command(h.net.Gate, binary, "status", "-o", "json", "-c", h.config()).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("status -o json: %v", err)
	}
	var st daemon.Status
	if err := json.Unmarshal(out, &st); err != nil {
		t.Fatal(err)
	}
	if !st.Dead || st.Ready || len(st.Rules) != 1 || len(st.Network.Interfaces) != 1 {
		t.Fatalf("status: %s", out)
	}
	if i := st.Network.Interfaces[0]; i.Name != h.link.Gate.Interface || i.AttachMode != "native" || i.ProgramID == 0 {
		t.Errorf("interface %+v", i)
	}
	if r := st.Rules[0]; r.Name != "all" || r.Packets.Passed != 10 || r.Packets.Passed+r.Packets.Refused != sent.Packets {
		t.Errorf("rule %+v %+v, %d sent", r, r.Packets, sent.Packets)
	}

	list := h.do("blocks")
	for _, w := range []string{"no daemon answers", h.pins, "203.0.113.9", "port scan", "2001:db8:66::/48", "never"} {
		if !strings.Contains(list, w) {
			t.Errorf("blocks do not say %q:\n%s", w, list)
		}
	}
	if out := h.do("allows"); !strings.Contains(out, "192.0.2.0/24") {
		t.Errorf("allows: %s", out)
	}
	// from a namespace in which the interface's index means another, or none
	outside := exec.Command(binary, "status", "-c", h.config())
	if out, _ := outside.CombinedOutput(); !strings.Contains(string(out), h.link.Gate.Interface+": its interface is in another network namespace") {
		t.Errorf("status from another namespace:\n%s", out)
	}
	if out := h.do("detach", "--all"); !strings.Contains(out, "detached from "+h.link.Gate.Interface+"\n") {
		t.Errorf("detach does not name the interface:\n%s", out)
	}
	h.exits(1, []string{"no daemon answers"}, "status")
}

// A daemon that lives keeps its pins from who cannot reach its socket.
func TestDetachBehindTheDaemonsBack(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\nblock: [203.0.113.9]\n")
	h.start()
	h.exits(1, []string{"already running pid", h.pins, "--socket"}, "detach", "--all", "--socket", filepath.Join(h.dir, "wrong.sock"))
	if i := h.status().Network.Interfaces[0]; i.ProgramID == 0 {
		t.Errorf("interface afterwards: %+v", i)
	}
	r := rig.Receive(t, h.link)
	h.flow(1000, 100*time.Millisecond, h.packet("203.0.113.9", 80))()
	if got := r.Stop(t).From(netip.MustParseAddr("203.0.113.9")); got.Packets != 0 {
		t.Errorf("%d packets of a blocked source were delivered", got.Packets)
	}
}

// A bpffs is open to all as a rule: who made the folder of the pins before the
// daemon did could take them away.
func TestPinsOfAnotherUser(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\n")
	if err := os.MkdirAll(h.pins, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(h.pins, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	h.exits(1, []string{h.pins, "owner is user 65534", "state.pins"}, "run")
	if left, err := os.ReadDir(h.pins); err != nil || len(left) != 0 {
		t.Errorf("pinned: %v, %v", left, err)
	}
}

// A start without privilege leaves nothing behind.
func TestStartWithoutPrivilegeLeavesNothing(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\n")
	if err := os.Chmod(filepath.Dir(h.pins), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{h.dir, filepath.Dir(h.dir)} {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	run := rig.Command(h.net.Gate, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", binary, "run", "-c", h.config())
	out, err := run.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "run as root, or with CAP_BPF") {
		t.Errorf("it said %v\n%s", err, out)
	}
	if left, err := os.ReadDir(h.pins); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("made: %v, %v", left, err)
	}
}

// A start that fails at the interface leaves nothing pinned behind.
func TestFailedStartLeavesNothing(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE, lo], attach_mode: native}\n")
	h.exits(1, []string{"attach lo in native mode", "attach_mode"}, "run")
	if left, err := os.ReadDir(h.pins); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pinned: %v, %v", left, err)
	}
	if out, _ := rig.Command(h.net.Gate, "ip", "link", "show", h.link.Gate.Interface).CombinedOutput(); strings.Contains(string(out), "xdp") {
		t.Errorf("a program is left: %s", out)
	}
}
