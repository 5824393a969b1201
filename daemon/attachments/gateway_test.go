package attachments

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/rig"
)

// RC-007 (gateway): the default gateways are asked of the kernel when a block is
// asked for, also several of one route, and routes to elsewhere are none.
func TestDefaultGateways(t *testing.T) {
	n := rig.Net(t)
	ip := func(args ...string) {
		t.Helper()
		if out, err := rig.Command(n.Gate, "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("no ip command: install iproute2")
	}
	dev := n.Links[0].Gate.Interface
	gateways := func() (out []string) {
		t.Helper()
		err := rig.Run(n.Gate, func() error {
			all, err := DefaultGateways()
			for _, a := range all {
				out = append(out, a.String())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(out)
		return out
	}
	expect := func(want ...string) {
		t.Helper()
		if got := gateways(); !slices.Equal(got, want) {
			t.Errorf("gateways %v, want %v", got, want)
		}
	}
	ip("-4", "route", "flush", "default")
	ip("-6", "route", "flush", "default")
	ip("address", "add", "192.0.2.2/24", "dev", dev)
	ip("-6", "address", "add", "2001:db8:f::2/64", "dev", dev, "nodad")
	ip("route", "add", "129.0.0.0/8", "via", "192.0.2.9")
	expect()
	ip("route", "add", "default", "via", "192.0.2.1")
	ip("-6", "route", "add", "default", "via", "2001:db8:f::1")
	expect("192.0.2.1", "2001:db8:f::1")
	ip("route", "replace", "default", "nexthop", "via", "192.0.2.7", "nexthop", "via", "192.0.2.8")
	expect("192.0.2.7", "192.0.2.8", "2001:db8:f::1")
}
