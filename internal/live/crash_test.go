package live

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// Both processes are killed again and again in the middle of a flood, and the
// daemon is stopped and started: what is blocked gets nothing through, what is
// limited never more than burst + rate·T, what is allowed loses nothing, and
// rules and blocks given on the command line are all there afterwards.
func TestKilledInTheMiddleOfAFlood(t *testing.T) {
	h := newHost(t, `
network: {interfaces: [IFACE]}
allow: [198.51.100.7]
rules:
  - {name: all, per: source, rate: 1000/s, burst: 1000}
`)
	h.start()
	h.do("block", "198.51.100.0/24", "--for", "1h", "--reason", "flood")
	h.do("rule", "add", "game", "--protocol", "udp", "--ports", "9000", "--per", "source", "--rate", "100/s", "--burst", "100")
	before := h.status().Network.Interfaces[0]
	r := rig.Receive(t, h.link)
	const d = 12 * time.Second
	limited := h.flow(5000, d, h.packet("203.0.113.5", 9000))
	blocked := h.flow(5000, d, h.packet("198.51.100.66", 80))
	allowed := h.flow(1000, d, h.packet("198.51.100.7", 80))
	for i := range 6 {
		if i%2 == 0 {
			h.kill()
		} else {
			h.stop()
		}
		time.Sleep(200 * time.Millisecond) // the flood goes on against the dead
		h.start()
		if now := h.status().Network.Interfaces[0]; now.Pin != before.Pin || now.AttachMode != before.AttachMode {
			t.Errorf("attached before as %+v, now as %+v", before, now)
		}
	}
	sent, sentAllowed := limited(), allowed()
	blocked()
	report := r.Stop(t)
	within(t, "the limited source", report.From(netip.MustParseAddr("203.0.113.5")).Packets, sent, 100, 100)
	if got := report.From(netip.MustParseAddr("198.51.100.66")); got.Packets != 0 {
		t.Errorf("the blocked source: %d delivered", got.Packets)
	}
	if got := report.From(netip.MustParseAddr("198.51.100.7")); got.Packets != sentAllowed.Packets || got.Missing != 0 {
		t.Errorf("the allowed source: %+v of %d delivered", got, sentAllowed.Packets)
	}
	if out := h.do("blocks"); !strings.Contains(out, "198.51.100.0/24") || !strings.Contains(out, "flood") {
		t.Errorf("blocks afterwards: %s", out)
	}
	rule := h.rule("game")
	if rule.Packets.Passed+rule.Packets.Refused != sent.Packets {
		t.Errorf("the rule counted %d packets over all restarts, %d were sent", rule.Packets.Passed+rule.Packets.Refused, sent.Packets)
	}
}

// RC-133: a block ends at its time, to the second, also with the daemon dead.
func TestBlockEndsWithTheDaemonDead(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\n")
	h.start()
	r := rig.Receive(t, h.link)
	from := time.Now()
	h.do("block", "203.0.113.9", "--for", "3s")
	set := time.Now()
	h.kill()
	wait := h.flow(1000, 5*time.Second, h.packet("203.0.113.9", 80))
	sent := wait()
	got := r.Stop(t).From(netip.MustParseAddr("203.0.113.9"))
	// the numbers that passed are those sent after the end
	earliest := from.Add(3*time.Second).Sub(sent.First).Seconds() * 1000
	latest := set.Add(4*time.Second).Sub(sent.First).Seconds() * 1000
	passed := float64(sent.Packets - got.Packets)
	if got.Packets == 0 || passed < earliest-50 || passed > latest {
		t.Errorf("the block held %v packets of %d, want %.0f to %.0f", passed, sent.Packets, earliest, latest)
	}
}

// RC-075: what ends the filter and what does not, as docs/deploy.md has it: a
// daemon that is stopped, interrupted or killed leaves it; detach removes every
// trace, with the daemon alive or dead, and with --purge what was added too.
func TestDetach(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\nblock: [203.0.113.9]\n")
	// lost is how many of some packets do not arrive
	lost := func() (n, of uint64) {
		t.Helper()
		r := rig.Receive(t, h.link)
		sent := h.flow(1000, 100*time.Millisecond, h.packet("203.0.113.9", 80))()
		return sent.Packets - r.Stop(t).From(netip.MustParseAddr("203.0.113.9")).Packets, sent.Packets
	}
	h.start()
	h.do("block", "198.51.100.7", "--for", "1h")
	for _, end := range []func(){h.stop, h.interrupt, h.kill} {
		end()
		if n, of := lost(); n != of {
			t.Errorf("%d of %d packets of a blocked source were dropped while the daemon was down", n, of)
		}
		h.start()
	}
	h.do("detach", "--all")
	if n, of := lost(); n != 0 {
		t.Errorf("%d of %d packets were lost after detach with the daemon alive", n, of)
	}
	h.do("reload")
	if n, of := lost(); n != of {
		t.Errorf("%d of %d packets were dropped after a reload that attaches again", n, of)
	}
	h.kill()
	h.do("detach", "--all")
	if n, of := lost(); n != 0 {
		t.Errorf("%d of %d packets were lost after detach with the daemon dead", n, of)
	}
	h.do("detach", "--all", "--purge")
	if _, err := os.Stat(filepath.Join(h.dir, "state")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("state is left: %v", err)
	}
	if out, err := exec.Command("ls", h.pins).CombinedOutput(); err == nil && len(out) > 0 {
		t.Errorf("pins are left: %s", out)
	}
	if out, _ := rig.Command(h.net.Gate, "ip", "link", "show", h.link.Gate.Interface).CombinedOutput(); strings.Contains(string(out), "xdp") {
		t.Errorf("a program is left: %s", out)
	}
}

// A second daemon on the same pins says who runs already and ends; the first
// is not disturbed.
func TestSecondDaemon(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\nblock: [203.0.113.9]\n")
	h.start()
	h.exits(1, []string{"already running", "pid"}, "run")
	if err := h.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the first daemon is gone: %v", err)
	}
	h.do("status")
}
