// Package heavy keeps who does most, in bounded memory: a sliding window of
// space-saving tables (Metwally, Agrawal, El Abbadi: Efficient computation of
// frequent and top-k elements in data streams, 2005).
package heavy

import (
	"cmp"
	"slices"
	"time"
)

const (
	// Window is how far back a table knows.
	Window = time.Minute
	// slice is what falls out of it at once.
	slice = 5 * time.Second
	kept  = int(Window/slice) + 1 // the last is seldom whole
)

// Counts is what one key did.
type Counts struct {
	Passed, Refused uint64
	Watched         uint64 // passed, and would have been refused
	Bytes           uint64
}

// Total is all of it but the bytes.
func (c Counts) Total() uint64 { return c.Passed + c.Refused + c.Watched }

func (c *Counts) add(o Counts) {
	c.Passed += o.Passed
	c.Refused += o.Refused
	c.Watched += o.Watched
	c.Bytes += o.Bytes
}

// Table holds at most so many keys in each slice of its window. Where more come
// the lightest make room: a key with more than total ÷ size in a slice is in it
// for sure, and what a key is said to have done it has done at least.
type Table[K comparable] struct {
	size int
	all  [kept]part[K]
}

// New makes a table of so many keys a slice, at least 1.
func New[K comparable](size int) *Table[K] {
	t := &Table[K]{size: max(size, 1)}
	for i := range t.all {
		t.all[i].number = -1
	}
	return t
}

// part is one slice: a heap, the lightest first, with where each key is in it.
type part[K comparable] struct {
	number int64 // of the slice since the clock's beginning
	heap   []place[K]
	at     map[K]int
}

type place[K comparable] struct {
	key    K
	weight uint64 // its total and that of whoever it took the place of
	counts Counts
}

// Add notes what k did at now, the time since a fixed moment that never goes
// back.
func (t *Table[K]) Add(now time.Duration, k K, c Counts) {
	number := int64(now / slice)
	p := &t.all[number%int64(len(t.all))]
	if p.number != number {
		p.begin(number, t.size)
	}
	i, known := p.at[k]
	switch {
	case known:
	case len(p.heap) < t.size:
		i = len(p.heap)
		p.heap = append(p.heap, place[K]{key: k})
		p.at[k] = i
		i = p.up(i)
	default:
		i = 0
		delete(p.at, p.heap[0].key)
		p.heap[0] = place[K]{key: k, weight: p.heap[0].weight}
		p.at[k] = 0
	}
	p.heap[i].counts.add(c)
	p.heap[i].weight += c.Total()
	p.down(i)
}

func (p *part[K]) begin(number int64, size int) {
	p.number = number
	clear(p.at)
	clear(p.heap) // keys may hold on to memory
	p.heap = p.heap[:0]
	if p.at == nil {
		p.at = make(map[K]int, size)
		p.heap = make([]place[K], 0, size)
	}
}

// up moves a place that is lighter than those above it.
func (p *part[K]) up(i int) int {
	for i > 0 && p.heap[i].weight < p.heap[(i-1)/2].weight {
		p.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

// down moves a place that has become heavier.
func (p *part[K]) down(i int) {
	for {
		least := i
		for _, below := range [2]int{2*i + 1, 2*i + 2} {
			if below < len(p.heap) && p.heap[below].weight < p.heap[least].weight {
				least = below
			}
		}
		if least == i {
			return
		}
		p.swap(i, least)
		i = least
	}
}

func (p *part[K]) swap(i, j int) {
	p.heap[i], p.heap[j] = p.heap[j], p.heap[i]
	p.at[p.heap[i].key], p.at[p.heap[j].key] = i, j
}

// Entry is a key with what it did.
type Entry[K comparable] struct {
	Key K
	Counts
}

// Look returns what is known of the last window, from 5 s to Window, and of up to
// 5 s before it, in no order. over is how long that is.
func (t *Table[K]) Look(now, window time.Duration) (all []Entry[K], over time.Duration) {
	number := int64(now / slice)
	back := int64(min(max(window, slice), Window)/slice) + 1 // the present one is not whole
	sums := map[K]Counts{}
	for i := range t.all {
		p := &t.all[i]
		if p.number < 0 || p.number > number || number-p.number >= back {
			continue
		}
		for _, x := range p.heap {
			s := sums[x.key]
			s.add(x.counts)
			sums[x.key] = s
		}
	}
	for k, c := range sums {
		all = append(all, Entry[K]{k, c})
	}
	return all, min(now, time.Duration(back-1)*slice+now%slice)
}

// Sort puts those first that were refused most, then those that would have been,
// then those that did most.
func Sort[K comparable](all []Entry[K]) {
	slices.SortFunc(all, func(a, b Entry[K]) int {
		return cmp.Or(
			cmp.Compare(b.Refused, a.Refused),
			cmp.Compare(b.Watched, a.Watched),
			cmp.Compare(b.Total(), a.Total()),
		)
	})
}
