package daemon

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/maps"
)

func droppedFrom(i int, stands uint32) maps.Sample {
	return maps.Sample{
		At: time.Unix(1_800_000_000, 0), Source: netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}), Rule: "r",
		Reason: "over_rate", Outcome: maps.Refused, Stands: stands, Length: 60, Protocol: 17, To: 53,
	}
}

// Equal refusals are one event with their count; a flood of sources is a bounded
// number of events, and no packet is left out of the counts.
func TestEventsAreFew(t *testing.T) {
	var l events
	for range 10 {
		l.addSample(droppedFrom(1, 3))
	}
	l.addRefusal(l7.Refusal{Rule: "login", Client: netip.MustParseAddr("203.0.113.9"), Method: "GET", Path: "/login", Stands: 1})
	l.tell()
	all, last, _ := l.after(0, "")
	if len(all) != 2 || all[0].Count != 30 || all[0].Number != 1 || all[1].Path != "/login" || last != 2 {
		t.Errorf("%+v, last %d", all, last)
	}
	for i := range 1000 {
		l.addSample(droppedFrom(i, 2))
	}
	l.tell()
	all, _, _ = l.after(last, "")
	count := uint64(0)
	for _, e := range all {
		count += e.Count
	}
	if len(all) != mostAtOnce+1 || all[mostAtOnce].What != EventMore || count != 2000 {
		t.Errorf("%d events of %d packets, the last %+v", len(all), count, all[len(all)-1])
	}
	if of, _, _ := l.after(0, "login"); len(of) != 1 || of[0].Rule != "login" {
		t.Errorf("of rule login: %+v", of)
	}
}

// The last events are kept, whoever reads late misses the oldest, and who waits
// is woken.
func TestEventsAreKept(t *testing.T) {
	var l events
	_, _, more := l.after(0, "")
	const rounds = 3 * keptEvents / mostAtOnce
	for r := range rounds {
		for i := range mostAtOnce {
			l.addSample(droppedFrom(r*mostAtOnce+i, 1))
		}
		l.tell()
	}
	select {
	case <-more:
	default:
		t.Error("who waits is not woken")
	}
	all, last, more := l.after(0, "")
	if len(all) != keptEvents || last != rounds*mostAtOnce || all[0].Number != last-keptEvents+1 || all[len(all)-1].Number != last {
		t.Errorf("%d events up to %d, the first %d", len(all), last, all[0].Number)
	}
	l.tell()
	select {
	case <-more:
		t.Error("woken for nothing")
	default:
	}
}

// What the HTTP gate's process answers is cut to what an honest one can.
func TestChildIsNotTrustedToBeBrief(t *testing.T) {
	word := strings.Repeat("x", longestWord+1)
	answer := l7.Top{Heavy: []l7.Heavy{{Rule: word}, {Rule: "a"}, {Rule: "b"}}, Refusals: make([]l7.Refusal, 5000), Clients: make([]netip.Addr, 50_000)}
	answer.Refusals[0].Path, answer.Refusals[1].User = word, word
	got := trusted(answer, l7.TopQuery{Most: 1})
	if len(got.Heavy) != 1 || got.Heavy[0].Rule != "a" || len(got.Refusals) != mostRefusals || len(got.Clients) != mostClients {
		t.Errorf("%d heaviest, %d refusals, %d clients", len(got.Heavy), len(got.Refusals), len(got.Clients))
	}
	for _, r := range got.Refusals {
		if r.Path != "" || r.User != "" {
			t.Fatalf("kept %+v", r)
		}
	}
}

// The heaviest come by what is refused a second, whatever time each gate knows.
func TestTopIsSortedByRate(t *testing.T) {
	rows := []TopRow{
		{Rule: "passes", Verdicts: Verdicts{Passed: 1e6}, Seconds: 10},
		{Rule: "long", Verdicts: Verdicts{Refused: 100}, Seconds: 60},
		{Rule: "short", Verdicts: Verdicts{Refused: 50}, Seconds: 10},
		{Rule: "watched", Verdicts: Verdicts{Watched: 9}, Seconds: 10},
	}
	sortTop(rows)
	var got []string
	for _, r := range rows {
		got = append(got, r.Rule)
	}
	if fmt.Sprint(got) != "[short long watched passes]" {
		t.Errorf("order %v", got)
	}
}

// A flood of sources grows neither the table nor what is told of it.
func TestHeaviestAreBounded(t *testing.T) {
	var l events
	began := time.Unix(1_800_000_000, 0)
	h := newHeavyTable(began, &l)
	for i := range 20_000 {
		h.add(droppedFrom(i, 1))
		h.add(droppedFrom(1, 1)) // half of it is one source's
	}
	all, over := h.look(began.Add(time.Second), time.Minute)
	if len(all) > heavySources || over != time.Second {
		t.Errorf("%d sources over %v", len(all), over)
	}
	if first := all[0]; first.Key.source.String() != "203.0.0.1/32" || first.Refused < 20_000 {
		t.Errorf("the heaviest is %+v", first)
	}
}
