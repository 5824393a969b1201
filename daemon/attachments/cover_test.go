package attachments

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/maps"
	"github.com/vishvananda/netlink"
)

// coverings are the ways to put a tc program on an interface: what this kernel
// has, and what older ones have.
var coverings = map[string]func(*ebpf.Program, netlink.Link, string) error{
	"tcx": coverTCX, "clsact": coverClsact,
}

// coversAt says by which ways an interface is covered, as the kernel sees it.
func coversAt(iface string) (string, error) {
	dev, err := netlink.LinkByName(iface)
	if err != nil {
		return "", err
	}
	var ways []string
	programs, err := link.QueryPrograms(link.QueryOptions{Target: dev.Attrs().Index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return "", err
	}
	for range programs.Programs {
		ways = append(ways, "tcx")
	}
	filters, err := netlink.FilterList(dev, netlink.HANDLE_MIN_INGRESS)
	for range filters {
		ways = append(ways, "clsact")
	}
	return strings.Join(ways, ", "), err
}

// A daemon that was killed between the two programs leaves a cover behind, with
// no XDP program. Attaching again removes it, and so does taking all off.
func TestCoverIsRemoved(t *testing.T) {
	for name, put := range coverings {
		t.Run(name, func(t *testing.T) {
			n := rig.Net(t)
			pins := filepath.Join(rig.BPFFS(t), "headgate")
			iface := n.Links[0].Gate.Interface
			inside := func(what string, do func() error) {
				t.Helper()
				if err := rig.Run(n.Gate, do); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			shown := func() (out string) {
				inside("look", func() (err error) {
					out, err = coversAt(iface)
					return err
				})
				return out
			}
			g, err := maps.Open(maps.Options{Pins: pins, Slots: 4096})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			left := func() error {
				dev, err := netlink.LinkByName(iface)
				if err != nil {
					return err
				}
				p, err := g.LoadCover()
				if err != nil {
					return err
				}
				defer p.Close()
				if err := os.MkdirAll(coverDir(pins), 0o700); err != nil {
					return err
				}
				return put(p, dev, coverPin(pins, iface))
			}
			for what, remove := range map[string]func() error{
				"attach": func() error {
					dev, err := netlink.LinkByName(iface)
					if err != nil {
						return err
					}
					h, err := attach(g.Program, pins, nicOf(dev), config.AttachAuto)
					if err == nil {
						h.close()
					}
					return err
				},
				"cover again and uncover": func() error {
					dev, err := netlink.LinkByName(iface)
					if err != nil {
						return err
					}
					return errors.Join(cover(g, pins, dev), uncoverAll(pins))
				},
				"detach": func() error { _, err := DetachAll(pins); return err },
				"a start with the gate off": func() error {
					return (&Keeper{log: slog.New(slog.DiscardHandler)}).dropPinned(&config.Config{State: config.State{Pins: pins}})
				},
			} {
				inside("cover", left)
				if out := shown(); out != name {
					t.Errorf("covered by %q", out)
				}
				if names, err := Covered(pins); err != nil || len(names) != 1 || names[0] != iface {
					t.Errorf("covered are %v, %v", names, err)
				}
				inside(what, remove)
				if out := shown(); out != "" {
					t.Errorf("after %s: %s", what, out)
				}
				if pinned, _ := os.ReadDir(coverDir(pins)); len(pinned) != 0 {
					t.Errorf("after %s: pinned %v", what, pinned)
				}
			}
		})
	}
}

// The tc program stands where the kernel has taken the outermost tag out of the
// frame, and where TCP segments come joined, their payload outside the first
// buffer: rules by VLAN match all the same, and bytes are counted in full.
func TestCoverSeesTagsAndJoinedSegments(t *testing.T) {
	n := rig.Net(t)
	at := n.Links[0]
	pins := filepath.Join(rig.BPFFS(t), "headgate")
	g, err := maps.Open(maps.Options{Slots: 4096, Pins: pins})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var rules []config.Rule
	for _, text := range []string{
		`{name: guests, match: {vlan: 10}, per: source, rate: 1000000/s}`,
		`{name: web, match: {protocol: tcp, ports: [8080]}, per: source, rate: 100Gbit/s}`,
	} {
		r, err := config.ParseRule("rule", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	if err := g.SetRules(rules, config.Management{}, nil); err != nil {
		t.Fatal(err)
	}
	inside := func(do func() error) {
		t.Helper()
		if err := rig.Run(n.Gate, do); err != nil {
			t.Fatal(err)
		}
	}
	inside(func() error {
		dev, err := netlink.LinkByName(at.Gate.Interface)
		if err != nil {
			return err
		}
		return cover(g, pins, dev)
	})
	defer inside(func() error { return uncoverAll(pins) })

	const packets = 100
	tagged := at.UDP(netip.MustParseAddr("203.0.113.5"), 9000)
	tagged.Tags = []rig.Tag{{ID: 10}}
	frame := tagged.MustFrame()
	r := rig.Receive(t, at)
	if _, err := rig.Send(t.Context(), at.Peer, rig.Stream{Frames: [][]byte{frame}, Count: packets, Rate: 10000}); err != nil {
		t.Fatal(err)
	}
	r.Stop(t)
	const payload = 4 << 20
	if got := transfer(t, n, payload); got != payload {
		t.Errorf("%d of %d bytes arrived", got, payload)
	}
	counted, err := g.RuleCounters()
	if err != nil {
		t.Fatal(err)
	}
	if c := counted["guests"]; c.PassedPackets != packets || c.PassedBytes != packets*uint64(len(frame)) {
		t.Errorf("of %d tagged frames of %d bytes were counted %+v", packets, len(frame), c)
	}
	if c := counted["web"]; c.PassedBytes < payload || c.RefusedPackets != 0 {
		t.Errorf("of a transfer of %d bytes were counted %+v", payload, c)
	}
}

// transfer sends bytes by TCP from the peer to the gate's port 8080, and returns
// how many came.
func transfer(t *testing.T, n *rig.Network, size int) (got int64) {
	t.Helper()
	ln, err := rig.Listen(n.Gate, "tcp", n.Links[0].Gate.IPv4.String()+":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan int64, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			done <- 0
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		done <- n
	}()
	err = rig.Run(n.Links[0].Peer.NS, func() error {
		c, err := net.DialTimeout("tcp", ln.Addr().String(), 10*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(make([]byte, size))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return <-done
}
