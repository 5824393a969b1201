package live

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/caps"
	"github.com/headgate/headgate/internal/rig"
)

// withOnly starts a command as root with these capabilities and no way to
// others.
func withOnly(set caps.Set) []string {
	bounding := "-all"
	for bit := range 64 {
		if set&(1<<bit) != 0 {
			bounding += fmt.Sprintf(",+cap_%d", bit)
		}
	}
	return []string{"setpriv", "--bounding-set", bounding, "--inh-caps", "-all", "--ambient-caps", "-all", "--"}
}

// capsOf reads one set (CapEff, CapPrm, CapInh, CapBnd, CapAmb) of a thread.
func capsOf(tid int, which string) (caps.Set, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, which+":"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return caps.Set(set), err
		}
	}
	return 0, fmt.Errorf("thread %d has no %s", tid, which)
}

// RC-086: root with the capabilities that the documentation lists and no other
// attaches, limits, blocks, reloads, changes the attach mode, is killed, adopts
// what it left, and detaches. Once it is up it has three, whatever it was
// started with; its launcher has the other three, and its HTTP gate none.
func TestLeastPrivilege(t *testing.T) {
	const all = 1<<64 - 1 // whatever root has
	for name, set := range map[string]caps.Set{
		"network gate": caps.NetworkGate, "both gates": caps.NetworkGate | caps.OtherUser, "root": all,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, "")
			if set != all {
				h.as = withOnly(set)
			}
			config := "network: {interfaces: [IFACE]}\n" +
				"rules:\n  - {name: game, match: {protocol: udp, ports: [9000]}, per: source, rate: %d/s, burst: 100}\n"
			address := h.link.Gate.IPv4.String() + ":8080"
			if set&caps.OtherUser != 0 {
				config += `http: {listen: "` + address + `", upstream: ` + upstream(t, h.net) + "}\n"
			}
			h.write(fmt.Sprintf(config, 50))
			h.start()
			h.write(fmt.Sprintf(config, 100))
			h.do("reload")
			h.kill()
			h.start()
			h.hasGivenUp(set == all)
			h.do("reattach", h.link.Gate.Interface)
			h.limitsAndBlocks()
			if set&caps.OtherUser != 0 {
				h.answersWithout(address)
			} else {
				h.cannotStartHTTP(fmt.Sprintf(config, 100), address)
			}
			h.do("detach", "--all")
		})
	}
}

func (h *host) limitsAndBlocks() {
	h.t.Helper()
	h.do("block", "203.0.113.9", "--for", "1h")
	r := rig.Receive(h.t, h.link)
	limited := h.flow(2000, time.Second, h.packet("203.0.113.5", 9000))
	blocked := h.flow(1000, 200*time.Millisecond, h.packet("203.0.113.9", 80))
	sent := limited()
	blocked()
	report := r.Stop(h.t)
	within(h.t, "the limited source", report.From(netip.MustParseAddr("203.0.113.5")).Packets, sent, 100, 100)
	if got := report.From(netip.MustParseAddr("203.0.113.9")); got.Packets != 0 {
		h.t.Errorf("the blocked source: %d delivered", got.Packets)
	}
}

// hasGivenUp looks at what the daemon and its launcher may do.
func (h *host) hasGivenUp(bounded bool) {
	h.t.Helper()
	daemon := h.cmd.Process.Pid
	who := map[string]int{"the daemon": daemon}
	want := map[string]caps.Set{"the daemon": caps.NetworkGate, "the launcher": caps.OtherUser}
	if h.status().HTTP.On {
		who["the launcher"] = h.launcher()
	} else if own := childrenOf(h.t, daemon); len(own) != 0 {
		h.t.Errorf("without an HTTP gate the daemon has children: %v", own)
	}
	for name, pid := range who {
		full := []string{"CapPrm", "CapEff"}
		if bounded {
			full = append(full, "CapBnd") // takes CAP_SETPCAP
		}
		for _, set := range full {
			wantCaps(h.t, name, pid, set, want[name])
		}
		for _, set := range []string{"CapInh", "CapAmb"} {
			wantCaps(h.t, name, pid, set, 0)
		}
		if got := procField(pid, "NoNewPrivs"); got != "1" {
			h.t.Errorf("%s: NoNewPrivs is %q", name, got)
		}
	}
}

// cannotStartHTTP adds an HTTP gate to a daemon that has given up what that
// takes: the reload is refused as a whole and says what helps.
func (h *host) cannotStartHTTP(config, address string) {
	h.t.Helper()
	h.write(config + `http: {listen: "` + address + `", upstream: "http://127.0.0.1:9000"}` + "\n")
	h.exits(1, []string{"CAP_SETUID, CAP_SETGID and CAP_KILL missing", "restart it to switch the HTTP gate on"}, "reload")
	h.write(config)
	h.do("reload")
}

// answersWithout asks the HTTP gate and looks at what its process may do.
func (h *host) answersWithout(address string) {
	h.t.Helper()
	if code, err := get(h.client(h.link.Peer.IPv4.String()), "http://"+address+"/"); code != 200 {
		h.t.Errorf("the HTTP gate answers %d, %v", code, err)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		wantCaps(h.t, "the HTTP gate's process", h.status().HTTP.PID, set, 0)
	}
}

// RC-086: each capability that is missing is named, and no other, in one line;
// nothing is attached or pinned.
func TestMissingCapabilityIsNamed(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\nhttp: {listen: \"127.0.0.1:8080\", upstream: http://127.0.0.1:9000}\n")
	const all = caps.NetworkGate | caps.OtherUser
	for _, missing := range []caps.Set{caps.BPF, caps.NetAdmin, caps.Perfmon, caps.SetUID, caps.SetGID, caps.Kill} {
		h.as = withOnly(all &^ missing)
		out, err := h.daemon().CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		last := lines[len(lines)-1]
		if err == nil || !strings.HasPrefix(last, "headgate: ") || !strings.Contains(last, ": "+missing.String()+" missing") {
			t.Errorf("without %v it ends with %v and says\n%s", missing, err, out)
		}
		if strings.Contains(string(out), "memlock") || strings.Contains(string(out), "MEMLOCK") {
			t.Errorf("without %v it blames the limit on locked memory:\n%s", missing, out)
		}
		if _, err := os.Stat(h.pins); err == nil {
			t.Errorf("without %v: %s was made", missing, h.pins)
		}
	}
	h.write("network: {interfaces: [IFACE]}\nhttp: {listen: \"127.0.0.1:80\", upstream: http://127.0.0.1:9000}\n")
	h.as = withOnly(all)
	if out, err := h.daemon().CombinedOutput(); err == nil || !strings.Contains(string(out), caps.NetBindService.String()) {
		t.Errorf("listening on port 80 it ends with %v and says\n%s", err, out)
	}
	if out, _ := rig.Command(h.net.Gate, "ip", "link", "show", h.link.Gate.Interface).CombinedOutput(); strings.Contains(string(out), "xdp") {
		t.Errorf("a program is attached: %s", out)
	}
}

// RC-086: a start that may not use bpf(2) with all capabilities names what else
// refuses it.
func TestRefusedInAUserNamespace(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\n")
	h.as = []string{"unshare", "--user", "--map-root-user", "--"}
	if out, err := h.daemon().CombinedOutput(); err == nil || !strings.Contains(string(out), "user namespace") {
		t.Errorf("it ends with %v and says\n%s", err, out)
	}
}
