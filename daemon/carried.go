package daemon

import "fmt"

// tellCarried says what became of maps that another layout had pinned.
func (n *network) tellCarried() {
	layout, lost, ok := n.gate.Carried()
	if !ok {
		return
	}
	n.log.Info("the pinned maps of another version are carried over", "layout", layout, "lost", len(lost))
	for _, line := range lost {
		n.log.Warn("lost with the layout of the pinned maps: " + line)
	}
}

// settle lets go of the maps of another layout once the new programs are in
// place. Should it fail, the next start does it.
func (n *network) settle() {
	if err := n.gate.Settle(); err != nil {
		n.log.Error("let go of the maps of another version: the next start tries again", "err", err)
	}
}

// resize gives the bucket table the size of network.slots. A reload that cannot
// have it is refused; a start goes on with the size that is pinned.
func (n *network) resize(slots uint32) error {
	before := n.gate.Slots()
	if before == slots {
		return nil
	}
	lost, err := n.gate.Resize(slots)
	switch {
	case err != nil && n.now != nil:
		return fmt.Errorf("give the bucket table the %d slots of network.slots: %w", slots, err)
	case err != nil:
		n.log.Error("network.slots is not in force: the bucket table keeps its size", "slots", before, "network.slots", slots, "err", err)
	default:
		n.log.Info("the bucket table has another size", "slots", slots, "before", before, "live_buckets_lost", lost)
	}
	return nil
}
