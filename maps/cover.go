package maps

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// LoadCover loads the gate as a tc program for the ingress of an interface, on
// the same maps: it judges while the interface is without its XDP program,
// because its attach mode changes. The caller closes it.
//
// It sees frames after GRO, so that what was joined counts as one packet, as
// in generic mode; a VLAN tag that the network card or the kernel took out of
// the frame it sees all the same.
func (g *Gate) LoadCover() (*ebpf.Program, error) {
	spec, err := loadCover()
	if err != nil {
		return nil, fmt.Errorf("read the embedded tc program: %w", err)
	}
	// the length is the packet's, also of what lies outside the first buffer
	if err := spec.Variables["frags"].Set(true); err != nil {
		return nil, fmt.Errorf("set frags in the tc program: %w", err)
	}
	var o struct {
		Cover *ebpf.Program `ebpf:"cover"`
	}
	if err := g.LoadBeside(spec, &o, g.clock); err != nil {
		return nil, fmt.Errorf("tc program: %w", err)
	}
	return o.Cover, nil
}
