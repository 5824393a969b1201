package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// followAddresses keeps the gate's set of the host's own addresses true until
// ctx ends.
func followAddresses(ctx context.Context, log *slog.Logger, set func([]netip.Addr) error) error {
	updates := make(chan netlink.AddrUpdate, 64)
	done := make(chan struct{})
	defer close(done)
	if err := netlink.AddrSubscribe(updates, done); err != nil {
		return fmt.Errorf("follow the host's addresses: %w", err)
	}
	for {
		own, err := ownAddresses()
		if err == nil {
			err = set(own)
		}
		if err != nil {
			log.Error("tell the network gate the host's addresses", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-updates:
			if !ok { // more came than the socket holds: begin anew
				return errors.New("follow the host's addresses: the kernel's messages ended")
			}
		}
	}
}

func ownAddresses() ([]netip.Addr, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	var own []netip.Addr
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			own = append(own, ip.Unmap())
		}
	}
	return own, nil
}
