package maps

import (
	"fmt"
	"net"
	"slices"

	"github.com/headgate/headgate/config"
)

// AnyVLAN is the VLAN of an Inlet that all frames come in by, tagged or not.
const AnyVLAN = -1

// Inlet is where packets of an interface that a rule names reach the program:
// on the interface of an index, and there all of them or those whose outermost
// tag has an id. A bond's come in by its members, a VLAN device's by its parent.
type Inlet struct {
	Index uint32
	VLAN  int // 0 to 4094, or AnyVLAN
}

// ownInlet is the interface itself, and none where it is not there.
func ownInlet(name string) ([]Inlet, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, i := range all {
		if i.Name == name {
			return []Inlet{{uint32(i.Index), AnyVLAN}}, nil
		}
	}
	return nil, nil
}

// once returns find with its answers kept, so that all of a compilation goes by
// the same interfaces.
func once(find func(string) ([]Inlet, error)) func(string) ([]Inlet, error) {
	known := map[string][]Inlet{}
	return func(name string) ([]Inlet, error) {
		inlets, ok := known[name]
		if ok {
			return inlets, nil
		}
		inlets, err := find(name)
		if err == nil {
			known[name] = inlets
		}
		return inlets, err
	}
}

// way is a part of what a rule's interfaces stand for: what comes in by some
// interfaces with one tag, or with any.
type way struct {
	vlan    int
	indices []uint32
}

// anyway is that of a rule that names no interface.
var anyway = way{vlan: AnyVLAN}

// ways returns what r's interfaces stand for, apart from each other: a packet
// that came in by two ways would be charged twice. A rule whose interfaces are
// not there has one that no packet comes by.
func (c *compiler) ways(r *config.Rule) ([]way, error) {
	all := []way{anyway}
	var tagged []Inlet
	for _, name := range r.Match.Interfaces {
		inlets, err := c.inlets(name)
		if err != nil {
			return nil, err
		}
		for _, in := range inlets {
			switch {
			case in.VLAN != AnyVLAN:
				tagged = append(tagged, in)
			case !slices.Contains(all[0].indices, in.Index):
				all[0].indices = append(all[0].indices, in.Index)
			}
		}
	}
	for _, in := range tagged {
		if slices.Contains(all[0].indices, in.Index) || len(r.Match.VLANs) > 0 && !slices.Contains(r.Match.VLANs, uint16(in.VLAN)) {
			continue
		}
		i := slices.IndexFunc(all, func(w way) bool { return w.vlan == in.VLAN })
		if i < 0 {
			i, all = len(all), append(all, way{vlan: in.VLAN})
		}
		if !slices.Contains(all[i].indices, in.Index) {
			all[i].indices = append(all[i].indices, in.Index)
		}
	}
	return all, nil
}

// interfaceDimension has class 0 for interfaces that no rule names. Those that
// are not there have classes that no packet meets.
func (c *compiler) interfaceDimension(t *tables, pieces []piece) (dimension, error) {
	byIndex, absent := map[uint32][]int32{}, map[string][]int32{}
	said := map[uint32]string{} // by what name rules know an index
	for i := range pieces {
		for _, name := range pieces[i].rule.Match.Interfaces {
			inlets, err := c.inlets(name)
			if err != nil {
				return dimension{}, fmt.Errorf("rule %s: %w", pieces[i].rule.Name, err)
			}
			for _, in := range inlets {
				said[in.Index] = name
			}
			if len(inlets) == 0 && pieces[i].way.vlan == AnyVLAN {
				absent[name] = append(absent[name], int32(i))
			}
		}
		for _, index := range pieces[i].way.indices {
			byIndex[index] = append(byIndex[index], int32(i))
		}
	}
	in := newInterner()
	in.number(nil)
	names := map[int]string{0: "another interface"}
	for index, members := range byIndex {
		class := in.number(members)
		names[class] = "interface " + said[index]
		t.interfaces[index] = uint16(class)
	}
	for name, members := range absent {
		names[in.number(members)] = "interface " + name
	}
	return dimension{
		id: bpfDimensionDIM_INTERFACE, members: in.lists,
		say:    func(class int) string { return names[class] },
		family: func(int) [2]bool { return [2]bool{true, true} },
	}, nil
}
