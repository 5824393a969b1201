package live

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/daemon/doctor"
	"github.com/headgate/headgate/internal/rig"
)

// report runs doctor by a command line that ends in it, and returns what it
// found, and whether it says by its exit code that something fails.
func (h *host) report(through ...string) (r doctor.Report, failed bool) {
	h.t.Helper()
	args := append(through, binary, "doctor", "-o", "json", "-c", h.config())
	cmd := rig.Command(h.net.Gate, args[0], args[1:]...)
	out, err := cmd.Output()
	exit, ended := err.(*exec.ExitError)
	if err != nil && (!ended || exit.ExitCode() != 1) {
		h.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		h.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	if r.OK == (err != nil) {
		h.t.Errorf("%v: ok is %v, exit %v", args, r.OK, err)
	}
	return r, err != nil
}

// finds demands a finding.
func finds(t *testing.T, r doctor.Report, check string, state doctor.State, words ...string) {
	t.Helper()
	var seen []string
	for _, f := range r.Findings {
		text := f.Text + " " + f.Cure
		seen = append(seen, string(f.State)+" "+f.Check+": "+text)
		if f.Check != check || f.State != state {
			continue
		}
		all := true
		for _, w := range words {
			all = all && strings.Contains(text, w)
		}
		if all {
			return
		}
	}
	t.Errorf("no finding %s %s with %q in:\n%s", state, check, words, strings.Join(seen, "\n"))
}

// Without these rights doctor does not try the program, which takes long.
var (
	asNobody  = []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"}
	noPerfmon = []string{"setpriv", "--bounding-set=-perfmon,-sys_admin", "--inh-caps=-perfmon,-sys_admin"}
)

// A sound installation, the same with its daemon dead, and seen by a user
// without any right.
func TestDoctor(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\nrules: [{name: all, per: source, rate: 100/s}]\n")
	if r, failed := h.report(); failed {
		t.Errorf("before the start: %+v", r)
	} else {
		finds(t, r, "daemon", doctor.Warn, "no daemon runs", "headgate run")
		finds(t, r, "interfaces", doctor.OK, h.link.Gate.Interface, "driver veth", "would be attached in native mode")
		finds(t, r, "program", doctor.OK)
		finds(t, r, "memory", doctor.OK, "network.slots 1048576")
	}
	h.start()
	r, failed := h.report()
	if failed {
		t.Errorf("with a daemon: %+v", r)
	}
	finds(t, r, "daemon", doctor.OK, "generation 1")
	finds(t, r, "interfaces", doctor.OK, "is attached in native mode, program id")
	finds(t, r, "capabilities", doctor.OK, "the daemon (pid", "CAP_PERFMON")
	finds(t, r, "bpffs", doctor.OK, h.pins)
	h.kill()
	r, failed = h.report()
	if !failed || len(r.ToDo) == 0 || !strings.HasPrefix(r.ToDo[0], "daemon: the daemon is dead") {
		t.Errorf("with a dead daemon it says first: %v", r.ToDo)
	}
	finds(t, r, "interfaces", doctor.OK, "is attached in native mode, program id")

	r, _ = h.report(asNobody...)
	finds(t, r, "config", doctor.Unseen, "permission denied")
	for _, dir := range []string{h.dir, filepath.Dir(h.dir)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r, _ = h.report(asNobody...)
	finds(t, r, "config", doctor.OK)
	finds(t, r, "program", doctor.Unseen, "CAP_BPF")
	finds(t, r, "capabilities", doctor.Unseen, "this user lacks CAP_NET_ADMIN")
	finds(t, r, "daemon", doctor.Unseen, h.dir)
	finds(t, r, "interfaces", doctor.Unseen, "whether it is headgate's cannot be seen")
	finds(t, r, "kernel", doctor.OK, "Linux ")
}

// RC-086: what root lacks is named by itself.
func TestDoctorNamesTheCapability(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\n")
	r, _ := h.report(noPerfmon...)
	finds(t, r, "capabilities", doctor.Fail, "this user lacks CAP_PERFMON", "AmbientCapabilities=CAP_PERFMON")
	finds(t, r, "capabilities", doctor.OK, "CAP_BPF")
	finds(t, r, "capabilities", doctor.OK, "CAP_NET_ADMIN")
}

// RC-036: without a bpffs, with one of the container's own, with the host's.
// RC-113: one bpffs mounted over the other.
func TestDoctorSeesTheContainersMounts(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\n")
	at := filepath.Dir(h.pins)
	inContainer := func(mounts string) doctor.Report {
		t.Helper()
		r, _ := h.report("unshare", "-m", "--propagation", "private", "sh", "-ec", mounts+"; exec "+strings.Join(noPerfmon, " ")+` "$@"`, "sh")
		return r
	}
	mount := "mount -t bpf bpf " + at
	finds(t, inContainer("mount -t tmpfs none "+at), "bpffs", doctor.Fail, "not in a bpffs but in a tmpfs", "mountPropagation: HostToContainer")
	finds(t, inContainer(mount), "bpffs", doctor.Fail, "is the container's own", "end with it")
	finds(t, inContainer("true"), "bpffs", doctor.OK, "the host's bpffs")
	finds(t, inContainer(mount+";"+mount+";"+mount), "bpffs", doctor.Warn, "3 file systems are mounted on "+at)
}

// RC-135, RC-033, and a program of others: interfaces with something the matter.
func TestDoctorSeesTheInterface(t *testing.T) {
	h := newHost(t, "network: {interfaces: [narrow, plain0, nosuch0]}\nrules: [{name: guests, match: {vlan: 10}, per: source, rate: 100/s}]\n")
	for _, add := range []string{
		"ip link add narrow up numrxqueues 1 numtxqueues 4 type veth peer name wide numrxqueues 4 numtxqueues 4",
		"ip tuntap add plain0 mode tun",
	} {
		if out, err := rig.Command(h.net.Gate, "sh", "-c", add).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", add, err, out)
		}
	}
	r, _ := h.report(noPerfmon...)
	finds(t, r, "interfaces", doctor.Warn, "narrow", "would be attached in generic mode", "ethtool -L wide tx 1")
	finds(t, r, "interfaces", doctor.Fail, "plain0", "no Ethernet header")
	finds(t, r, "interfaces", doctor.Fail, "nosuch0: no such interface", "ip link")
	finds(t, r, "vlan", doctor.Warn, "rule guests", "ethtool -K wide txvlan off")
}

// RC-036: a daemon in a container with a bpffs of its own says so at its start
// and in its status; and it is true: the filter ends with the container. With
// the host's bpffs it says nothing, and the filter stays.
func TestPinsEndWithTheContainer(t *testing.T) {
	attached := func(h *host) bool {
		out, err := rig.Command(h.net.Gate, "ip", "link", "show", h.link.Gate.Interface).CombinedOutput()
		if err != nil {
			t.Fatalf("%v %s", err, out)
		}
		return strings.Contains(string(out), "xdp")
	}
	const says = "pins will not survive this container"
	for name, own := range map[string]bool{"its own": true, "the host's": false} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, "network: {interfaces: [IFACE]}\n")
			mounts := "true"
			if own {
				mounts = "mount -t bpf bpf " + filepath.Dir(h.pins)
			}
			h.as = []string{"unshare", "-m", "--propagation", "private", "sh", "-ec", mounts + `; exec "$@"`, "sh"}
			h.start()
			st := h.status()
			if told := strings.Contains(st.Network.PinsEnd, says) && strings.Contains(h.log.String(), says); told != own || (st.Network.PinsEnd != "") != own {
				t.Errorf("status says %q, the log:\n%s", st.Network.PinsEnd, h.log)
			}
			h.kill()
			// the kernel takes the mount namespace down some time after its last process
			h.await("the filter to be as told", func() bool { return attached(h) != own })
		})
	}
}
