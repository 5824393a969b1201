package live

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// What container engines leave to a container that drops no capability, and
// what they hide from each.
var (
	defaultCaps = []string{
		"CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
		"NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
	}
	masked = []string{
		"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

type object = map[string]any

// spec is config.json of the OCI runtime specification for a container of the
// manifest, as a Kubernetes node makes it.
func (p *pod) spec(c containerSpec, bundle string) object {
	p.h.t.Helper()
	args := c.Command
	if len(args) == 0 {
		args = entrypoint(p.h.t)
	}
	security := c.SecurityContext
	caps := capabilities(security.Capabilities.Drop, security.Capabilities.Add)
	linux := object{
		"cgroupsPath": "/" + p.id, "namespaces": p.namespaces(), "rootfsPropagation": "rslave",
		"maskedPaths": masked, "readonlyPaths": readonly,
		"resources": object{
			"devices": []object{{"allow": false, "access": "rwm"}},
			"memory":  object{"limit": memory(c.Resources.Limits.Memory)},
		},
	}
	if p.calls != nil {
		linux["seccomp"] = object{
			"defaultAction": "SCMP_ACT_ERRNO", "architectures": []string{},
			"syscalls": []object{{"names": p.calls, "action": "SCMP_ACT_ALLOW"}},
		}
	}
	return object{
		"ociVersion": "1.0.2",
		"process": object{
			"args": append(args[:len(args):len(args)], c.Args...), "cwd": "/", "env": []string{"PATH=/usr/bin:/bin"},
			"user":            object{"uid": security.RunAsUser, "gid": security.RunAsGroup},
			"capabilities":    object{"bounding": caps, "effective": caps, "permitted": caps},
			"noNewPrivileges": security.AllowPrivilegeEscalation != nil && !*security.AllowPrivilegeEscalation,
		},
		"root":   object{"path": "rootfs", "readonly": security.ReadOnlyRootFilesystem},
		"mounts": slices.Concat(ownMounts(), p.mounts(c, bundle), p.extra),
		"linux":  linux,
	}
}

// capabilities are what drop and add leave of the defaults.
func capabilities(drop, add []string) (caps []string) {
	for _, c := range defaultCaps {
		if !contains(drop, "ALL") && !contains(drop, c) {
			caps = append(caps, "CAP_"+c)
		}
	}
	for _, c := range add {
		caps = append(caps, "CAP_"+c)
	}
	return caps
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

func (p *pod) namespaces() []object {
	all := []object{{"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}}
	if p.m.Pod.HostNetwork {
		all[3]["path"] = p.h.net.Gate.Path()
	}
	if !p.m.Pod.HostPID {
		all = append(all, object{"type": "pid"})
	}
	return all
}

// memory is a Kubernetes quantity in bytes; -1 is no limit.
func memory(quantity string) int64 {
	for suffix, unit := range map[string]int64{"Mi": 1 << 20, "Gi": 1 << 30} {
		if digits, ok := strings.CutSuffix(quantity, suffix); ok {
			var n int64
			for _, d := range digits {
				n = 10*n + int64(d-'0')
			}
			return n * unit
		}
	}
	return -1
}

// ownMounts are those of every container.
func ownMounts() []object {
	return []object{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": []string{"nosuid", "noexec", "nodev", "ro"}},
	}
}

// mounts are the manifest's.
func (p *pod) mounts(c containerSpec, bundle string) (all []object) {
	p.h.t.Helper()
	for _, m := range c.VolumeMounts {
		options := []string{"rbind"}
		switch m.MountPropagation {
		case "", "None":
			options = append(options, "rprivate")
		case "HostToContainer":
			options = append(options, "rslave")
		case "Bidirectional":
			options = append(options, "rshared")
		default:
			p.h.t.Fatalf("mountPropagation %s", m.MountPropagation)
		}
		if m.ReadOnly {
			options = append(options, "ro")
		}
		all = append(all, object{"destination": m.MountPath, "type": "bind", "source": p.volume(m.Name, bundle), "options": options})
	}
	return all
}

// volume makes a volume and returns its folder on the host.
func (p *pod) volume(name, bundle string) string {
	p.h.t.Helper()
	dir := filepath.Join(bundle, "volumes", name)
	for _, v := range p.m.Pod.Volumes {
		if v.Name != name {
			continue
		}
		switch {
		case v.HostPath != nil && p.disks[v.HostPath.Path] != "":
			dir = p.disks[v.HostPath.Path]
		case v.ConfigMap != nil:
			p.project(dir, p.m.ConfigMaps[v.ConfigMap.Name])
		case v.EmptyDir == nil:
			p.h.t.Fatalf("volume %s: this test knows nothing like it", name)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			p.h.t.Fatal(err)
		}
		return dir
	}
	p.h.t.Fatalf("no volume %s", name)
	return ""
}

// project writes files as the kubelet does a ConfigMap's: through a symlink that
// is swapped for all files at once.
func (p *pod) project(dir string, files map[string]string) {
	p.h.t.Helper()
	old := syscall.Umask(0o022)
	defer syscall.Umask(old)
	data, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		data, err = os.MkdirTemp(data, "..version")
	}
	if err != nil {
		p.h.t.Fatal(err)
	}
	os.Chmod(data, 0o755)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o644); err != nil {
			p.h.t.Fatal(err)
		}
		os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)) // there already after the first time
	}
	fresh := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(data), fresh); err != nil {
		p.h.t.Fatal(err)
	}
	if err := os.Rename(fresh, filepath.Join(dir, "..data")); err != nil {
		p.h.t.Fatal(err)
	}
}
