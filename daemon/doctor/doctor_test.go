package doctor

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
	"github.com/headgate/headgate/daemon/attachments"
	"github.com/headgate/headgate/daemon/preflight"
	"github.com/headgate/headgate/internal/caps"
)

// one checks what a judgement came to: its worst state, and all of what it says.
func one(t *testing.T, name string, got []Finding, want State, says ...string) {
	t.Helper()
	worst, text := OK, ""
	order := map[State]int{OK: 0, Unseen: 1, Warn: 2, Fail: 3}
	for _, f := range got {
		if order[f.State] > order[worst] {
			worst = f.State
		}
		text += f.Text + " | " + f.Cure + "\n"
		if f.State == Fail && f.Cure == "" && !strings.HasPrefix(f.Text, "not ready") {
			t.Errorf("%s: a failure without a cure: %s", name, f.Text)
		}
	}
	if worst != want {
		t.Errorf("%s: %s, want %s:\n%s", name, worst, want, text)
	}
	for _, s := range says {
		if !strings.Contains(text, s) {
			t.Errorf("%s does not say %q:\n%s", name, s, text)
		}
	}
}

func TestJudgements(t *testing.T) {
	one(t, "a kernel too old", kernelVersion("5.15.0-91-generic", ""), Fail, "5.15.0-91-generic", "6.1")
	one(t, "the oldest kernel", kernelVersion("6.1.0-18-amd64", ""), OK)
	one(t, "a later kernel", kernelVersion("7.0.1", ""), OK)

	// RC-086: each capability that is missing is named by itself
	all := caps.BPF | caps.NetAdmin | caps.Perfmon
	one(t, "all capabilities", capabilities(networkNeeds, all, "the daemon (pid 7)", true, false), OK, "CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON")
	for _, lost := range []caps.Set{caps.BPF, caps.NetAdmin, caps.Perfmon} {
		got := capabilities(networkNeeds, all&^lost, "the daemon (pid 7)", true, false)
		one(t, "without "+lost.String(), got, Fail, "the daemon (pid 7) lacks "+lost.String(), "AmbientCapabilities="+lost.String())
		one(t, "a user without "+lost.String(), capabilities(networkNeeds, all&^lost, "this user", false, false), Unseen, "lacks "+lost.String())
	}
	one(t, "SYS_ADMIN stands for two", capabilities(networkNeeds, caps.SysAdmin|caps.NetAdmin, "this user", false, true), OK)

	one(t, "the HTTP gate's user", capabilities(httpNeeds, caps.SetUID|caps.Kill, "this user", false, true), Fail, "lacks CAP_SETGID", "has CAP_SETUID", "has CAP_KILL")

	// RC-036
	host := preflight.Pins{Mount: preflight.Mount{Point: "/sys/fs/bpf", Type: "bpf"}, Times: 1, Survives: true, Sure: true}
	one(t, "the host's bpffs", judgePins("/sys/fs/bpf/headgate", host), OK)
	own := host
	own.Survives = false
	one(t, "the container's bpffs", judgePins("/sys/fs/bpf/headgate", own), Fail, "end with it", "HostToContainer")
	own.Sure = false
	one(t, "perhaps the container's bpffs", judgePins("/sys/fs/bpf/headgate", own), Warn, "seems to be")
	// RC-113
	often := host
	often.Times, often.Mounts = 16, 32000
	one(t, "multiplied mounts", judgePins("/sys/fs/bpf/headgate", often), Warn, "16 file systems", "32000 mounts", "HostToContainer")

	one(t, "memory", memory(1<<20, 45<<20, 4<<30, "the host"), OK, "45 MiB of 4096 MiB")
	one(t, "little memory", memory(1<<20, 45<<20, 60<<20, "the host"), Warn, "network.slots")
	one(t, "no memory", memory(1<<27, 2<<30, 1<<30, "the control group /headgate"), Fail, "the control group /headgate", "lower network.slots")

	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	one(t, "good clocks", clock(now, 0, "tsc", 4*time.Millisecond), OK)
	one(t, "a clock that was never set", clock(time.Unix(60, 0), 0, "tsc", 0), Fail, "1970")
	one(t, "a clock that is stepped", clock(now, -time.Second, "tsc", 0), Fail, "apart")
	one(t, "a slow clock", clock(now, 0, "hpet", 0), Warn, "hpet")
}

func TestDaemonJudged(t *testing.T) {
	up := daemon.Status{Version: "1", PID: 7, Ready: true, Config: daemon.ConfigStatus{OK: true, Path: "h.yaml"}}
	one(t, "a daemon", lookAtDaemon(&Patient{Status: &up, Version: "1"}), OK)
	one(t, "another version", lookAtDaemon(&Patient{Status: &up, Version: "2"}), Warn, "version 1", "restart")
	broken := up
	broken.Config.OK, broken.Config.Error = false, "h.yaml:3:1: unknown key\nh.yaml:4:1: more"
	broken.Faults = []string{"the HTTP gate is down: port taken", "interface eth0 is not attached: gone"}
	one(t, "a broken daemon", lookAtDaemon(&Patient{Status: &broken, Version: "1"}), Fail, "h.yaml:3:1", "headgate reload", "port taken")
	dead := daemon.Status{Dead: true, Network: daemon.NetworkStatus{Interfaces: []daemon.Interface{{Name: "eth0", ProgramID: 3}}}}
	one(t, "a dead daemon", lookAtDaemon(&Patient{Status: &dead, NoDaemon: true}), Fail, "goes on filtering", "headgate run")
	// killed when the program had come off its only interface
	dead.Network = daemon.NetworkStatus{Covered: []string{"eth0"}}
	covered := lookAtDaemon(&Patient{Status: &dead, NoDaemon: true})
	if len(covered) != 2 || covered[0].State != Fail {
		t.Errorf("with a cover alone: %+v", covered)
	}
	one(t, "a cover", covered[1:], Warn, "eth0", "cut short", "headgate detach --all")
	one(t, "no daemon", lookAtDaemon(&Patient{NoDaemon: true}), Warn, "headgate run")
	one(t, "pins out of sight", lookAtDaemon(&Patient{NoDaemon: true, PinsErr: errors.New("permission denied")}), Unseen, "permission denied")
	one(t, "a socket out of reach", lookAtDaemon(&Patient{StatusErr: errors.New("may not use /run/h.sock")}), Unseen, "/run/h.sock")
}

