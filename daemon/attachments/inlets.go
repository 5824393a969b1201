package attachments

import (
	"slices"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/maps"
)

// Inlets returns where packets of the interface of that name reach the network
// gate's program, whichever interface that is attached to; none: there is no
// such interface. A bond in native mode hands the program to its members, whose
// indices the packets then carry, and a VLAN device's frames come by its parent
// with the tag still on them. Only the outermost tag can be told, so what rides
// on a VLAN device of another comes in by itself and the one below.
func (s Surroundings) Inlets(name string) []maps.Inlet {
	i := slices.IndexFunc(s.nics, func(n nic) bool { return n.name == name })
	if i < 0 {
		return nil
	}
	return s.inletsOf(s.nics[i])
}

func (s Surroundings) inletsOf(n nic) []maps.Inlet {
	all := []maps.Inlet{{Index: uint32(n.index), VLAN: maps.AnyVLAN}}
	if isBond(n.kind) {
		for _, m := range s.nics {
			if m.master == n.index {
				all = append(all, s.inletsOf(m)...)
			}
		}
	}
	if parent, ok := s.byIndex(n.parent); ok && n.kind == "vlan" {
		for _, in := range s.inletsOf(parent) {
			if in.VLAN == maps.AnyVLAN {
				all = append(all, maps.Inlet{Index: in.Index, VLAN: n.vlan})
			}
		}
	}
	return all
}

// isBond reports whether an interface of that kind has members whose frames are
// all its own.
func isBond(kind string) bool { return kind == "bond" || kind == "team" }

// NeedsTag reports whether m asks for a VLAN tag of what comes in by the
// interface of that name while that one is attached: by its id, or by a VLAN
// device that rides on it.
func (s Surroundings) NeedsTag(m *config.Match, attached string) bool {
	byID := len(m.VLANs) > 0
	if len(m.Interfaces) == 0 || slices.Contains(m.Interfaces, attached) {
		return byID
	}
	for _, at := range s.Inlets(attached) {
		if at.VLAN != maps.AnyVLAN {
			continue
		}
		for _, name := range m.Interfaces {
			if slices.ContainsFunc(s.Inlets(name), func(in maps.Inlet) bool {
				return in.Index == at.Index && (byID || in.VLAN != maps.AnyVLAN)
			}) {
				return true
			}
		}
	}
	return false
}
