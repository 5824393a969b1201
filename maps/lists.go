package maps

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/gaissmai/bart"
)

// Flags of a prefix, as in bpf/types.h.
const (
	prefixAllow      = 1 << 0
	prefixManagement = 1 << 1
	prefixFlags      = prefixAllow | prefixManagement
	blockForever     = ^uint64(prefixFlags)

	// longestBlock keeps a block's end within what signed ticks can compare;
	// a longer one is set again before it ends.
	longestBlock = 4 * 365 * 24 * time.Hour
)

// Lists is what passes or is dropped by source prefix alone.
type Lists struct {
	Management []netip.Prefix
	Allow      []netip.Prefix
	Block      map[netip.Prefix]time.Time // its end; the zero time: never
}

// own is what one prefix itself was given.
type own struct {
	end   uint64 // ticks; 0: no block; blockForever
	flags uint64
}

// addressClasses are the classes of addresses in the rules of a generation, as
// sources and as destinations.
type addressClasses struct {
	from, to *prefixClasses
}

func (c addressClasses) has(p netip.Prefix) bool { return c.from.has(p) || c.to.has(p) }

func (c addressClasses) of(p netip.Prefix) [2]uint16 { return [2]uint16{c.from.of(p), c.to.of(p)} }

func newAddressClasses(from, to *prefixClasses) addressClasses {
	c := addressClasses{from, to}
	if from == nil {
		c.from = &prefixClasses{}
	}
	if to == nil {
		c.to = &prefixClasses{}
	}
	return c
}

// lists is what the tables of prefixes hold: what was given to a prefix, and its
// classes among the rules of each generation. The program takes the longest
// match only, so each entry also says what holds by the prefixes that cover it.
type lists struct {
	gate     *Gate
	own      *bart.Table[own]
	classes  [2]addressClasses
	prefixes *prefixStore
}

// openLists reads what the tables hold: after a restart that is what was in
// force. What a prefix has by those that cover it, and which prefixes the rules
// named, is not told apart from what it was given: the lists and the next two
// sets of rules put that right.
func openLists(g *Gate, o Options) (*lists, error) {
	l := &lists{gate: g, own: &bart.Table[own]{}}
	for generation := range l.classes {
		l.classes[generation] = newAddressClasses(nil, nil)
	}
	bounds := [2]int{mostPrefixes4, mostPrefixes6}
	for f, bound := range [2]uint32{o.Prefixes4, o.Prefixes6} {
		if bound > 0 {
			bounds[f] = int(bound)
		}
	}
	var err error
	l.prefixes, err = openPrefixes(g, bounds, func(p netip.Prefix, v bpfPrefix) {
		if v.End != 0 {
			l.own.Insert(p, recordOwn(v))
		}
		for generation, c := range l.classes {
			c.from.table.Insert(p, v.Class[generation])
			c.to.table.Insert(p, v.ToClass[generation])
		}
	})
	return l, err
}

func recordOwn(v bpfPrefix) own {
	return own{end: v.End &^ prefixFlags, flags: v.End & prefixFlags}
}

// setClasses gives addresses their classes in a generation that is idle.
func (l *lists) setClasses(generation uint32, from, to *prefixClasses) error {
	before, next := l.classes[generation], newAddressClasses(from, to)
	l.classes[generation] = next
	for _, c := range []*prefixClasses{next.from, next.to} {
		for p := range c.table.All() {
			if l.prefixes.held.Get(p) && before.has(p) && before.of(p) == next.of(p) {
				continue
			}
			if err := l.refresh(p); err != nil {
				return err
			}
		}
	}
	// entries of others change with the prefixes that cover them
	for p := range l.prefixes.held.Clone().All() {
		if next.has(p) || (!before.has(p) && before.of(p) == next.of(p)) {
			continue
		}
		if err := l.refresh(p); err != nil {
			return err
		}
	}
	return nil
}

// SetLists makes l the lists in force and touches only what differs. A block
// that is in force with the same end, to a second, keeps the end it has.
func (g *Gate) SetLists(l Lists) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	wanted := map[netip.Prefix]own{}
	flag := func(ps []netip.Prefix, flag uint64) {
		for _, p := range ps {
			p = p.Masked()
			o := wanted[p]
			o.flags |= flag
			wanted[p] = o
		}
	}
	flag(l.Management, prefixManagement)
	flag(l.Allow, prefixAllow)
	for p, end := range l.Block {
		p = p.Masked()
		o := wanted[p]
		o.end = g.ticksAt(end)
		if was, ok := g.lists.own.Get(p); ok && sameEnd(was.end, o.end) {
			o.end = was.end
		}
		wanted[p] = o
	}
	return g.lists.become(wanted)
}

func sameEnd(a, b uint64) bool {
	if a == 0 || b == 0 || a == blockForever || b == blockForever {
		return a == b
	}
	d := int64(a - b)
	return max(d, -d) < int64(time.Second)*ticksPerNano
}

// become adds and changes before it removes, so that nothing wanted is ever
// without its entry.
func (l *lists) become(wanted map[netip.Prefix]own) error {
	var gone []netip.Prefix
	for p := range l.own.All() {
		if _, ok := wanted[p]; !ok {
			gone = append(gone, p)
		}
	}
	for p, o := range wanted {
		if was, ok := l.own.Get(p); ok && was == o {
			continue
		}
		if err := l.set(p, o); err != nil {
			return err
		}
	}
	for _, p := range gone {
		if err := l.set(p, own{}); err != nil {
			return err
		}
	}
	return nil
}

