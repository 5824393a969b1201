package maps

import (
	"fmt"
	"net/netip"
)

// destinations are the tries of what a packet's destination is to the rules.
type destinations struct {
	gate    *Gate
	classes [2]*prefixClasses
	trie    trie
}

func openDestinations(g *Gate) (*destinations, error) {
	d := &destinations{
		gate:    g,
		classes: [2]*prefixClasses{{}, {}},
		trie:    trie{v4: g.objects.Destinations4, v6: g.objects.Destinations6},
	}
	err := readTrie(&d.trie, func(p netip.Prefix, v bpfDestination) {
		for generation, class := range v.Class {
			d.classes[generation].table.Insert(p, class)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the pinned destinations: %w", err)
	}
	d.count()
	return d, nil
}

// count lets the program spare the look-up in an empty trie.
func (d *destinations) count() {
	d.gate.control.setDestinations(d.trie.held.Size4(), d.trie.held.Size6())
}

// setClasses gives the destinations their classes in a generation that is
// idle.
func (d *destinations) setClasses(generation uint32, next *prefixClasses) error {
	if next == nil {
		next = &prefixClasses{}
	}
	d.classes[generation] = next
	defer d.count()
	for p := range next.table.All() {
		if err := d.put(p); err != nil {
			return err
		}
	}
	for p := range d.trie.held.Clone().All() {
		if next.has(p) {
			continue
		}
		if !d.classes[1-generation].has(p) {
			if err := d.trie.remove(p); err != nil {
				return err
			}
		} else if err := d.put(p); err != nil {
			return err
		}
	}
	return nil
}

func (d *destinations) put(p netip.Prefix) error {
	return d.trie.put(p, &bpfDestination{Class: [2]uint16{d.classes[0].of(p), d.classes[1].of(p)}})
}
