package attachments

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/logbuffer"
	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/maps"
	"github.com/vishvananda/netlink"
)

// darkHost is a namespace whose gateway is a known neighbour, and a Keeper in it.
type darkHost struct {
	t      *testing.T
	net    *rig.Network
	keeper *Keeper
	log    *logbuffer.Buffer
	cfg    *config.Config
	iface  string
}

func newDarkHost(t *testing.T) *darkHost {
	t.Helper()
	h := &darkHost{t: t, net: rig.Net(t), log: &logbuffer.Buffer{}}
	h.iface = h.net.Links[0].Gate.Interface
	pins := filepath.Join(rig.BPFFS(t), "headgate")
	var err error
	h.cfg, err = config.Parse("c", []byte("version: 1\nnetwork: {interfaces: ["+h.iface+"]}\nstate: {pins: "+pins+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	h.keeper = New(Owner{
		Log: slog.New(slog.NewTextHandler(h.log, nil)), Lock: &sync.Mutex{},
		Config: func() *config.Config { return h.cfg },
		Moved:  func(Surroundings) error { return nil },
	})
	if err := h.keeper.Claim(pins); err != nil {
		t.Fatal(err)
	}
	g, err := maps.Open(maps.Options{Pins: pins, Slots: 4096})
	if err != nil {
		t.Fatal(err)
	}
	h.keeper.Use(g)
	t.Cleanup(func() {
		h.keeper.Release()
		g.Close()
		if _, err := DetachAll(pins); err != nil {
			t.Error(err)
		}
	})
	h.greet()
	return h
}

// greet makes the gateway a known neighbour.
func (h *darkHost) greet() {
	h.t.Helper()
	peer := h.net.Links[0].Peer.IPv4.String()
	if out, err := rig.Command(h.net.Gate, "bash", "-c", "echo hello > /dev/udp/"+peer+"/9").CombinedOutput(); err != nil {
		h.t.Fatalf("%v %s", err, out)
	}
	await.For(h.t, "the gateway is a known neighbour", func() (known bool) {
		h.inside(func() error {
			dev, err := netlink.LinkByName(h.iface)
			known = err == nil && len(h.keeper.gatewaysOf(nicOf(dev))) > 0
			return err
		})
		return known
	})
}

func (h *darkHost) inside(do func() error) {
	h.t.Helper()
	if err := rig.Run(h.net.Gate, do); err != nil {
		h.t.Fatal(err)
	}
}

// attach is a start or a reload, and the check that it asks for.
func (h *darkHost) attach(patience time.Duration) {
	h.t.Helper()
	h.inside(func() error {
		if err := h.start(); err != nil {
			return err
		}
		if len(h.keeper.checks) != 1 {
			h.t.Fatalf("%d checks are asked for, want 1", len(h.keeper.checks))
		}
		check := h.keeper.checks[0]
		h.keeper.checks = nil
		h.keeper.checkGateway(context.Background(), check, patience)
		return nil
	})
}

// attached is the id of the program on the interface, 0 for none.
func (h *darkHost) attached() (id uint32) {
	h.t.Helper()
	h.inside(func() error {
		dev, err := netlink.LinkByName(h.iface)
		if err == nil {
			id = nicOf(dev).programID
		}
		return err
	})
	return id
}

func (h *darkHost) start() error {
	h.keeper.Forgive()
	_, err := h.keeper.Start(h.cfg)
	return err
}

func (h *darkHost) status() (s State, faults []string) {
	h.t.Helper()
	h.inside(func() error { s = h.keeper.States()[0]; return nil })
	return s, h.keeper.NotFiltered()
}

// dropping is a driver that loses every packet once a program is attached.
func dropping(t *testing.T) programs {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "drops_all", Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return func(bool) *ebpf.Program { return p }
}

// RC-042: with a program under which the gateway does not answer any more, the
// host is brought back by taking it off, which is told, and holds until a
// reload. With the gate's own program the gateway answers, and it stays.
func TestSelfCheck(t *testing.T) {
	h := newDarkHost(t)
	h.keeper.stub = dropping(t)
	h.attach(4 * time.Second)
	if id := h.attached(); id != 0 {
		t.Errorf("program %d is still attached", id)
	}
	i, faults := h.status()
	if len(faults) != 1 || i.ProgramID != 0 || !strings.Contains(faults[0], "gateway 10.0.0.2") || !strings.Contains(faults[0], "without it it does") {
		t.Errorf("status: %+v %q", i, faults)
	}
	if !strings.Contains(h.log.String(), "self-check: the gateway does not answer any more: detaching") {
		t.Errorf("log: %s", h.log)
	}
	h.inside(func() error { h.keeper.reconcile(nil); return nil })
	if id := h.attached(); id != 0 {
		t.Errorf("program %d was attached again without a reload", id)
	}
	h.keeper.stub = nil
	h.greet()
	h.attach(30 * time.Second)
	if i, faults := h.status(); len(faults) != 0 || i.ProgramID == 0 || h.attached() != i.ProgramID {
		t.Errorf("after a reload with a program that passes: %+v %q", i, faults)
	}
}

// RC-042: a gateway that dies by itself while a program is attached does not
// leave the host without its filter.
func TestSelfCheckOfADeadGateway(t *testing.T) {
	h := newDarkHost(t)
	peer := h.net.Links[0].Peer
	if out, err := rig.Command(peer.NS, "ip", "addr", "flush", "dev", peer.Interface).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	h.attach(1500 * time.Millisecond)
	if i, faults := h.status(); len(faults) != 0 || i.ProgramID == 0 || h.attached() != i.ProgramID {
		t.Errorf("status: %+v %q", i, faults)
	}
	if !strings.Contains(h.log.String(), "does not answer without the program either: attaching again") || len(h.keeper.checks) != 0 {
		t.Errorf("%d more checks; log: %s", len(h.keeper.checks), h.log)
	}
}
