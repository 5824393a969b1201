package live

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/internal/rig"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// occupy attaches a program to the gate's interface as others do: by netlink, or
// by a link that this process holds.
func (h *host) occupy(p *ebpf.Program, byLink bool) (id ebpf.ProgramID) {
	h.t.Helper()
	err := rig.Run(h.net.Gate, func() error {
		if byLink {
			l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: h.link.Gate.Index})
			if err == nil {
				h.t.Cleanup(func() { l.Close() })
			}
			return err
		}
		dev, err := netlink.LinkByIndex(h.link.Gate.Index)
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFdWithFlags(dev, p.FD(), nl.XDP_FLAGS_DRV_MODE)
	})
	if err != nil {
		h.t.Fatal(err)
	}
	info, err := p.Info()
	if err != nil {
		h.t.Fatal(err)
	}
	id, _ = info.ID()
	return id
}

// runs returns the program on an interface, as ip(8) shows it.
func (h *host) runs(iface string) string {
	_, program, _ := strings.Cut(h.gateIP("link show dev "+iface), "prog/xdp id ")
	id, _, _ := strings.Cut(program, " ")
	return id
}

// RC-044: a program of others, attached by netlink, by a link or by libxdp's
// dispatcher, stays whatever the daemon does; the message gives its id, name and
// tag, who holds it, and the command that would take it off. The other interface
// is filtered.
func TestForeignPrograms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		byLink bool
		says   []string
	}{
		{"somebodys", false, []string{"`ip link set dev IFACE xdpdrv off`"}},
		{"somebodys", true, []string{"`bpftool link detach id ", fmt.Sprintf("held by pid %d (", os.Getpid())}},
		{"xdp_dispatcher", false, []string{"`xdp-loader unload IFACE --all`"}},
	} {
		h := newHost(t, "network: {interfaces: [IFACE]}\n")
		p := passing(t, c.name)
		id := h.occupy(p, c.byLink)
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		always := []string{"attach " + h.link.Gate.Interface, "another XDP program", fmt.Sprintf("program id %d", id), "native beside generic neither", "never removes"}
		says := append([]string{fmt.Sprintf("program id %d, name %q, tag %s", id, c.name, info.Tag)}, always...)
		for _, s := range c.says {
			says = append(says, strings.ReplaceAll(s, "IFACE", h.link.Gate.Interface))
		}
		h.exits(1, says, "run")
		if left, _ := os.ReadDir(filepath.Join(h.pins, "links")); len(left) != 0 {
			t.Errorf("pinned: %v", left)
		}
		h.write("network: {interfaces: [free0]}\n")
		h.gateIP("link add free0 type veth peer name free1")
		h.start()
		h.awaitAttached("free0")
		h.write("network: {interfaces: [\"free*\", IFACE]}\n")
		// once started it may not look at others' programs any more
		h.exits(1, append(always, fmt.Sprintf("`bpftool prog show id %d` names it", id)), "reload")
		if h.iface("free0").ProgramID == 0 {
			t.Error("a reload that fails took the program off the other interface")
		}
		h.stop()
		if got := h.runs(h.link.Gate.Interface); got != fmt.Sprint(id) {
			t.Errorf("%s: program %q is on the interface, was %d", c.name, got, id)
		}
		h.gateIP("link del free0")
	}
}

