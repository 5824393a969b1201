package rig

import "fmt"

// Overruns is how many packets the interface had no room for, since it was
// made: those that found the ring of a veth pair full before any program saw
// them.
func (e End) Overruns() (uint64, error) {
	link, err := e.NS.links.LinkByIndex(e.Index)
	if err != nil {
		return 0, fmt.Errorf("read the counters of %s: %w", e.Interface, err)
	}
	return link.Attrs().Statistics.RxDropped, nil
}
