package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon/attachments"
	"github.com/headgate/headgate/maps"
)

// FromPins is the origin of an entry that only the pinned maps tell of.
const FromPins = "pinned maps"

// Pinned is what the network gate goes on doing while no daemon answers.
type Pinned struct {
	Network NetworkStatus
	Rules   []Rule // of the network gate, by name; a name and counters are all that is pinned
	Blocks  []Entry
	Allows  []Entry
}

// Inspect reads what is pinned under pins, as it is at now, and names from the
// state file in dir who gave a prefix and why, where that can be read. It needs
// no daemon and changes nothing. Where nothing is pinned the error is an
// fs.ErrNotExist.
func Inspect(pins, dir string, now time.Time) (Pinned, error) {
	held, err := maps.Inspect(pins)
	if err != nil {
		return Pinned{}, err
	}
	attached, err := attachments.Attached(pins)
	if err != nil {
		return Pinned{}, err
	}
	covered, err := attachments.Covered(pins)
	if err != nil {
		return Pinned{}, err
	}
	table := Table(held.Table)
	p := Pinned{Network: NetworkStatus{On: true, Opened: held.Opened, Leashed: held.Leashed, Interfaces: []Interface{}, Table: &table}, Rules: []Rule{}}
	for _, a := range attached {
		p.Network.Interfaces = append(p.Network.Interfaces, Interface{Name: a.Interface, AttachMode: a.AttachMode, ProgramID: a.ProgramID, Pin: a.Pin, Warning: a.Warning})
	}
	p.Network.Covered = covered
	for _, name := range covered {
		p.Network.Warnings = append(p.Network.Warnings, CutShort(name)+": "+CutShortCure)
	}
	for _, r := range held.Reasons {
		p.Network.Reasons = append(p.Network.Reasons, Reason(r))
	}
	for name, c := range held.Rules {
		p.Rules = append(p.Rules, Rule{
			Name: name, Gate: string(config.GateNetwork),
			Packets: &Verdicts{c.PassedPackets, c.RefusedPackets, c.WatchedPackets},
			Bytes:   &Verdicts{c.PassedBytes, c.RefusedBytes, c.WatchedBytes},
		})
	}
	slices.SortFunc(p.Rules, func(a, b Rule) int { return strings.Compare(a.Name, b.Name) })
	added, err := newStore(dir).load(now)
	if err != nil {
		added = state{} // what the gate does is known without
	}
	sortEntries(added.Blocks)
	sortEntries(added.Allows)
	for prefix, end := range held.Blocks {
		known := append(slices.Clip(at(added.Blocks, prefix)), added.BlockImports.at(prefix)...)
		p.Blocks = append(p.Blocks, pinnedEntry(prefix, end, known))
	}
	for _, prefix := range held.Allows {
		known := append(slices.Clip(at(added.Allows, prefix)), added.AllowImports.at(prefix)...)
		// an allow's end is in the state file alone
		p.Allows = append(p.Allows, pinnedEntry(prefix, latest(known, prefix).End, known))
	}
	for _, s := range held.Struck {
		if _, ok := held.Blocks[s.Prefix]; !ok {
			p.Blocks = append(p.Blocks, Entry{Prefix: s.Prefix, End: s.End, Origin: Origin{From: FromRule, By: s.Rule}})
		}
	}
	sortEntries(p.Blocks)
	sortEntries(p.Allows)
	p.Blocks, p.Allows = withRemaining(p.Blocks, now), withRemaining(p.Allows, now)
	return p, nil
}

// pinnedEntry is an entry of the maps with what known says of its prefix.
func pinnedEntry(p netip.Prefix, end time.Time, known []Entry) Entry {
	e := Entry{Prefix: p, End: end, Origin: Origin{From: FromPins}}
	if was := latest(known, p); was.Prefix.IsValid() {
		e.Origin, e.Reason = was.Origin, was.Reason
	}
	return e
}

// CutShort says that a change of an interface's attach mode was cut short.
func CutShort(iface string) string {
	return iface + ": a change of its attach mode was cut short, and a tc program judges in its place"
}

// CutShortCure is what to do then.
const CutShortCure = "`headgate run` mends it, `headgate detach --all` removes both"
