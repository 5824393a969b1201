package maps

import (
	"net/netip"
	"time"
)

// Held is what one prefix is given by the lists. The zero value is nothing.
type Held struct {
	Allow bool
	Block bool
	End   time.Time // of the block; the zero time: never
}

// SetHeld gives each of the prefixes what held says, in the place of what it
// was given before, and leaves all others alone. What is the same already, ends
// to a second, is not written again. Management prefixes stay what they are.
//
// After an error the prefixes before the one that it names are set, and SetHeld
// can be called again.
func (g *Gate) SetHeld(prefixes []netip.Prefix, held func(netip.Prefix) Held) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range prefixes {
		p = p.Masked()
		was, _ := g.lists.own.Get(p)
		next := own{flags: was.flags & prefixManagement}
		h := held(p)
		if h.Allow {
			next.flags |= prefixAllow
		}
		if h.Block {
			next.end = g.ticksAt(h.End)
			if sameEnd(was.end, next.end) {
				next.end = was.end
			}
		}
		if next == was {
			continue
		}
		if err := g.lists.set(p, next); err != nil {
			return err
		}
	}
	return nil
}

// Room is how many prefixes a table of one family holds, and may hold. Rules
// and lists share it; one that both name counts once.
type Room struct{ Held, Bound int }

// Room tells of the tables of both families.
func (g *Gate) Room() (v4, v6 Room) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lists.prefixes.room(0), g.lists.prefixes.room(1)
}

// Lacks counts the prefixes of each family that are not in the tables yet, so
// that too many can be refused before the first is written.
func (g *Gate) Lacks(prefixes []netip.Prefix) (v4, v6 int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range prefixes {
		if g.lists.prefixes.held.Get(p.Masked()) {
			continue
		}
		if p.Addr().Is4() {
			v4++
		} else {
			v6++
		}
	}
	return v4, v6
}
