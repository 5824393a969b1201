package live

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// shipped is the DaemonSet's config with a rule more and an HTTP gate.
func shipped(t *testing.T, h *host, m manifest) (address string) {
	t.Helper()
	address = h.link.Gate.IPv4.String() + ":8080"
	files := m.ConfigMaps["headgate"]
	files["headgate.yaml"] += `  - {name: game, match: {protocol: udp, ports: [9000]}, per: source, rate: 100/s, burst: 100}
block: [203.0.113.9]
http: {listen: "` + address + `", upstream: "` + upstream(t, h.net) + `"}
`
	return address
}

// judged tells whether the pod's gate limits, blocks, and lets through.
func (p *pod) judged(when string) {
	p.h.t.Helper()
	r := rig.Receive(p.h.t, p.h.link)
	limited := p.h.flow(2000, 300*time.Millisecond, p.h.packet("203.0.113.5", 9000))
	blocked := p.h.flow(1000, 100*time.Millisecond, p.h.packet("203.0.113.9", 80))
	free := p.h.flow(1000, 100*time.Millisecond, p.h.packet("203.0.113.6", 80))
	sent, sentFree := limited(), free()
	blocked()
	report := r.Stop(p.h.t)
	if got := report.From(netip.MustParseAddr("203.0.113.5")).Packets; got == 0 || got > 100+100*uint64(sent.Elapsed()/time.Second+1) {
		p.h.t.Errorf("%s: %d packets of %d of a limited source were delivered", when, got, sent.Packets)
	}
	if got := report.From(netip.MustParseAddr("203.0.113.9")).Packets; got != 0 {
		p.h.t.Errorf("%s: %d packets of a blocked source were delivered", when, got)
	}
	if got := report.From(netip.MustParseAddr("203.0.113.6")).Packets; got != sentFree.Packets {
		p.h.t.Errorf("%s: %d of %d packets of a free source were delivered", when, got, sentFree.Packets)
	}
}

// mounted are the node's mounts of the pod's folders and of the bpffs.
func (p *pod) mounted() (lines []string) {
	p.h.t.Helper()
	text, err := os.ReadFile(p.proc("mountinfo"))
	if err != nil {
		p.h.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, p.dir) || strings.HasPrefix(at, p.h.dir) || strings.HasPrefix(at, "/sys/fs/bpf") {
			lines = append(lines, line)
		}
	}
	return lines
}

// The DaemonSet as it is shipped, in the security context that its manifest
// gives it (RC-036): it attaches and limits, is killed and goes on limiting, is
// started again and adopts, is probed, follows its ConfigMap; and uninstall
// leaves nothing. Restarts leave no mounts behind (RC-113).
func TestDaemonSet(t *testing.T) {
	h := newHost(t, "")
	m := readManifest(t, "headgate.yaml")
	address := shipped(t, h, m)
	p := newPod(h, m)
	before := p.mounted()
	p.start()
	c := m.Pod.Containers[0]
	if err := p.probe(c.LivenessProbe); err != nil {
		t.Errorf("the liveness probe: %v", err)
	}
	first := h.status()
	if len(first.Network.Interfaces) != 1 || first.Network.Interfaces[0].Name != h.link.Gate.Interface || first.Network.Interfaces[0].AttachMode != "native" {
		t.Fatalf("attached: %+v", first.Network.Interfaces)
	}
	if why := first.Network.PinsEnd; why != "" {
		t.Error(why)
	}
	p.judged("started")
	if code, err := get(h.client(h.link.Peer.IPv4.String()), "http://"+address+"/"); code != 200 {
		t.Errorf("the HTTP gate answers %d, %v", code, err)
	}
	if out, err := p.exec("block", "198.51.100.0/24", "--for", "1h"); err != nil {
		t.Errorf("block by kubectl exec: %v\n%s", err, out)
	}

	p.signal(syscall.SIGKILL)
	p.judged("killed")
	p.start()
	again := h.status()
	if i := again.Network.Interfaces[0]; i.AttachMode != "native" || i.Pin != first.Network.Interfaces[0].Pin {
		t.Errorf("adopted as %+v, before as %+v", i, first.Network.Interfaces[0])
	}
	if n := h.rule("game").Packets; n.Refused == 0 {
		t.Errorf("the counters begin anew: %+v", n)
	}
	if out := h.do("blocks"); !strings.Contains(out, "198.51.100.0/24") {
		t.Errorf("blocks afterwards:\n%s", out)
	}
	p.judged("started again")
	p.signal(syscall.SIGTERM)
	p.judged("stopped")
	if now := p.mounted(); len(now) != len(before) {
		t.Errorf("mounts on the host before:\n%s\nafterwards:\n%s", before, now)
	}
	p.uninstall()
}

// uninstall runs what uninstall.yaml does to the pod's node and looks for what
// is left.
func (p *pod) uninstall() {
	t := p.h.t
	t.Helper()
	p.m = readManifest(t, "uninstall.yaml")
	for _, c := range p.m.Pod.InitContainers {
		if err := p.run(c, true); err != nil {
			t.Fatalf("%s: %v\n%s", c.Name, err, p.logged())
		}
	}
	p.start() // what tells that it is done
	if _, err := os.Stat(p.h.pins); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pins are left: %v", err)
	}
	if left, err := os.ReadDir(p.disks["/var/lib/headgate"]); err != nil || len(left) != 0 {
		t.Errorf("state is left: %v, %v", left, err)
	}
	if out, _ := rig.Command(p.h.net.Gate, "ip", "link", "show", p.h.link.Gate.Interface).CombinedOutput(); strings.Contains(string(out), "xdp") {
		t.Errorf("a program is left: %s", out)
	}
	r := rig.Receive(t, p.h.link)
	sent := p.h.flow(1000, 100*time.Millisecond, p.h.packet("203.0.113.9", 80))()
	if got := r.Stop(t).From(netip.MustParseAddr("203.0.113.9")).Packets; got != sent.Packets {
		t.Errorf("after uninstall %d of %d packets are delivered", got, sent.Packets)
	}
}

