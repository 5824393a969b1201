package daemon

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// bulk is many prefixes that share end, reason and origin: what a file brought
// in at once. Its prefixes are never altered, so that policies share them; what
// is taken away from it one by one is noted beside.
type bulk struct {
	File    string         `json:"file"` // that holds the prefixes; see importFile
	Count   int            `json:"prefixes"`
	End     time.Time      `json:"end,omitzero"` // zero: never
	Reason  string         `json:"reason,omitempty"`
	Without []netip.Prefix `json:"without,omitempty"` // by netip.Prefix.Compare
	Origin

	prefixes []netip.Prefix // by netip.Prefix.Compare, no two the same
}

// has reports whether p itself is in b.
func (b *bulk) has(p netip.Prefix) bool {
	if _, ok := slices.BinarySearchFunc(b.prefixes, p, netip.Prefix.Compare); !ok {
		return false
	}
	_, gone := slices.BinarySearchFunc(b.Without, p, netip.Prefix.Compare)
	return !gone
}

// size is how many prefixes are left.
func (b *bulk) size() int { return len(b.prefixes) - len(b.Without) }

// entry is b as it holds for one of its prefixes.
func (b *bulk) entry(p netip.Prefix) Entry {
	return Entry{Prefix: p, End: b.End, Reason: b.Reason, Origin: b.Origin}
}

// without returns b less p.
func (b *bulk) without(p netip.Prefix) *bulk {
	next := *b
	i, _ := slices.BinarySearchFunc(b.Without, p, netip.Prefix.Compare)
	next.Without = slices.Insert(slices.Clone(b.Without), i, p)
	return &next
}

// left returns the prefixes that are left.
func (b *bulk) left() []netip.Prefix {
	if len(b.Without) == 0 {
		return b.prefixes
	}
	return minus(b.prefixes, b.Without)
}

// holdsSame reports whether a and b hold the same for the same prefixes, but
// for what each is without. It never looks at the prefixes.
func holdsSame(a, b *bulk) bool {
	return sameEnds(a, b) && sameSlice(a.prefixes, b.prefixes)
}

// follows reports whether b is what became of a: their prefixes may be others.
func follows(a, b *bulk) bool {
	return sameEnds(a, b) && a.Reason == b.Reason && a.From == b.From && (a.From != FromList || a.By == b.By)
}

func sameEnds(a, b *bulk) bool { return a.End.Equal(b.End) }

// sameSlice reports whether a and b are one slice.
func sameSlice(a, b []netip.Prefix) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// bulks are the bulk part of one list.
type bulks []*bulk

// live returns those that have not ended by now.
func (list bulks) live(now time.Time) bulks {
	return slices.DeleteFunc(slices.Clone(list), func(b *bulk) bool {
		return b.size() == 0 || !b.End.IsZero() && !b.End.After(now)
	})
}

// size is how many entries they hold.
func (list bulks) size() (n int) {
	for _, b := range list {
		n += b.size()
	}
	return n
}

// at returns the entries of exactly p.
func (list bulks) at(p netip.Prefix) (out []Entry) {
	for _, b := range list {
		if b.has(p) {
			out = append(out, b.entry(p))
		}
	}
	return out
}

// covering returns the entries whose prefix contains all of p.
func (list bulks) covering(p netip.Prefix) (out []Entry) {
	if len(list) == 0 {
		return nil
	}
	for bits := range p.Bits() + 1 {
		wider := netip.PrefixFrom(p.Addr(), bits).Masked()
		out = append(out, list.at(wider)...)
	}
	return out
}

// entries writes all out, one by one.
func (list bulks) entries() []Entry {
	out := make([]Entry, 0, list.size())
	for _, b := range list {
		for _, p := range b.left() {
			out = append(out, b.entry(p))
		}
	}
	return out
}

// prefixes returns all prefixes that are left; some may be there twice.
func (list bulks) prefixes() []netip.Prefix {
	out := make([]netip.Prefix, 0, list.size())
	for _, b := range list {
		out = append(out, b.left()...)
	}
	return out
}

// withoutPrefix takes p out of those that hold it, or of these only the ones
// with that reason, and returns what was taken away.
func (list bulks) withoutPrefix(p netip.Prefix, reason *string) (kept bulks, removed []Entry) {
	kept = slices.Clone(list)
	for i, b := range kept {
		if b.has(p) && (reason == nil || b.Reason == *reason) {
			removed = append(removed, b.entry(p))
			kept[i] = b.without(p)
		}
	}
	return kept, removed
}

// minus returns what of a is not in b; both are sorted.
func minus(a, b []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(a))
	for _, p := range a {
		for len(b) > 0 && b[0].Compare(p) < 0 {
			b = b[1:]
		}
		if len(b) == 0 || b[0] != p {
			out = append(out, p)
		}
	}
	return out
}

// union returns what is in a or b; both are sorted.
func union(a, b []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		c := a[0].Compare(b[0])
		if c <= 0 {
			out = append(out, a[0])
			a = a[1:]
		} else {
			out = append(out, b[0])
		}
		if c >= 0 {
			b = b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// differing returns the prefixes for which next may hold other than old: few
// where single ones went, and long lists where bulks came, changed or ended.
func (old bulks) differing(next bulks) (few []netip.Prefix, many [][]netip.Prefix) {
	pairs := map[*bulk]*bulk{}
	pair := func(fits func(a, b *bulk) bool) {
		for _, b := range next {
			for _, a := range old {
				if pairs[a] == nil && pairs[b] == nil && fits(a, b) {
					pairs[a], pairs[b] = b, a
				}
			}
		}
	}
	pair(func(a, b *bulk) bool { return a == b })
	pair(holdsSame)
	pair(follows)
	for _, a := range old {
		switch b := pairs[a]; {
		case b == nil:
			many = append(many, a.left())
		case holdsSame(a, b):
			few = append(few, symmetric(a.Without, b.Without)...)
		default:
			many = append(many, symmetric(a.left(), b.left()))
		}
	}
	for _, b := range next {
		if pairs[b] == nil {
			many = append(many, b.left())
		}
	}
	return few, many
}

// symmetric returns what is in one of a and b only.
func symmetric(a, b []netip.Prefix) []netip.Prefix {
	return append(minus(a, b), minus(b, a)...)
}

// changedEntries returns the prefixes whose entries differ between two lists.
func changedEntries(a, b []Entry) []netip.Prefix {
	was, is := ends(a), ends(b)
	changed := map[netip.Prefix]bool{}
	for p, end := range was {
		if now, ok := is[p]; !ok || !now.Equal(end) {
			changed[p] = true
		}
	}
	for p := range is {
		if _, ok := was[p]; !ok {
			changed[p] = true
		}
	}
	return slices.Collect(maps.Keys(changed))
}
