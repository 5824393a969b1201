package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/packets"
	"github.com/headgate/headgate/internal/rig"
	gate "github.com/headgate/headgate/maps"
)

// What holds while the checks send.
const (
	blocked4, blocked6 = "198.51.100.9", "2001:db8:bad::9"
	allowed4, allowed6 = "198.51.100.7", "2001:db8:bad:7::7"
	limited4, limited6 = "203.0.113.5", "2001:db8:1::5"

	burst = 20 // of each limited source; one more an hour
)

// limited is the rule on the limited sources.
var limited = config.Rule{
	Name: "limited", Gate: config.GateNetwork, Per: []config.Per{config.PerSource},
	Match:     config.Match{From: config.Addresses{Prefixes: prefixes("203.0.113.0/24", "2001:db8:1::/48")}},
	Algorithm: config.TokenBucket, Mode: config.Enforce,
	Rate: config.Rate{Amount: 1, Interval: time.Hour, Unit: config.Count}, Burst: burst,
}

var lists = gate.Lists{
	Allow: prefixes(allowed4+"/32", allowed6+"/128"),
	Block: endless(prefixes("198.51.100.0/24", "2001:db8:bad::/48")),
}

func prefixes(list ...string) (ps []netip.Prefix) {
	for _, s := range list {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// fresh and spent are what a limited source has left.
const (
	fresh uint64 = burst
	spent uint64 = 0
)

// traffic sends from every source in every stack of VLAN tags.
func traffic(l rig.Link, left uint64) error {
	dress := []func(*rig.Packet){func(*rig.Packet) {}}
	for tags := range maps.Values(packets.Stacks()) {
		dress = append(dress, func(p *rig.Packet) { p.Tags = tags })
	}
	return sendAll(l, []rig.Link{l}, left, dress...)
}

// sendAll sends from every source, over each of the links in, dressed in turn,
// and holds what at receives against what must come: of a limited source what
// it has left, over all links.
func sendAll(at rig.Link, in []rig.Link, left uint64, dress ...func(*rig.Packet)) error {
	const count = 10 * burst // of each source and link
	r, err := rig.NewReceiver(at)
	if err != nil {
		return err
	}
	for i, l := range in {
		for _, source := range []string{blocked4, blocked6, allowed4, allowed6, limited4, limited6} {
			s := rig.Stream{Count: count, Rate: 20_000}
			for _, change := range dress {
				p := l.UDP(netip.MustParseAddr(source), 9000)
				p.Stream = uint32(i)
				change(&p)
				s.Frames = append(s.Frames, p.MustFrame())
			}
			if _, err := rig.Send(context.Background(), l.Peer, s); err != nil {
				return err
			}
		}
	}
	report, err := r.Finish()
	if err != nil {
		return err
	}
	var errs []error
	for source, want := range map[string]uint64{
		blocked4: 0, blocked6: 0, limited4: left, limited6: left,
		allowed4: count * uint64(len(in)), allowed6: count * uint64(len(in)),
	} {
		if got := report.From(netip.MustParseAddr(source)).Packets; got != want {
			errs = append(errs, fmt.Errorf("%d of %d packets of %s were delivered, want %d", got, count*len(in), source, want))
		}
	}
	return errors.Join(errs...)
}
