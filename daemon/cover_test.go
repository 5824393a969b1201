package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
				"detach": func() error { return DetachAll(pins) },
			} {
				inside("cover", left)
				if out := shown(); out != name {
					t.Errorf("covered by %q", out)
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
