package attachments

import (
	"maps"
	"slices"
	"time"
)

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

// RepairKinds returns all kinds that there are.
func RepairKinds() []string { return []string{repairPins, repairLink, repairProgram} }

// keptRepairs is how many of the last repairs status tells of.
const keptRepairs = 8

// repairLog counts repairs and keeps the last.
type repairLog struct {
	counts map[string]uint64
	last   []Repair
}

// repaired keeps, counts and logs a repair.
func (k *Keeper) repaired(kind, iface, what string) {
	k.log.Warn("repaired: "+what, "interface", iface, "kind", kind)
	if k.repairs.counts == nil {
		k.repairs.counts = map[string]uint64{}
	}
	k.repairs.counts[kind]++
	k.repairs.last = append(k.repairs.last, Repair{At: time.Now().UTC().Round(time.Millisecond), Kind: kind, Interface: iface, What: what})
	k.repairs.last = k.repairs.last[max(0, len(k.repairs.last)-keptRepairs):]
}

// Repairs returns the last repairs, the newest last, and how many there were
// since New, by kind.
func (k *Keeper) Repairs() (last []Repair, counts map[string]uint64) {
	return slices.Clone(k.repairs.last), maps.Clone(k.repairs.counts)
}
