package daemon

import (
	"fmt"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon/preflight"
)

// pinsEnd says why what is pinned may end before the host does: in a container
// that has a bpffs of its own, the filter goes with the container. Empty: it
// outlives the daemon and its container, or nothing is pinned.
func pinsEnd(cfg *config.Config) string {
	if len(cfg.Network.Interfaces) == 0 {
		return ""
	}
	p, err := preflight.LookAtPins("/proc", cfg.State.Pins)
	if err != nil || p.Mount.Type != "bpf" || p.Survives {
		return ""
	}
	is := "seems to be"
	if p.Sure {
		is = "is"
	}
	return fmt.Sprintf("pins will not survive this container: the bpffs on %s %s its own, so the filter ends with it (mount the host's /sys/fs/bpf into it, with mountPropagation: HostToContainer)", p.Mount.Point, is)
}
