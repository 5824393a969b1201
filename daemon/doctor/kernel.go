package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/internal/caps"
	"github.com/headgate/headgate/maps"
)

// The oldest kernel that is supported.
const oldestMajor, oldestMinor = 6, 1

func lookAtKernel(*Patient) []Finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return unseen("the kernel's version: "+err.Error(), "")
	}
	btf := "without BTF"
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err == nil {
		btf = "with BTF"
	}
	return kernelVersion(unix.ByteSliceToString(u.Release[:]), btf)
}

func kernelVersion(release, btf string) []Finding {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return warning("cannot read the version of Linux "+release, "")
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		return failure("Linux "+release+" is too old", fmt.Sprintf("run Linux %d.%d or later", oldestMajor, oldestMinor))
	}
	return ok("Linux " + release + ", " + btf + " (not needed); locked memory does not count for BPF since 5.11")
}

func lookAtJIT(p *Patient) []Finding {
	data, err := os.ReadFile(filepath.Join(p.Proc, "sys/net/core/bpf_jit_enable"))
	if err != nil {
		return unseen("whether the BPF compiler is on: the first network namespace alone shows it", "")
	}
	if strings.TrimSpace(string(data)) == "0" {
		return warning("the BPF compiler is off: a packet costs many times as much", "sysctl net.core.bpf_jit_enable=1")
	}
	return ok("the BPF compiler is on")
}

func lookAtLockdown(*Patient) []Finding {
	data, err := os.ReadFile("/sys/kernel/security/lockdown")
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ok("the kernel has no lockdown, or securityfs is not mounted")
	case err != nil:
		return unseen("whether the kernel is locked down: "+err.Error(), "run it as root")
	case strings.Contains(string(data), "[confidentiality]"):
		return failure("the kernel is locked down for confidentiality: it loads no BPF program that reads memory",
			"boot with lockdown=integrity or without (secure boot may set it)")
	}
	return ok("the kernel is not locked down for confidentiality")
}

// need is a capability that the daemon needs, and what for.
type need struct {
	set caps.Set
	why string
}

var (
	networkNeeds = []need{
		{caps.BPF, "to load programs and make maps"},
		{caps.NetAdmin, "to attach to interfaces"},
		{caps.Perfmon, "so that the kernel takes the program's arithmetic on packet pointers"},
	}
	// of a daemon that is root: another runs the HTTP gate as its own user
	httpNeeds = []need{
		{caps.SetUID, "to run the HTTP gate's process as another user"},
		{caps.SetGID, "to run the HTTP gate's process in another group"},
		{caps.Kill, "to end a process of the HTTP gate that hangs"},
	}
)

func lookAtCapabilities(p *Patient) []Finding {
	root := os.Geteuid() == 0
	needs := networkNeeds
	if p.Config != nil {
		if len(p.Config.Network.Interfaces) == 0 {
			needs = nil
		}
		if len(p.Config.HTTP.Listeners) > 0 && root && !p.running() {
			needs = append(slices.Clip(needs), httpNeeds...)
		}
	}
	if len(needs) == 0 {
		return ok("none needed: network.interfaces is empty")
	}
	have, whose, err := p.rights()
	if err != nil {
		return unseen("capabilities: "+err.Error(), "")
	}
	return capabilities(needs, have, whose, p.running(), root)
}

// rights are those of the daemon if it runs here, else of this process.
func (p *Patient) rights() (caps.Set, string, error) {
	if p.running() {
		status, err := os.ReadFile(filepath.Join(p.Proc, fmt.Sprint(p.Status.PID), "status"))
		for line := range strings.Lines(string(status)) {
			var set uint64
			if _, bad := fmt.Sscanf(line, "CapEff: %x", &set); bad == nil {
				return caps.Set(set), fmt.Sprintf("the daemon (pid %d)", p.Status.PID), nil
			}
		}
		return 0, "", fmt.Errorf("those of the daemon, pid %d, cannot be read: %w", p.Status.PID, err)
	}
	have, err := caps.Effective()
	return have, "this user", err
}

func capabilities(needs []need, have caps.Set, whose string, daemon, root bool) []Finding {
	if have&caps.SysAdmin != 0 {
		have |= caps.BPF | caps.Perfmon // as before Linux 5.8
	}
	var out []Finding
	for _, n := range needs {
		text := fmt.Sprintf("%s has %s, %s", whose, n.set, n.why)
		switch {
		case have&n.set != 0:
			out = append(out, ok(text)...)
		case daemon || root:
			text = fmt.Sprintf("%s lacks %s, %s", whose, n.set, n.why)
			out = append(out, failure(text, fmt.Sprintf("give the daemon %s (systemd: AmbientCapabilities=%s; Kubernetes: capabilities.add %s)", n.set, n.set, strings.TrimPrefix(n.set.String(), "CAP_")))...)
		default:
			out = append(out, unseen(fmt.Sprintf("%s lacks %s, %s: no fault, unless the daemon runs as this user", whose, n.set, n.why), "run doctor as the daemon's user")...)
		}
	}
	return out
}

// lookAtProgram lets the kernel check the program and make its maps, once, with
// the smallest table; nothing is pinned or attached. What a feature is called
// that the kernel lacks, its own answer tells.
func lookAtProgram(p *Patient) []Finding {
	if lacks, err := caps.Missing(caps.NetworkGate); err != nil || lacks != 0 {
		return unseen("whether the kernel takes the program", fmt.Sprintf("run doctor with %s", caps.NetworkGate))
	}
	g, err := maps.Open(maps.Options{Slots: 4096, Clock: maps.ClockExact})
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), "\n")
		return failure("the kernel does not take the program: "+text, "see the text above; the oldest supported kernel is Linux 6.1")
	}
	defer g.Close()
	cover, err := g.LoadCover()
	if err != nil {
		return warning("the kernel does not take the tc program that `headgate reattach` needs: "+err.Error(), "")
	}
	cover.Close()
	return ok("the kernel takes the program and its maps, and the tc program of reattach")
}
