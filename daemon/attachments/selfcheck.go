package attachments

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/config"
)

// Some drivers lose every packet once an XDP program is attached, and cloud
// hosts went dark that way. So a gateway that was a known neighbour before must
// answer after: if it does not, and does again without the program, the program
// stays off until a reload.

const (
	// gatewayPatience is how long a gateway may take to answer; drivers that
	// reset their queues take seconds.
	gatewayPatience = 5 * time.Second
	gatewayStep     = 100 * time.Millisecond
	// gatewayAgain is how often it is asked: the kernel gives up after three
	// solicitations, a second apart.
	gatewayAgain = time.Second
)

// gateway is the neighbour that a default route leads to.
type gateway struct {
	index int
	addr  netip.Addr
	mac   net.HardwareAddr
}

// gatewayCheck is due after an interface was attached for the first time.
type gatewayCheck struct {
	hold     *hold
	gateways []gateway
}

// gatewaysOf returns the gateways of an interface that is to be attached, as far
// as they are known neighbours. Without one there is nothing to check.
func (k *Keeper) gatewaysOf(at nic) []gateway {
	if k.unchecked[at.name] {
		return nil
	}
	routes, err := defaultHops()
	if err != nil {
		k.log.Warn("no self-check of the gateway", "interface", at.name, "err", err)
		return nil
	}
	var all []gateway
	for _, r := range routes {
		if r.index != at.index || !r.gateway.IsValid() {
			continue
		}
		const known = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE
		g := gateway{index: at.index, addr: r.gateway}
		if e, ok := g.neighbour(); ok && e.State&known != 0 && !slices.ContainsFunc(all, func(x gateway) bool { return x.addr == g.addr }) {
			g.mac = e.HardwareAddr
			all = append(all, g)
		}
	}
	return all
}

// neighbour is the kernel's entry for the gateway.
func (g gateway) neighbour() (netlink.Neigh, bool) {
	family := netlink.FAMILY_V4
	if g.addr.Is6() {
		family = netlink.FAMILY_V6
	}
	list, err := netlink.NeighList(g.index, family)
	if err != nil {
		return netlink.Neigh{}, false
	}
	i := slices.IndexFunc(list, func(e netlink.Neigh) bool {
		a, ok := netip.AddrFromSlice(e.IP)
		return ok && a.Unmap() == g.addr
	})
	if i < 0 {
		return netlink.Neigh{}, false
	}
	return list[i], true
}

// ask has the kernel ask whether the neighbour is still there: an ARP request or
// a neighbour solicitation to it, as it sends them every minute anyway.
func (g gateway) ask() error {
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: g.index, IP: g.addr.AsSlice(), HardwareAddr: g.mac, State: unix.NUD_PROBE,
	})
}

// answers reports whether one of the gateways answers within patience.
func answers(ctx context.Context, gateways []gateway, patience time.Duration) bool {
	for begin := time.Now(); time.Since(begin) < patience && ctx.Err() == nil; {
		for _, g := range gateways {
			if g.ask() != nil {
				return true // the interface has gone, or changed under us: nothing is known
			}
		}
		for asked := time.Now(); time.Since(asked) < gatewayAgain; pause(ctx, gatewayStep) {
			for _, g := range gateways {
				if e, ok := g.neighbour(); ok && e.State == unix.NUD_REACHABLE {
					return true
				}
			}
			if ctx.Err() != nil {
				return true
			}
		}
	}
	return ctx.Err() != nil
}

// watchGateways asks for a check of gateways. The caller holds the lock.
func (k *Keeper) watchGateways(h *hold, gateways []gateway) {
	if len(gateways) == 0 {
		return
	}
	k.checks = append(k.checks, gatewayCheck{h, gateways})
	select {
	case k.checkDue <- struct{}{}:
	default:
	}
}

// CheckGateways makes the checks that are asked for, until ctx ends.
func (k *Keeper) CheckGateways(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.checkDue:
		}
		k.owner.Lock.Lock()
		due := k.checks
		k.checks = nil
		k.owner.Lock.Unlock()
		for _, c := range due {
			k.checkGateway(ctx, c, gatewayPatience)
		}
	}
}

// checkGateway takes the program off an interface whose gateways do not answer
// any more, and asks them again. If they then do, the program was the cause, and
// the interface is left alone until a reload; else it is put back.
func (k *Keeper) checkGateway(ctx context.Context, c gatewayCheck, patience time.Duration) {
	if answers(ctx, c.gateways, patience) {
		k.log.Info("self-check: the gateway answers", "interface", c.hold.name)
		return
	}
	name, ok := k.takeOffDark(c)
	if !ok {
		return
	}
	back := answers(ctx, c.gateways, patience)
	if ctx.Err() != nil {
		return // the daemon ends: what did not pass the check stays off
	}
	k.owner.Lock.Lock()
	defer k.owner.Lock.Unlock()
	cfg := k.owner.Config()
	if k.gate == nil || cfg == nil || k.leave[name] == "" {
		return // a reload or a detach came between
	}
	if back {
		k.leave[name] = fmt.Sprintf("with the program attached the gateway %s did not answer, without it it does: left unfiltered so that the host is not cut off; try network.attach_mode: generic, `headgate reload` attaches again", c)
	} else {
		delete(k.leave, name)
		k.unchecked[name] = true
		k.log.Warn("self-check: the gateway does not answer without the program either: attaching again", "interface", name, "gateway", c.String())
	}
	k.restore(cfg)
}

// restore is Restore, with an error told to the log.
func (k *Keeper) restore(cfg *config.Config) {
	if err := k.Restore(cfg); err != nil {
		k.log.Error("hold interfaces to the config", "err", err)
	}
}

// takeOffDark takes the program off, if it is still the one that the check is
// of, and keeps it off for now.
func (k *Keeper) takeOffDark(c gatewayCheck) (name string, ok bool) {
	k.owner.Lock.Lock()
	defer k.owner.Lock.Unlock()
	if k.held[c.hold.index] != c.hold {
		return "", false
	}
	name = c.hold.name
	k.log.Error("self-check: the gateway does not answer any more: detaching", "interface", name, "gateway", c.String())
	k.leave[name] = fmt.Sprintf("the gateway %s does not answer since the program was attached: trying without", c)
	k.letGo(c.hold)
	if cfg := k.owner.Config(); cfg != nil {
		k.restore(cfg)
	}
	return name, true
}

// String is the gateways' addresses.
func (c gatewayCheck) String() string {
	all := make([]string, len(c.gateways))
	for i, g := range c.gateways {
		all[i] = g.addr.String()
	}
	return strings.Join(all, ", ")
}
