package rig

import (
	"testing"
	"time"
)

func TestSequence(t *testing.T) {
	tests := []struct {
		name string
		seqs []uint64
		want Tally
	}{
		{"in order", []uint64{0, 1, 2}, Tally{Packets: 3}},
		{"first ones lost", []uint64{2, 3}, Tally{Packets: 2, Missing: 2}},
		{"gap over a word", []uint64{0, 200}, Tally{Packets: 2, Missing: 199}},
		{"twice", []uint64{0, 1, 1}, Tally{Packets: 3, Duplicates: 1}},
		{"late", []uint64{0, 2, 1}, Tally{Packets: 3, Reordered: 1}},
		{"late twice", []uint64{2, 0, 0}, Tally{Packets: 3, Reordered: 1, Duplicates: 1, Missing: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s sequence
			for _, seq := range tt.seqs {
				s.add(seq, 100)
			}
			tt.want.Bytes = 100 * tt.want.Packets
			checkTally(t, tt.name, s.total(), tt.want)
		})
	}
}

func TestSchedule(t *testing.T) {
	tests := []struct {
		name    string
		stream  Stream
		sent    uint64
		elapsed time.Duration
		n       int
		wait    time.Duration
	}{
		{"first at once", Stream{Rate: 10, Count: 5}, 0, 0, 1, 0},
		{"second after an interval", Stream{Rate: 10, Count: 5}, 1, 30 * time.Millisecond, 0, 70 * time.Millisecond},
		{"late ones together", Stream{Rate: 10, Count: 50}, 1, time.Second, 10, 0},
		{"a batch at most", Stream{Rate: 1000, Count: 5000}, 0, time.Second, 64, 0},
		{"never more than count", Stream{Rate: 1000, Count: 3}, 1, time.Second, 2, 0},
		{"count reached", Stream{Count: 3}, 3, 0, 0, -1},
		{"time over", Stream{Duration: time.Second}, 3, time.Second, 0, -1},
		{"back to back", Stream{Duration: time.Second}, 3, 0, 64, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.stream.Batch = 64
			s := sender{Stream: tt.stream, next: tt.sent}
			if n, wait := s.due(tt.elapsed); n != tt.n || wait != tt.wait {
				t.Errorf("due: %d now, wait %v; want %d, %v", n, wait, tt.n, tt.wait)
			}
		})
	}
}
