package rig

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Flow is one stream of one source. The zero Addr is for frames without an
// IP header.
type Flow struct {
	Source netip.Addr
	Stream uint32
}

// Tally is what arrived of one flow, or of several together.
type Tally struct {
	Packets    uint64 // duplicates too
	Bytes      uint64 // whole frames, without FCS
	Duplicates uint64
	Reordered  uint64 // arrived after a higher number
	Missing    uint64 // numbers below the highest that did not arrive
}

func (t Tally) plus(o Tally) Tally {
	return Tally{
		Packets:    t.Packets + o.Packets,
		Bytes:      t.Bytes + o.Bytes,
		Duplicates: t.Duplicates + o.Duplicates,
		Reordered:  t.Reordered + o.Reordered,
		Missing:    t.Missing + o.Missing,
	}
}

// Report is what a receiver has counted.
type Report struct {
	Flows map[Flow]Tally
	Other uint64 // frames without a marker: ARP, neighbour discovery, strangers
}

// From returns all streams of one source together.
func (r Report) From(source netip.Addr) Tally {
	var sum Tally
	for f, t := range r.Flows {
		if f.Source == source {
			sum = sum.plus(t)
		}
	}
	return sum
}

// Total returns all flows together.
func (r Report) Total() Tally {
	var sum Tally
	for _, t := range r.Flows {
		sum = sum.plus(t)
	}
	return sum
}

// sequence is the tally of one flow with the set of numbers it has seen.
type sequence struct {
	tally Tally // Missing is worked out when asked
	seen  []uint64
	high  uint64 // one above the highest number
}

func (s *sequence) add(seq uint64, size int) {
	s.tally.Packets++
	s.tally.Bytes += uint64(size)
	word, bit := int(seq/64), uint64(1)<<(seq%64)
	for len(s.seen) <= word {
		s.seen = append(s.seen, 0)
	}
	switch {
	case s.seen[word]&bit != 0:
		s.tally.Duplicates++
	case seq < s.high:
		s.tally.Reordered++
	}
	s.seen[word] |= bit
	s.high = max(s.high, seq+1)
}

func (s *sequence) total() Tally {
	unique := 0
	for _, word := range s.seen {
		unique += bits.OnesCount64(word)
	}
	t := s.tally
	t.Missing = s.high - uint64(unique)
	return t
}

// source reads the source address of a frame; the zero Addr if it is not IP.
// It knows tags that the kernel left in place; those it took off are gone.
func source(frame []byte) netip.Addr {
	for at := 12; len(frame) >= at+2; at += 4 {
		packet := frame[at+2:]
		switch binary.BigEndian.Uint16(frame[at:]) {
		case 0x8100, 0x88a8:
			continue
		case 0x0800:
			if len(packet) >= 20 {
				return netip.AddrFrom4([4]byte(packet[12:16]))
			}
		case 0x86dd:
			if len(packet) >= 40 {
				return netip.AddrFrom16([16]byte(packet[8:24]))
			}
		}
		return netip.Addr{}
	}
	return netip.Addr{}
}
