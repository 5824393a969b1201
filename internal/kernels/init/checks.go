package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/kernels/serial"
	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/maps"
)

// runChecks makes the checks that need interfaces. All but the first share a
// gate: to load the program takes its time on a machine without hardware help.
func runChecks() {
	loaded := loadModules("/modules")
	check("veth, native, pinned", loaded.must("veth"), checkNative)
	g, err := openGate("")
	if err != nil {
		say(serial.Step{Kind: serial.Check, Name: "open a gate", Failed: []string{err.Error()}})
		return
	}
	defer g.Close()
	for _, c := range []struct {
		name   string
		module error
		run    func(*maps.Gate) error
	}{
		{"tc program", nil, checkCover},
		{"veth, generic", loaded.must("veth"), checkGeneric},
		{"jumbo frames", loaded.must("veth"), checkJumbo},
		{"VLAN device, attached to its parent", loaded.may("8021q"), checkVLANParent},
		{"VLAN device, its parent in generic mode", loaded.may("8021q"), checkVLANParentGeneric},
		{"VLAN device, attached itself", loaded.may("8021q"), checkVLANDevice},
		{"bond", loaded.may("bonding"), checkBond},
	} {
		check(c.name, c.module, func() error {
			if err := setRule(g, fill(c.name)); err != nil {
				return err
			}
			return c.run(g)
		})
	}
	check("rules on a bond", loaded.may("bonding"), checkRulesOnBond)
	check("rules on a VLAN of a bond", errors.Join(loaded.may("bonding"), loaded.may("8021q")), checkRulesOnVLANOfBond)
}

func check(name string, missing error, run func() error) {
	s := serial.Step{Kind: serial.Check, Name: name}
	err := missing
	if err == nil {
		err = run()
	}
	switch {
	case errors.Is(err, errAbsent):
		s.Text = err.Error()
	case err != nil:
		s.Failed = append(s.Failed, err.Error())
	}
	say(s)
}

// attach attaches the gate's program to an interface.
func attach(g *maps.Gate, to rig.End, mode link.XDPAttachFlags) (l link.Link, err error) {
	err = rig.Run(to.NS, func() (err error) {
		l, err = link.AttachXDP(link.XDPOptions{Program: g.Program(true), Interface: to.Index, Flags: mode})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", to.Interface, err)
	}
	return l, nil
}

// openGate opens a gate with the lists and the rule that the checks go by.
func openGate(pins string) (*maps.Gate, error) {
	g, err := maps.Open(maps.Options{Slots: slots, Pins: pins})
	if err != nil {
		return nil, err
	}
	return g, errors.Join(setRule(g, limited), g.SetLists(lists))
}

func setRule(g *maps.Gate, r config.Rule) error {
	return g.SetRules([]config.Rule{r}, config.Management{}, nil)
}

// fill returns the rule with full buckets: a limit of another name is another.
func fill(check string) config.Rule {
	r := limited
	r.Name = check
	return r
}

// onLink makes a link, attaches to its gate's end and calls run.
func onLink(g *maps.Gate, mode link.XDPAttachFlags, change func(rig.Link) error, run func(rig.Link) error) error {
	n, err := rig.New(1)
	if err != nil {
		return err
	}
	defer n.Close()
	if change != nil {
		if err := change(n.Links[0]); err != nil {
			return err
		}
	}
	l, err := attach(g, n.Links[0].Gate, mode)
	if err != nil {
		return err
	}
	defer l.Close()
	return run(n.Links[0])
}

// checkNative also lets go of everything and comes back: what is pinned goes
// on, is adopted, and its program is replaced.
func checkNative() error {
	dir, err := rig.MakeBPFFS()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	n, err := rig.New(1)
	if err != nil {
		return err
	}
	defer n.Close()
	g, err := openGate(dir)
	if err != nil {
		return err
	}
	l, err := attach(g, n.Links[0].Gate, link.XDPDriverMode)
	if err != nil {
		return err
	}
	pin := filepath.Join(dir, "link")
	if err := l.Pin(pin); err != nil {
		return err
	}
	if err := errors.Join(traffic(n.Links[0], fresh), l.Close(), g.Close()); err != nil {
		return err
	}
	if err := traffic(n.Links[0], spent); err != nil {
		return fmt.Errorf("with everything let go: %w", err)
	}
	if g, err = openGate(dir); err != nil {
		return err
	}
	defer g.Close()
	if !g.Adopted() {
		return errors.New("the pinned maps were not adopted")
	}
	if l, err = link.LoadPinnedLink(pin, nil); err != nil {
		return err
	}
	defer l.Close()
	if err := l.Update(g.Program(true)); err != nil {
		return fmt.Errorf("replace the program: %w", err)
	}
	if err := traffic(n.Links[0], spent); err != nil {
		return fmt.Errorf("with the program replaced: %w", err)
	}
	return l.Unpin()
}

// checkCover loads the tc program, which needs no interface for that.
func checkCover(g *maps.Gate) error {
	cover, err := g.LoadCover()
	if err != nil {
		return err
	}
	return cover.Close()
}

func checkGeneric(g *maps.Gate) error {
	return onLink(g, link.XDPGenericMode, nil, func(l rig.Link) error { return traffic(l, fresh) })
}

func checkJumbo(g *maps.Gate) error {
	grow := func(l rig.Link) error { return errors.Join(setMTU(l.Gate, 9000), setMTU(l.Peer, 9000)) }
	return onLink(g, link.XDPDriverMode, grow, func(l rig.Link) error {
		return sendAll(l, []rig.Link{l}, fresh, func(p *rig.Packet) { p.Length = 9014 })
	})
}
