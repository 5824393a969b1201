package attachments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// FollowAddresses calls set with the host's own addresses now and after each
// change of them, until ctx ends. What set returns is logged.
func FollowAddresses(ctx context.Context, log *slog.Logger, set func([]netip.Addr) error) error {
	updates := make(chan netlink.AddrUpdate, 64)
	done := make(chan struct{})
	defer close(done)
	if err := netlink.AddrSubscribe(updates, done); err != nil {
		return fmt.Errorf("follow the host's addresses: %w", err)
	}
	for {
		own, err := OwnAddresses()
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

// OwnAddresses returns the addresses that the host has in this network namespace.
func OwnAddresses() ([]netip.Addr, error) {
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