// Block drops packets from p until end; the zero time: for ever. It replaces
// an earlier end of the same prefix.
func (g *Gate) Block(p netip.Prefix, end time.Time) error {
	return g.change(p, func(o *own) { o.end = g.ticksAt(end) })
}

// Unblock ends the block of exactly p, also one by a rule's then. Blocks that
// cover p stay.
func (g *Gate) Unblock(p netip.Prefix) error {
	defer g.unstrike(p.Masked())
	return g.change(p, func(o *own) { o.end = 0 })
}

// Allow lets packets from p pass blocks and rules.
func (g *Gate) Allow(p netip.Prefix) error {
	return g.change(p, func(o *own) { o.flags |= prefixAllow })
}

// Disallow ends the allow of exactly p.
func (g *Gate) Disallow(p netip.Prefix) error {
	return g.change(p, func(o *own) { o.flags &^= prefixAllow })
}

func (g *Gate) change(p netip.Prefix, change func(*own)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	p = p.Masked()
	o, _ := g.lists.own.Get(p)
	change(&o)
	return g.lists.set(p, o)
}

// Blocks returns the blocks that the maps hold, with their ends (zero: never):
// they survive the daemon.
func (g *Gate) Blocks() (map[netip.Prefix]time.Time, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[netip.Prefix]time.Time{}
	now := g.now()
	for p, o := range g.lists.own.All() {
		switch left := int64(o.end - now); {
		case o.end == blockForever:
			all[p] = time.Time{}
		case o.end != 0 && left > 0:
			all[p] = time.Now().Add(time.Duration(left / ticksPerNano))
		}
	}
	return all, nil
}

// ticksAt is a block's end in ticks.
func (g *Gate) ticksAt(end time.Time) uint64 {
	if end.IsZero() {
		return blockForever
	}
	left := min(time.Until(end), longestBlock)
	if left <= 0 {
		return 0
	}
	return (g.now() + uint64(left)*ticksPerNano) &^ prefixFlags
}

// set gives p its own value and writes it and all entries that it covers.
// After an error the kernel holds a mixture of old and new ends for prefixes
// below p, and set can be called again.
func (l *lists) set(p netip.Prefix, o own) error {
	was, existed := l.own.Get(p)
	if o == (own{}) {
		if !existed {
			return nil
		}
		l.own.Delete(p)
	} else {
		l.own.Insert(p, o)
	}
	if err := l.refresh(p); err != nil {
		l.restore(p, was, existed)
		return err
	}
	if was.end != 0 && o.end == 0 {
		l.gate.unstrike(p)
	}
	for below := range l.prefixes.held.Subnets(p) {
		if below == p {
			continue
		}
		if err := l.put(below); err != nil {
			return err
		}
	}
	return nil
}

func (l *lists) restore(p netip.Prefix, was own, existed bool) {
	if existed {
		l.own.Insert(p, was)
	} else {
		l.own.Delete(p)
	}
}

// refresh writes the entry of p, or removes it where nothing needs it.
func (l *lists) refresh(p netip.Prefix) error {
	if _, owned := l.own.Get(p); !owned && !l.classes[0].has(p) && !l.classes[1].has(p) {
		l.prefixes.remove(p)
		return nil
	}
	return l.put(p)
}

// put writes one entry with what it inherits.
func (l *lists) put(p netip.Prefix) error { return l.prefixes.put(p, l.value(p)) }

// value is what the entry of p is to hold.
func (l *lists) value(p netip.Prefix) bpfPrefix {
	o, _ := l.own.Get(p)
	now := l.gate.now()
	for _, above := range l.own.Supernets(p) {
		o.end = laterEnd(o.end, above.end, now)
		o.flags |= above.flags
	}
	value := bpfPrefix{End: o.end | o.flags}
	for generation, c := range l.classes {
		classes := c.of(p)
		value.Class[generation], value.ToClass[generation] = classes[0], classes[1]
	}
	return value
}

func laterEnd(a, b, now uint64) uint64 {
	if a == blockForever || b == blockForever {
		return blockForever
	}
	if b == 0 || (a != 0 && int64(a-now) >= int64(b-now)) {
		return a
	}
	return b
}

// SetOwnAddresses tells the program which addresses are the host's: an ICMP
// error that quotes a packet from one of them is vital.
func (g *Gate) SetOwnAddresses(addresses []netip.Addr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	wanted := map[bpfOwnAddress]bool{}
	for _, a := range addresses {
		wanted[bpfOwnAddress{Address: a.WithZone("").As16()}] = true
	}
	var gone []bpfOwnAddress
	var key bpfOwnAddress
	var value uint8
	entries := g.objects.OwnAddresses.Iterate()
	for entries.Next(&key, &value) {
		if !wanted[key] {
			gone = append(gone, key)
		}
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read the own addresses: %w", err)
	}
	for key := range wanted {
		if err := g.objects.OwnAddresses.Put(&key, uint8(1)); err != nil {
			return fmt.Errorf("write own address: %w", err)
		}
	}
	for _, key := range gone {
		if err := g.objects.OwnAddresses.Delete(&key); err != nil {
			return fmt.Errorf("remove own address: %w", err)
		}
	}
	return nil
}
