package caps

import (
	"bytes"
	"os"
	"strings"
)

// WhyRefused says what else may have made the kernel refuse with EPERM what a
// process with all capabilities asked: one line, the likeliest first. (The
// limit on locked memory does not count for BPF since Linux 5.11.)
func WhyRefused() string {
	uids, _ := os.ReadFile("/proc/self/uid_map")
	status, _ := os.ReadFile("/proc/self/status")
	lockdown, _ := os.ReadFile("/sys/kernel/security/lockdown")
	return whyRefused(uids, status, lockdown)
}

func whyRefused(uids, status, lockdown []byte) string {
	// a user namespace of its own: its capabilities are worth nothing outside
	if f := bytes.Fields(uids); len(f) > 0 && (len(f) != 3 || string(f[1]) != "0" || string(f[2]) != "4294967295") {
		return "no capability is missing, but this is a user namespace of its own: run headgate in the host's"
	}
	for line := range strings.Lines(string(status)) {
		if mode, ok := strings.CutPrefix(line, "Seccomp:"); ok && strings.TrimSpace(mode) == "2" {
			return "no capability is missing, but a seccomp filter is in force: allow bpf(2) in it, or run with seccomp profile Unconfined"
		}
	}
	if bytes.Contains(lockdown, []byte("[confidentiality]")) {
		return "no capability is missing, but the kernel is locked down for confidentiality: see /sys/kernel/security/lockdown"
	}
	return "no capability is missing: a security module (SELinux, AppArmor) may refuse it, see the kernel log"
}
