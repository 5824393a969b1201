package live

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/internal/rig"
)

// passing loads a program that passes everything; in the kernel it has that
// name.
func passing(t *testing.T, name string) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// tampering is what others may do to what headgate has attached.
type tampering struct {
	what  string
	do    func(*host)
	kind  string   // of the repair
	fault []string // what status says without repair
	whole bool     // without repair, filtering goes on all the same
}

func tamperings(t *testing.T) []tampering {
	pinned := func(h *host) link.Link {
		l, err := link.LoadPinnedLink(filepath.Join(h.pins, "links", h.link.Gate.Interface), nil)
		if err != nil {
			h.t.Fatal(err)
		}
		return l
	}
	return []tampering{
		{"pin removed", func(h *host) {
			if err := os.Remove(filepath.Join(h.pins, "links", h.link.Gate.Interface)); err != nil {
				h.t.Fatal(err)
			}
		}, "pins", []string{"the pin", "was removed"}, true},
		{"map's pin removed", func(h *host) {
			found, err := filepath.Glob(filepath.Join(h.pins, "v*", "buckets"))
			if err != nil || len(found) != 1 {
				h.t.Fatalf("pins of the bucket table: %v %v", found, err)
			}
			if err := os.Remove(found[0]); err != nil {
				h.t.Fatal(err)
			}
		}, "pins", []string{"the pins of 1 maps were removed, buckets the first"}, true},
		{"all pins removed", func(h *host) {
			// in one step: the daemon pins again while they go one by one
			if err := os.Rename(h.pins, h.pins+"_gone"); err != nil {
				h.t.Fatal(err)
			}
			if err := os.RemoveAll(h.pins + "_gone"); err != nil {
				h.t.Fatal(err)
			}
		}, "pins", []string{"was removed with all pins"}, true},
		{"link detached", func(h *host) {
			l := pinned(h)
			defer l.Close()
			info, err := l.Info()
			if err != nil {
				h.t.Fatal(err)
			}
			if out, err := exec.Command("bpftool", "link", "detach", "id", fmt.Sprint(info.ID)).CombinedOutput(); err != nil {
				h.t.Fatalf("bpftool link detach: %v %s", err, out)
			}
		}, "link", []string{"is not attached", "detached by force, as `bpftool link detach` does"}, false},
		{"program swapped", func(h *host) {
			l := pinned(h)
			defer l.Close()
			if err := l.Update(passing(t, "impostor")); err != nil {
				h.t.Fatal(err)
			}
		}, "program", []string{"another program", "was put in the place of headgate's"}, false},
	}
}

// RC-047: what others take away is noticed and put back, and the repair is told
// in status, metric and log. `ip link set xdp off` takes nothing away.
func TestRepairs(t *testing.T) {
	t.Parallel()
	h := newHost(t, "network: {interfaces: [IFACE]}\nblock: [203.0.113.9]\n")
	h.start()
	gate := h.link.Gate.Interface
	for _, off := range []string{"xdp", "xdpdrv", "xdpgeneric"} {
		rig.Command(h.net.Gate, "ip", "link", "set", "dev", gate, off, "off").Run()
	}
	if i := h.iface(gate); i.ProgramID == 0 || i.AttachMode != "native" {
		t.Errorf("after ip link set xdp off: %+v", i)
	}
	for _, c := range tamperings(t) {
		before := h.status().Network.Repaired[c.kind]
		c.do(h)
		h.await(c.what+": the repair", func() bool { return h.status().Network.Repaired[c.kind] > before })
		h.ready()
		if last := h.status().Network.Repairs; len(last) == 0 || last[len(last)-1].Kind != c.kind || h.logged("repaired", last[len(last)-1].What) == 0 {
			t.Errorf("%s: told as %+v", c.what, last)
		}
	}
	r := rig.Receive(t, h.link)
	h.flow(1000, 100*time.Millisecond, h.packet("203.0.113.9", 80))()
	if n := r.Stop(t).From(netip.MustParseAddr("203.0.113.9")).Packets; n != 0 {
		t.Errorf("%d packets of a blocked source were delivered after all repairs", n)
	}
	program := h.iface(gate).ProgramID
	h.kill()
	h.start() // it finds all pins, and adopts what they lead to
	if i := h.iface(gate); i.ProgramID == 0 || i.ProgramID == program {
		t.Errorf("after a restart: %+v, before program %d", i, program)
	}
	if n := h.logged("msg=attached"); n != 2 { // at first, and after the link was detached
		t.Errorf("attached %d times:\n%s", n, h.log)
	}
}

