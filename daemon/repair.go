package daemon

import "time"

// Repair is one thing that others took away and that was put back.
type Repair struct {
	At        time.Time `json:"at"`
	Kind      string    `json:"kind"` // pins, link or program
	Interface string    `json:"interface,omitempty"`
	What      string    `json:"what"`
}

// Kinds of repairs, which are labels of a metric.
const (
	repairPins    = "pins"    // pinned again
	repairLink    = "link"    // attached again
	repairProgram = "program" // ours put in the place of another in our link
)

// keptRepairs is how many of the last repairs status tells of.
const keptRepairs = 8

// repairLog counts repairs and keeps the last.
type repairLog struct {
	counts map[string]uint64
	last   []Repair
}

// repaired keeps, counts and logs a repair.
func (n *network) repaired(kind, iface, what string) {
	n.log.Warn("repaired: "+what, "interface", iface, "kind", kind)
	if n.repairs.counts == nil {
		n.repairs.counts = map[string]uint64{}
	}
	n.repairs.counts[kind]++
	n.repairs.last = append(n.repairs.last, Repair{At: time.Now().UTC().Round(time.Millisecond), Kind: kind, Interface: iface, What: what})
	n.repairs.last = n.repairs.last[max(0, len(n.repairs.last)-keptRepairs):]
}
