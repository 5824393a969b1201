package maps

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const controlCapture = 1 << 3 // as in bpf/types.h

// Captured is a dropped frame, in the place of several.
type Captured struct {
	Sample
	Frame []byte // its first bytes, at most 256
}

// Captures has the program copy dropped frames, until it is closed: all while
// there are fewer than about two thousand a second on a CPU, and about two
// thousand a second of any more. One at a time.
type Captures struct {
	gate   *Gate
	memory []byte
	rings  []*bpfCaptureRing
	read   []uint64
	lost   uint64
}

// Captures begins to capture.
func (g *Gate) Captures() (*Captures, error) {
	memory, err := mapMemory(g.objects.Captures, false)
	if err != nil {
		return nil, err
	}
	c := &Captures{gate: g, memory: memory, rings: ringsIn[bpfCaptureRing](memory, g.objects.Captures)}
	for _, r := range c.rings {
		c.read = append(c.read, atomic.LoadUint64(&r.Written))
	}
	g.control.setFlag(controlCapture, true)
	return c, nil
}

// Of tells whether the captures are g's.
func (c *Captures) Of(g *Gate) bool { return c.gate == g }

// Lost is how many frames were overwritten before they were read. What is read
// twenty times a second loses none.
func (c *Captures) Lost() uint64 { return c.lost }

// Read hands what was captured since the last time to each.
func (c *Captures) Read(each func(Captured)) {
	d := c.gate.decoder()
	for i, r := range c.rings {
		batch, lost := unread[bpfCapture](nil, r.Captures[:], &r.Written, &c.read[i])
		c.lost += lost
		for j := range batch {
			s := d.decode(&batch[j].Sample)
			each(Captured{s, batch[j].Frame[:min(int(s.Length), len(batch[j].Frame))]})
		}
	}
}

// Close ends the capture. Frames handed out stay as they are.
func (c *Captures) Close() error {
	c.gate.control.setFlag(controlCapture, false)
	c.rings = nil
	return unix.Munmap(c.memory)
}
