package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/headgate/headgate/internal/rig"
)

// pod runs the containers of a manifest with runc: the security context, the
// mounts and the arguments are the manifest's, the host's folders are the
// test's, and the host's network is the gate's namespace.
type pod struct {
	h     *host
	m     manifest
	dir   string
	disks map[string]string // the host's folder in the place of a hostPath
	id    string
	log   *os.File
	calls []string // the system calls that are allowed; nil: all
	extra []object // mounts that the manifest does not have
	node  *exec.Cmd
}

var pods atomic.Uint64

// newPod makes a pod whose daemon h's command line reaches.
func newPod(h *host, m manifest) *pod {
	h.t.Helper()
	if _, err := exec.LookPath("runc"); err != nil {
		h.t.Skip("needs runc (deploy/packages test)")
	}
	dir := h.t.TempDir()
	p := &pod{h: h, m: m, dir: dir, disks: map[string]string{
		"/sys/fs/bpf":       filepath.Dir(h.pins),
		"/run/headgate":     h.dir,
		"/var/lib/headgate": filepath.Join(dir, "state"),
	}}
	var err error
	if p.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		h.t.Fatal(err)
	}
	p.boot()
	h.t.Cleanup(func() {
		p.remove()
		p.node.Process.Kill()
		p.node.Wait()
		if h.t.Failed() {
			h.t.Logf("the pod's log:\n%s", p.logged())
		}
		p.log.Close()
	})
	return p
}

func (p *pod) logged() string {
	text, _ := os.ReadFile(p.log.Name())
	return string(text)
}

// boot starts what stands for the node: a process whose mounts are shared, as
// systemd makes a host's.
func (p *pod) boot() {
	p.h.t.Helper()
	p.node = exec.Command("unshare", "--mount", "--propagation", "shared", "--", "sleep", "infinity")
	p.node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.node.Start(); err != nil {
		p.h.t.Fatal(err)
	}
	p.h.await("the node's mounts", func() bool {
		name, _ := os.ReadFile(p.proc("comm"))
		return strings.TrimSpace(string(name)) == "sleep"
	})
}

// proc is a file of the node's process in /proc.
func (p *pod) proc(name string) string {
	return filepath.Join("/proc", strconv.Itoa(p.node.Process.Pid), name)
}

// runc prepares a runc on the node.
func (p *pod) runc(args ...string) *exec.Cmd {
	line := []string{"--mount=" + p.proc("ns/mnt"), "--", "runc", "--root", filepath.Join(p.dir, "runc")}
	return exec.Command("nsenter", append(line, args...)...)
}

// run starts one container. With wait it returns when the container ended, with
// its exit code as an error.
func (p *pod) run(c containerSpec, wait bool) error {
	p.h.t.Helper()
	p.remove()
	p.id = fmt.Sprintf("headgate-test-%d-%d", os.Getpid(), pods.Add(1))
	bundle := filepath.Join(p.dir, p.id)
	p.unpack(filepath.Join(bundle, "rootfs"))
	text, err := json.Marshal(p.spec(c, bundle))
	if err != nil {
		p.h.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600); err != nil {
		p.h.t.Fatal(err)
	}
	args := []string{"run", "--bundle", bundle, p.id}
	if !wait {
		args = slices.Insert(args, 1, "--detach")
	}
	cmd := p.runc(args...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	return cmd.Run()
}

// start runs the pod's one container until it is ready.
func (p *pod) start() {
	p.h.t.Helper()
	c := p.m.Pod.Containers[0]
	if err := p.run(c, false); err != nil {
		p.h.t.Fatalf("start the container: %v\n%s", err, p.logged())
	}
	p.h.await("the readiness probe", func() bool {
		if p.state() != "running" {
			p.h.t.Fatalf("the container ended:\n%s", p.logged())
		}
		return p.probe(c.ReadinessProbe) == nil
	})
}

// probe asks what the kubelet, on the host's network, would.
func (p *pod) probe(on *probe) error {
	client := rig.HTTPClient(p.h.net.Gate, netip.Addr{})
	defer client.CloseIdleConnections()
	get := on.HTTPGet
	resp, err := client.Get(fmt.Sprintf("http://%s:%d%s", get.Host, get.Port, get.Path))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", get.Path, resp.Status)
	}
	return nil
}

// state is the container's as runc sees it.
func (p *pod) state() string {
	s, _ := p.inspect()
	return s
}

func (p *pod) inspect() (status string, pid int) {
	out, err := p.runc("state", p.id).Output()
	var st struct {
		Status string `json:"status"`
		PID    int    `json:"pid"`
	}
	if err != nil || json.Unmarshal(out, &st) != nil {
		return "gone", 0
	}
	return st.Status, st.PID
}

// signal sends a signal to the container's first process and waits for its end.
func (p *pod) signal(s syscall.Signal) {
	p.h.t.Helper()
	_, pid := p.inspect()
	if pid == 0 {
		p.h.t.Fatalf("no container to end:\n%s", p.logged())
	}
	if err := syscall.Kill(pid, s); err != nil {
		p.h.t.Fatal(err)
	}
	p.h.await("the container to end", func() bool { return p.state() != "running" })
}

// remove deletes the container, whatever it does.
func (p *pod) remove() {
	if p.id != "" {
		p.runc("delete", "--force", p.id).Run()
	}
}

// exec runs the binary in the running container, as kubectl exec does.
func (p *pod) exec(args ...string) (string, error) {
	line := append([]string{"exec", p.id}, entrypoint(p.h.t)...)
	out, err := p.runc(append(line, args...)...).CombinedOutput()
	return string(out), err
}

// unpack makes the image's root: the binary alone.
func (p *pod) unpack(root string) {
	p.h.t.Helper()
	if image := os.Getenv("HEADGATE_IMAGE"); image != "" {
		unpackImage(p.h.t, image, root)
		return
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		p.h.t.Fatal(err)
	}
	if err := os.Link(binary, filepath.Join(root, entrypoint(p.h.t)[0])); err != nil {
		p.h.t.Fatal(err)
	}
}
