package spray

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/maps"
)

// Counted is the gate's program with its table look-ups counted.
type Counted struct {
	program *ebpf.Program
	lookups *ebpf.Variable
}

// Count loads the counting program on g's maps.
func Count(g *maps.Gate) (*Counted, error) {
	spec, err := loadCounted()
	if err != nil {
		return nil, fmt.Errorf("read the counting program: %w", err)
	}
	var o struct {
		Headgate *ebpf.Program  `ebpf:"headgate"`
		Lookups  *ebpf.Variable `ebpf:"lookups"`
	}
	if err := g.LoadBeside(spec, &o, maps.ClockExact); err != nil {
		return nil, err
	}
	return &Counted{o.Headgate, o.Lookups}, nil
}

// Close lets go of the program.
func (c *Counted) Close() error { return c.program.Close() }

// Judge sends one frame through and returns the verdict and how many tables
// were looked into.
func (c *Counted) Judge(frame []byte) (verdict uint32, lookups uint64, err error) {
	if err := c.lookups.Set(uint64(0)); err != nil {
		return 0, 0, err
	}
	verdict, err = c.program.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		return 0, 0, err
	}
	err = c.lookups.Get(&lookups)
	return verdict, lookups, err
}
