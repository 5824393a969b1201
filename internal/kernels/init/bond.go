package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon/attachments"
	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/maps"
	"github.com/vishvananda/netlink"
)

// bonded is a bond of two of three links, attached natively and followed as the
// daemon does it.
type bonded struct {
	n    *rig.Network
	bond rig.End
	gate *maps.Gate
	stop []func()

	mu   sync.Mutex // of the keeper
	rule config.Rule
	seen attachments.Surroundings // what the rule was compiled with
}

// newBonded sets a rule on interface, which may come later.
func newBonded(rule, iface string) (*bonded, error) {
	b := &bonded{rule: fill(rule)}
	b.rule.Match.Interfaces = []string{iface}
	if err := b.open(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bonded) open() (err error) {
	dir, err := rig.MakeBPFFS()
	if err != nil {
		return err
	}
	b.stop = append(b.stop, func() { os.RemoveAll(dir) })
	if b.n, err = rig.New(3); err != nil {
		return err
	}
	b.stop = append(b.stop, func() { b.n.Close() })
	if b.bond, err = addBond(b.n.Links[0].Gate, b.n.Links[1].Gate); err != nil {
		return err
	}
	pins := filepath.Join(dir, "headgate")
	cfg, err := config.Parse("bond", []byte("version: 1\nnetwork: {interfaces: [bond0], attach_mode: native}\nstate: {pins: "+pins+"}\n"))
	if err != nil {
		return err
	}
	keeper := attachments.New(attachments.Owner{
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Lock: &b.mu,
		Config: func() *config.Config { return cfg }, Moved: b.compile,
	})
	if err := keeper.Claim(pins); err != nil {
		return err
	}
	b.gate, err = maps.Open(maps.Options{
		Slots: slots, Pins: pins,
		Inlets: func(name string) ([]maps.Inlet, error) { return b.seen.Inlets(name), nil },
	})
	if err != nil {
		return err
	}
	b.stop = append(b.stop, func() { b.gate.Close() }, keeper.Release)
	if err := b.gate.SetLists(lists); err != nil {
		return err
	}
	keeper.Use(b.gate)
	start := func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, err := keeper.Start(cfg)
		return err
	}
	if err := rig.Run(b.bond.NS, start); err != nil {
		return err
	}
	b.follow(keeper)
	return nil
}

func (b *bonded) follow(keeper *attachments.Keeper) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rig.Run(b.bond.NS, func() error { return keeper.Follow(ctx) }) }()
	b.stop = append(b.stop, func() { cancel(); <-done })
}

func (b *bonded) close() {
	for _, stop := range slices.Backward(b.stop) {
		stop()
	}
}

// compile is called with mu held.
func (b *bonded) compile(s attachments.Surroundings) error {
	b.seen = s
	return setRule(b.gate, b.rule)
}

// await waits until the rule was compiled with so many inlets.
func (b *bonded) await(inlets int) error {
	have := 0
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b.mu.Lock()
		have = len(b.seen.Inlets(b.rule.Match.Interfaces[0]))
		b.mu.Unlock()
		if have == inlets {
			return nil
		}
	}
	return fmt.Errorf("%s has %d inlets after 20 s, want %d", b.rule.Match.Interfaces[0], have, inlets)
}

// checkRulesOnBond is RC-111: packets of a bond carry the indices of its members.
// A rule on the bond meets them, also those of a member that joins later, and
// no more those of one that left.
func checkRulesOnBond() error {
	b, err := newBonded("on a bond", "bond0")
	if err != nil {
		return err
	}
	defer b.close()
	at := b.n.Links[0]
	at.Gate = b.bond
	plain := func(*rig.Packet) {}
	if err := sendAll(at, b.n.Links[:2], fresh, plain); err != nil {
		return fmt.Errorf("two members: %w", err)
	}
	third := b.n.Links[2].Gate
	if err := rig.Run(b.bond.NS, func() error { return enslave(third, b.bond.Index) }); err != nil {
		return err
	}
	if err := b.await(4); err != nil {
		return fmt.Errorf("a third member: %w", err)
	}
	if err := sendAll(at, b.n.Links, spent, plain); err != nil {
		return fmt.Errorf("a third member: %w", err)
	}
	err = rig.Run(b.bond.NS, func() error {
		dev, err := netlink.LinkByIndex(third.Index)
		if err != nil {
			return err
		}
		return netlink.LinkSetNoMaster(dev)
	})
	if err != nil {
		return fmt.Errorf("release the third member: %w", err)
	}
	return b.await(3)
}

// checkRulesOnVLANOfBond is the same for a VLAN device on the bond: its packets
// come by the members, with the tag on them.
func checkRulesOnVLANOfBond() error {
	b, err := newBonded("on a VLAN of a bond", "bond0.10")
	if err != nil {
		return err
	}
	defer b.close()
	at := b.n.Links[0]
	if at.Gate, err = addVLAN10("bond0.10", b.bond); err != nil {
		return err
	}
	if at.Peer, err = addVLAN10("vlan10", b.n.Links[0].Peer); err != nil { // which what ends the count comes by
		return err
	}
	if err := b.await(4); err != nil {
		return err
	}
	return sendAll(at, b.n.Links[:2], fresh, func(p *rig.Packet) { p.Tags = []rig.Tag{{ID: 10}} })
}