// Each capability that the manifest adds is needed, and named where it is
// missing (RC-086); so is the bpffs (RC-036).
func TestDaemonSetNeedsAllItAsksFor(t *testing.T) {
	h := newHost(t, "")
	m := readManifest(t, "headgate.yaml")
	shipped(t, h, m)
	p := newPod(h, m)
	without := func(what string, c containerSpec, names ...string) {
		t.Helper()
		from := len(p.logged())
		err := p.run(c, true)
		said := p.logged()[from:]
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("without %s it ends with %v", what, err)
		}
		for _, name := range names {
			if !strings.Contains(said, name) {
				t.Errorf("without %s it does not name %q:\n%s", what, name, said)
			}
		}
	}
	whole := m.Pod.Containers[0]
	for i, name := range whole.SecurityContext.Capabilities.Add {
		c := whole
		c.SecurityContext.Capabilities.Add = slices.Delete(slices.Clone(whole.SecurityContext.Capabilities.Add), i, i+1)
		without(name, c, "CAP_"+name+" missing")
	}
	for i, mount := range whole.VolumeMounts {
		c := whole
		c.VolumeMounts = slices.Delete(slices.Clone(whole.VolumeMounts), i, i+1)
		switch mount.Name {
		case "bpf":
			without("its bpffs", c, "bpf", "mount -t bpf")
		case "state":
			without("its state", c, "state.dir", "read-only file system")
		case "run":
			without("a place for its socket", c, "control socket", "read-only file system")
		}
	}
}

// RC-113: thirty starts with the shipped mounts add none to the host's.
func TestStartsAddNoMounts(t *testing.T) {
	h := newHost(t, "")
	m := readManifest(t, "headgate.yaml")
	p := newPod(h, m)
	c := m.Pod.Containers[0]
	c.Args = []string{"version"}
	before := p.mounted()
	for i := range 30 {
		if err := p.run(c, true); err != nil {
			t.Fatalf("start %d: %v\n%s", i, err, p.logged())
		}
	}
	p.remove()
	if now := p.mounted(); len(now) != len(before) {
		t.Errorf("mounts on the host before:\n%s\nafter 30 starts:\n%s", before, now)
	}
}

// The pod follows its ConfigMap through the kubelet's symlink swap. One that is
// broken changes nothing and does not end the pod's readiness: it is told.
func TestConfigMapIsFollowed(t *testing.T) {
	h := newHost(t, "")
	m := readManifest(t, "headgate.yaml")
	shipped(t, h, m)
	p := newPod(h, m)
	p.start()
	folder := filepath.Join(p.dir, p.id, "volumes", "config")
	good := m.ConfigMaps["headgate"]["headgate.yaml"]
	p.project(folder, map[string]string{"headgate.yaml": strings.Replace(good, "203.0.113.9", "203.0.113.10", 1)})
	h.await("the new config", func() bool { return h.status().Config.Generation == 2 })
	p.project(folder, map[string]string{"headgate.yaml": good + "nonsense: 1\n"})
	h.await("the broken config to be told", func() bool { return !h.status().Config.OK })
	if err := p.probe(m.Pod.Containers[0].ReadinessProbe); err != nil {
		t.Errorf("the readiness probe after a broken config: %v", err)
	}
	if out := h.do("blocks"); !strings.Contains(out, "203.0.113.10") {
		t.Errorf("blocks after a broken config:\n%s", out)
	}
	p.project(folder, m.ConfigMaps["headgate"])
	h.await("the config that was mended", func() bool { c := h.status().Config; return c.OK && c.Generation == 3 })
}

// RC-036: in a bpffs of the container's own everything works, and it is told,
// in the log, the status and a metric, that it ends with the container.
func TestBPFFSOfItsOwn(t *testing.T) {
	h := newHost(t, "")
	m := readManifest(t, "headgate.yaml")
	shipped(t, h, m)
	p := newPod(h, m)
	c := &m.Pod.Containers[0]
	c.VolumeMounts = slices.Delete(slices.Clone(c.VolumeMounts), len(c.VolumeMounts)-1, len(c.VolumeMounts))
	p.m = m
	p.extra = []object{{"destination": "/bpf", "type": "bpf", "source": "bpf"}}
	p.start()
	const told = "pins will not survive"
	if w := strings.Join(h.status().Network.Warnings, "\n"); !strings.Contains(w, told) || !strings.Contains(p.logged(), told) {
		t.Errorf("status warns of %q, the log says\n%s", w, p.logged())
	}
	metrics := rig.Command(h.net.Gate, "curl", "-s", "http://127.0.0.1:9317/metrics")
	if out, err := metrics.Output(); err != nil || !strings.Contains(string(out), "headgate_pins_survive 0\n") {
		t.Errorf("no headgate_pins_survive 0 in the metrics: %v", err)
	}
	p.signal(syscall.SIGKILL)
	p.remove()
	if out, _ := rig.Command(h.net.Gate, "ip", "link", "show", h.link.Gate.Interface).CombinedOutput(); strings.Contains(string(out), "xdp") {
		t.Errorf("a program outlives its container's bpffs: %s", out)
	}
}
