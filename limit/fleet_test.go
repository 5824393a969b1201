package limit

import (
	"encoding/binary"
	"testing"
	"time"
)

// A store of a fleet that is flooded with keys of every kind stays within its
// memory.
func TestMemoryInAFleet(t *testing.T) {
	const memory = 4 << 20
	s := NewStore(memory)
	s.Share(NewSecretHasher([]byte("a secret")))
	rate := mustRate(t, 100, time.Hour, 100)
	shared, err := rate.Shared(Lines, NewFleet(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	log, err := NewWindow(SlidingLog, 10, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	counter, err := NewWindow(SlidingCounter, 10, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	aligned, err := s.Aligned(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	fixed, err := NewTally(10, aligned)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range []*Limit{&rate, &shared, &log, &counter, &fixed} {
		a := s.Account(s.Key([]byte{byte(i)}), *l, 0)
		for n := range uint32(60_000) {
			s.Take(Ticks(n), []Charge{{Limit: l, Account: a, Key: a.Key(s.Key(binary.LittleEndian.AppendUint32(nil, n)))}})
		}
	}
	if got := s.Stats().Bytes; got > memory {
		t.Errorf("%d bytes of %d", got, memory)
	}
}