// RC-047: with network.repair off all of it is told, and left as it is until a
// reload. Where only pins are missing, filtering goes on.
func TestTellsWithoutRepair(t *testing.T) {
	t.Parallel()
	h := newHost(t, "network: {interfaces: [IFACE], repair: false}\nblock: [203.0.113.9]\n")
	h.start()
	// passed is how many of some packets of a blocked source are delivered
	passed := func() (n, of uint64) {
		t.Helper()
		r := rig.Receive(t, h.link)
		sent := h.flow(1000, 50*time.Millisecond, h.packet("203.0.113.9", 80))()
		return r.Stop(t).From(netip.MustParseAddr("203.0.113.9")).Packets, sent.Packets
	}
	for _, c := range tamperings(t) {
		c.do(h)
		h.faulty(append(c.fault, "network.repair is off", "headgate reload")...)
		if n, of := passed(); c.whole && n != 0 || !c.whole && n != of {
			t.Errorf("%s: %d of %d packets of a blocked source were delivered", c.what, n, of)
		}
		h.do("reload")
		h.ready()
		if n, of := passed(); n != 0 {
			t.Errorf("%s: %d of %d packets of a blocked source were delivered after a reload", c.what, n, of)
		}
	}
}

// RC-047: a mount over the bpffs hides the pins. With another bpffs there all is
// pinned in it; with something else, that is told; filtering goes on, and when
// the mount has gone all is well. The daemon has a mount namespace of its own.
func TestMountOverBPFFS(t *testing.T) {
	t.Parallel()
	h := newHost(t, "network: {interfaces: [IFACE]}\nblock: [203.0.113.9]\n")
	h.as = []string{"unshare", "--mount", "--propagation", "private"}
	h.start()
	inside := func(words string) {
		t.Helper()
		args := append([]string{"-t", fmt.Sprint(h.status().PID), "-m", "--"}, strings.Fields(words)...)
		if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", words, err, out)
		}
	}
	inside("mount -t tmpfs tmpfs /sys/fs/bpf")
	h.faulty("out of sight", "mounted over it", "filtering goes on")
	if i := h.iface(h.link.Gate.Interface); i.ProgramID == 0 {
		t.Errorf("the interface is %+v", i)
	}
	inside("umount /sys/fs/bpf")
	h.ready()
	inside("mount -t bpf bpf /sys/fs/bpf")
	h.await("everything to be pinned in the other bpffs", func() bool { return h.status().Network.Repaired["pins"] == 1 })
	if h.logged("repaired", "out of sight", "mounted over it: pinned again") == 0 {
		t.Errorf("the log does not say why it pinned again:\n%s", h.log)
	}
	h.ready()
	inside("ls " + filepath.Join(h.pins, "links", h.link.Gate.Interface))
	inside("umount --lazy /sys/fs/bpf") // the daemon holds its folder there open
	h.await("everything to be pinned where it was", func() bool { return h.status().Network.Repaired["pins"] == 2 })
	h.ready()
	inside("ls " + filepath.Join(h.pins, "links", h.link.Gate.Interface))
	r := rig.Receive(t, h.link)
	h.flow(1000, 100*time.Millisecond, h.packet("203.0.113.9", 80))()
	if n := r.Stop(t).From(netip.MustParseAddr("203.0.113.9")).Packets; n != 0 {
		t.Errorf("%d packets of a blocked source were delivered", n)
	}
	h.kill() // the namespace and its bpffs go with it
}