// RC-044: a foreign program that comes while headgate's is away is told and left,
// and headgate's is back when it has gone.
func TestForeignProgramInBetween(t *testing.T) {
	t.Parallel()
	h := newHost(t, "network: {interfaces: [late0]}\n")
	h.start()
	p := passing(t, "somebodys")
	h.gateIP("link add late0 type veth peer name late1")
	h.awaitAttached("late0")
	h.gateIP("link set late0 netns " + h.link.Peer.NS.Name)
	h.faulty("late0 is not attached", "no such interface")
	set := func(ns *rig.Namespace, fd int) {
		t.Helper()
		err := rig.Run(ns, func() error {
			dev, err := netlink.LinkByName("late0")
			if err != nil {
				return err
			}
			return netlink.LinkSetXdpFdWithFlags(dev, fd, nl.XDP_FLAGS_SKB_MODE)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	set(h.link.Peer.NS, p.FD())
	if out, err := rig.Command(h.link.Peer.NS, "ip", "link", "set", "late0", "netns", h.net.Gate.Name).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	h.gateIP("link set late0 up") // the kernel tells of changes of what is up
	h.faulty("late0 is not attached", "another XDP program is there", "bpftool prog show id", "xdpgeneric off")
	set(h.net.Gate, -1)
	h.awaitAttached("late0")
	h.ready()
	h.gateIP("link del late0")
}

// RC-034, RC-137: a second daemon with pins of its own is refused, and told of
// the first; with the first dead, of its pins, which it can take over. Either
// way there is one program, and what is changed bites.
func TestTwoDaemonsWithTheirOwnPins(t *testing.T) {
	t.Parallel()
	first := newHost(t, "network: {interfaces: [IFACE]}\n")
	first.start()
	second := &host{t: t, net: first.net, link: first.link, dir: t.TempDir(), pins: filepath.Join(rig.BPFFS(t), "headgate")}
	t.Cleanup(second.kill)
	second.write("network: {interfaces: [IFACE]}\n")
	second.exits(1, []string{"attach " + first.link.Gate.Interface, fmt.Sprintf("already running pid %d (", first.status().PID), first.config(), first.pins}, "run")
	if i := first.iface(first.link.Gate.Interface); i.ProgramID == 0 || !first.status().Ready {
		t.Errorf("the first daemon's interface is %+v", i)
	}
	program := first.iface(first.link.Gate.Interface).ProgramID
	first.kill()
	second.exits(1, []string{"a headgate whose daemon is dead left its program there", first.pins + "/links/" + first.link.Gate.Interface, "set state.pins to " + first.pins}, "run")
	second.pins = first.pins
	second.write("network: {interfaces: [IFACE]}\n")
	second.start()
	if i := second.iface(first.link.Gate.Interface); i.ProgramID == 0 || i.ProgramID == program {
		t.Errorf("taken over as %+v, the first had program %d", i, program)
	}
	second.do("block", "203.0.113.9", "--for", "1m")
	r := rig.Receive(t, first.link)
	first.flow(1000, 50*time.Millisecond, first.packet("203.0.113.9", 80))()
	if n := r.Stop(t).From(netip.MustParseAddr("203.0.113.9")).Packets; n != 0 {
		t.Errorf("%d packets of a blocked source were delivered", n)
	}
	second.kill()
}

// RC-137: a program of an older headgate that was attached without a link is
// taken off, and ours put on.
func TestOldProgramWithoutALink(t *testing.T) {
	t.Parallel()
	h := newHost(t, "network: {interfaces: [IFACE]}\n")
	old := h.occupy(passing(t, "headgate"), false)
	h.start()
	if i := h.iface(h.link.Gate.Interface); i.ProgramID == 0 || i.ProgramID == uint32(old) || h.runs(h.link.Gate.Interface) != fmt.Sprint(i.ProgramID) {
		t.Errorf("attached as %+v, the old program was %d", i, old)
	}
	if h.logged("attached without a link", fmt.Sprint(old)) != 1 {
		t.Errorf("log:\n%s", h.log)
	}
}

// RC-034: killed at any point of start, reload and stop, the next start comes up
// with one program on the interface and one pin, and never detaches.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	h := newHost(t, "network: {interfaces: [IFACE]}\nblock: [203.0.113.9]\n")
	h.start()
	pin := h.iface(h.link.Gate.Interface).Pin
	h.kill()
	r := rig.Receive(t, h.link)
	kills := often(12, 50)
	flood := h.flow(500, time.Duration(kills)*700*time.Millisecond, h.packet("203.0.113.9", 80))
	for range kills {
		h.launch()
		time.Sleep(rand.N(900 * time.Millisecond)) // any point
		switch rand.N(3) {
		case 0:
			h.try("reload")
		case 1:
			h.cmd.Process.Signal(os.Interrupt)
			time.Sleep(rand.N(20 * time.Millisecond))
		}
		h.kill()
		if h.runs(h.link.Gate.Interface) == "" {
			t.Fatalf("no program is left:\n%s", h.log)
		}
	}
	h.start()
	i := h.iface(h.link.Gate.Interface)
	if i.Pin != pin || fmt.Sprint(i.ProgramID) != h.runs(h.link.Gate.Interface) || !h.status().Ready {
		t.Errorf("attached as %+v, the kernel runs %s", i, h.runs(h.link.Gate.Interface))
	}
	if left, err := os.ReadDir(filepath.Dir(pin)); err != nil || len(left) != 1 {
		t.Errorf("pinned: %v, %v", left, err)
	}
	flood()
	if n := r.Stop(t).From(netip.MustParseAddr("203.0.113.9")).Packets; n != 0 {
		t.Errorf("%d packets of a blocked source were delivered", n)
	}
}

// RC-034: what was attached in generic mode stays so when the config asks for
// native, and the command that changes it is told.
func TestLeftoverInAnotherMode(t *testing.T) {
	t.Parallel()
	h := newHost(t, "network: {interfaces: [IFACE], attach_mode: generic}\n")
	h.start()
	h.kill()
	h.write("network: {interfaces: [IFACE], attach_mode: native}\n")
	h.start()
	gate := h.link.Gate.Interface
	cure := "`headgate reattach " + gate + "`"
	if i := h.iface(gate); i.AttachMode != "generic" || !strings.Contains(i.Warning, cure) || !strings.Contains(h.do("status"), cure) {
		t.Errorf("attached as %+v", i)
	}
	h.do("reattach", gate)
	if i := h.iface(gate); i.AttachMode != "native" || i.Warning != "" {
		t.Errorf("after reattach: %+v", i)
	}
}
