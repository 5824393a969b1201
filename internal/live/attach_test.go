package live

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// The loopback interface has no native XDP: it is attached in generic mode,
// the status says so and why, and packets are judged all the same. Asked for
// native alone, the daemon refuses and says what to do.
func TestGenericWhereNativeIsRefused(t *testing.T) {
	h := newHost(t, `
network: {interfaces: [lo]}
rules:
  - {name: all, match: {protocol: udp, ports: [7]}, per: source, rate: 1/min, burst: 2}
`)
	h.start()
	i := h.status().Network.Interfaces[0]
	if i.AttachMode != "generic" || i.ProgramID == 0 || !strings.Contains(i.Warning+h.log.String(), "native") {
		t.Errorf("lo is attached as %+v; log %s", i, h.log)
	}
	send := rig.Command(h.net.Gate, "bash", "-c", "for i in 1 2 3 4 5; do echo x > /dev/udp/127.0.0.1/7; done")
	if out, err := send.CombinedOutput(); err != nil {
		t.Logf("sends to a closed port may fail: %v %s", err, out)
	}
	if r := h.rule("all"); r.Packets.Passed != 2 || r.Packets.Refused != 3 {
		t.Errorf("counted %+v, want 2 passed and 3 refused", *r.Packets)
	}
	h.kill()
	h.do("detach", "--all")
	h.write("network: {interfaces: [lo], attach_mode: native}\n")
	h.exits(1, []string{"attach lo", "attach_mode"}, "run")
}

// Each of these is one clear line with the cure, exit code 1, and nothing is
// left attached.
func TestCannotAttach(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\n")
	pins := h.pins
	h.pins = filepath.Join(h.dir, "not-a-bpffs")
	h.write("network: {interfaces: [IFACE]}\n")
	h.exits(1, []string{"bpffs", "mount -t bpf"}, "run")
	h.pins = pins
	h.write("network: {interfaces: [IFACE]}\n")
	cmd := rig.Command(h.net.Gate, "setpriv", "--bounding-set", "-bpf,-sys_admin", "--inh-caps", "-bpf,-sys_admin", binary, "run", "-c", h.config())
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "CAP_BPF") {
		t.Errorf("without privilege: %v\n%s", err, out)
	}
	if out, _ := rig.Command(h.net.Gate, "ip", "link", "show", h.link.Gate.Interface).CombinedOutput(); strings.Contains(string(out), "xdp") {
		t.Errorf("a program is attached: %s", out)
	}
}

// A bad config is refused before anything that runs is touched: at a start
// beside an attached program, and at a reload.
func TestBadConfigTouchesNothing(t *testing.T) {
	const good = "network: {interfaces: [IFACE]}\nblock: [203.0.113.9]\n"
	const bad = good + "rules:\n  - {name: r, per: source, rate: 10/s, burts: 5}\n  - {name: s, per: source, rate: 0/s}\n"
	h := newHost(t, good)
	h.start()
	before := h.status().Network.Interfaces[0].ProgramID
	h.write(bad)
	h.exits(2, []string{":", "burts", "burst", "rate"}, "reload")
	if s := h.status(); s.Config.OK || s.Network.Interfaces[0].ProgramID != before {
		t.Errorf("after a bad reload: %+v %+v", s.Config, s.Network.Interfaces)
	}
	h.kill()
	h.exits(2, []string{"burts", "burst"}, "run")
	r := rig.Receive(t, h.link)
	h.flow(1000, 200*time.Millisecond, h.packet("203.0.113.9", 80))()
	if got := r.Stop(t).From(netip.MustParseAddr("203.0.113.9")); got.Packets != 0 {
		t.Errorf("%d packets of a blocked source passed after starts with a bad config", got.Packets)
	}
}