func TestInterfacesJudged(t *testing.T) {
	cfg := &config.Config{Network: config.Network{Interfaces: []string{"eth0"}, AttachMode: config.AttachAuto}}
	eth0 := preflight.Facts{Name: "eth0", Driver: "ena", Kind: "device", MTU: 1500, Ethernet: true, Up: true, XDP: &preflight.XDP{Basic: true}}
	jumbo, foreign := eth0, eth0
	jumbo.MTU = 9001
	foreign.Attached, foreign.Program = "native", 44
	p := &Patient{Config: cfg, NoDaemon: true}
	one(t, "native", p.interfaceFindings(&eth0), OK, "native")
	one(t, "jumbo", p.interfaceFindings(&jumbo), Warn, "generic", "ip link set eth0 mtu 3498")
	one(t, "another's program", p.interfaceFindings(&foreign), Fail, "not headgate's: id 44", "never removes")
	one(t, "a program of whom", (&Patient{Config: cfg}).interfaceFindings(&foreign), Unseen, "id 44")
	p.Status = &daemon.Status{Network: daemon.NetworkStatus{Interfaces: []daemon.Interface{{Name: "eth0", AttachMode: "native", ProgramID: 44}}}}
	one(t, "ours", p.interfaceFindings(&foreign), OK, "attached in native mode, program id 44")
	p.Status.Network.Interfaces[0] = daemon.Interface{Name: "eth0", AttachMode: "generic", ProgramID: 44}
	one(t, "ours, generic, no longer needed", p.interfaceFindings(&foreign), Warn, "nothing is seen", "headgate reattach eth0")
	stuck := foreign
	stuck.MTU, stuck.Attached = 9001, "generic"
	one(t, "ours, generic, jumbo", p.interfaceFindings(&stuck), Warn, "do not fit", "mtu 3498, then: headgate reattach eth0")
	p.Status.Network.Interfaces[0].Warning = "attached in generic mode, as native is refused"
	one(t, "ours, generic, refused", p.interfaceFindings(&foreign), Warn, "refused", "headgate reattach eth0")
	cfg.Network.AttachMode = config.AttachGeneric
	one(t, "ours, generic, as asked", p.interfaceFindings(&stuck), Warn, "refused")
	cfg.Network.AttachMode = config.AttachAuto
	p.Status.Network.Interfaces[0] = daemon.Interface{Name: "eth0", AttachMode: "none", Warning: "gone"}
	one(t, "not attached", p.interfaceFindings(&eth0), Fail, "gone", "headgate reload")
	cfg.Network.AttachMode = config.AttachNative
	p.Status = nil
	one(t, "native or nothing", p.interfaceFindings(&jumbo), Fail, "refused", "mtu 3498")

	// RC-135
	rule, err := config.ParseRule("rule", []byte(`{name: guests, match: {vlan: 10}, per: source, rate: 1/s}`))
	if err != nil {
		t.Fatal(err)
	}
	h := preflight.Facts{Name: "eth0", Kind: "device", Features: map[string]bool{"rx-vlan-hw-parse": true}}
	one(t, "a hidden tag", hidden([]config.Rule{rule}, attachments.Surroundings{}, "eth0", h.HidesTags()), Fail, "rule guests", "ethtool -K eth0 rxvlan off")
	v := preflight.Facts{Name: "v0", Kind: "veth", Features: h.Features}
	one(t, "perhaps a hidden tag", hidden([]config.Rule{rule}, attachments.Surroundings{}, "v0", v.HidesTags()), Warn, "txvlan off")
}

// A state folder that is missing is made by the daemon; one that cannot be is
// a failure that names it.
func TestStateJudged(t *testing.T) {
	at := func(dir string) *config.Config { return &config.Config{State: config.State{Dir: dir}} }
	one(t, "not there yet", state(at(t.TempDir()+"/a/b")), OK)
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	one(t, "a file in its place", state(at(file)), Fail, "is no folder")
	one(t, "read-only", state(at("/proc/sys")), Fail)
}

// What is to be done is ordered: failures first, and of these what lets traffic
// pass now.
func TestMostUrgentFirst(t *testing.T) {
	before := checks
	t.Cleanup(func() { checks = before })
	checks = []check{
		{"late", 5, func(*Patient) []Finding { return failure("clock", "set it") }},
		{"soon", 1, func(*Patient) []Finding { return warning("mode", "change it") }},
		{"told", 1, func(*Patient) []Finding { return warning("just so", "") }},
		{"now", 1, func(*Patient) []Finding { return failure("dead", "start it") }},
		{"fine", 1, func(*Patient) []Finding { return ok("good") }},
		{"dark", 1, func(*Patient) []Finding { return unseen("rights", "be root") }},
	}
	r := Examine(&Patient{})
	want := []string{"now: dead. Cure: start it", "late: clock. Cure: set it", "soon: mode. Cure: change it"}
	if strings.Join(r.ToDo, "\n") != strings.Join(want, "\n") || r.OK || len(r.Findings) != 6 {
		t.Errorf("to do: %q of %+v", r.ToDo, r)
	}
}
