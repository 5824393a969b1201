package maps

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/config"
)

// seen gathers samples by source, rule, reason and outcome.
type seen map[Sample]uint64

func (s seen) add(x Sample) {
	s[Sample{Source: x.Source, Rule: x.Rule, Reason: x.Reason, Outcome: x.Outcome}] += uint64(x.Stands)
}

// While packets are few each is sampled: with its source, what became of it and
// the rule that decided.
func TestFewPacketsAreAllSampled(t *testing.T) {
	for _, more := range []int{0, 1} { // limits beside
		g := fixedGate(t)
		rules := []config.Rule{perSource("r", 1, time.Hour, 3, udpPorts(9000)), blocking("then")}
		rules[1].Match = udpPorts(9001)
		watching := perSource("w", 1, time.Hour, 2, udpPorts(9002))
		watching.Mode = config.Watch
		rules = append(rules, watching)
		for range more {
			rules = append(rules, perSource("wide", 1_000_000, time.Second, 1_000_000, config.Match{}))
		}
		g.rules(rules...)
		g.lists(Lists{Block: forever("198.51.100.0/24"), Allow: prefixes("192.0.2.7/32")})
		samples, err := g.Samples()
		if err != nil {
			t.Fatal(err)
		}
		defer samples.Close()
		send := func(source string, port uint16, n int) {
			p := from(source)
			p.DstPort = port
			for range n {
				g.count(1, p)
				g.advance(10 * time.Millisecond)
			}
		}
		send("203.0.113.5", 9000, 5)
		send("2001:db8:5::5", 9000, 4)
		send("203.0.113.6", 9002, 5)
		send("198.51.100.7", 80, 2)
		send("192.0.2.7", 9000, 6)
		got := seen{}
		samples.Read(got.add)
		want := seen{}
		for _, w := range []struct {
			source, rule, reason string
			outcome              Outcome
			n                    uint64
		}{
			{"203.0.113.5", "r", "within_rate", Passed, 3}, {"203.0.113.5", "r", "over_rate", Refused, 2},
			{"2001:db8:5::5", "r", "within_rate", Passed, 3}, {"2001:db8:5::5", "r", "over_rate", Refused, 1},
			{"203.0.113.6", "w", "within_rate", Passed, 2}, {"203.0.113.6", "w", "within_rate", Watched, 3},
			{"198.51.100.7", "", "block", Refused, 2}, {"192.0.2.7", "", "allow", Passed, 6},
		} {
			want[Sample{Source: netip.MustParseAddr(w.source), Rule: w.rule, Reason: w.reason, Outcome: w.outcome}] = w.n
		}
		for k, n := range want {
			if k.Outcome == Passed && k.Rule != "" { // any limit that it met may stand for it
				n = 0
				for x, m := range got {
					if x.Source == k.Source && x.Outcome == Passed {
						n += m
					}
				}
				if n != want[k] {
					t.Errorf("%d more: %v passed %d, want %d", more, k.Source, n, want[k])
				}
				continue
			}
			if got[k] != n {
				t.Errorf("%d more: %+v sampled %d times, want %d of %v", more, k, got[k], n, got)
			}
		}
		if samples.Lost() != 0 {
			t.Errorf("%d samples lost", samples.Lost())
		}
	}
}

// At any flood there are few samples, and they add up to what was sent; each
// source gets about its share. When the flood has ended, each packet is sampled
// again.
func TestSamplesOfAFlood(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("r", 10, time.Second, 10, config.Match{}))
	samples, err := g.Samples()
	if err != nil {
		t.Fatal(err)
	}
	defer samples.Close()
	big, small := from("203.0.113.5"), from("203.0.113.6")
	big.Unmarked, small.Unmarked = true, true
	bigFrame, smallFrame := big.MustFrame(), small.MustFrame()
	got, count := map[netip.Addr]uint64{}, 0
	look := func() {
		samples.Read(func(s Sample) {
			got[s.Source] += uint64(s.Stands)
			count++
		})
	}
	const rounds, each = 40, 5000 // a second at 200 kpps, nine tenths from one source
	run := func(frame []byte, n int) {
		_, err := g.Program(true).Run(&ebpf.RunOptions{Data: frame, Repeat: uint32(n)})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range rounds {
		run(bigFrame, each*9/10)
		run(smallFrame, each/10)
		g.advance(time.Second / rounds)
		look()
	}
	sent := uint64(rounds * each)
	total := got[big.Src] + got[small.Src]
	if total > sent || total < sent*9/10 {
		t.Errorf("samples stand for %d packets, want nearly %d", total, sent)
	}
	if share := float64(got[small.Src]) / float64(total); share < 0.04 || share > 0.2 {
		t.Errorf("a tenth of the packets is %.3f of the samples", share)
	}
	if count > 4000 {
		t.Errorf("%d samples of a second", count)
	}
	g.advance(2 * time.Second)
	clear(got)
	for range 20 {
		run(smallFrame, 1)
		g.advance(20 * time.Millisecond)
	}
	look()
	if got[small.Src] != 20 {
		t.Errorf("after the flood %d of 20 packets are sampled", got[small.Src])
	}
}

// Samples that nobody read in time are counted as lost, and only those.
func TestSamplesThatAreOverwritten(t *testing.T) {
	var written, read uint64
	ring := make([]int, 8)
	write := func(n int) {
		for range n {
			ring[written%8] = int(written)
			written++
		}
	}
	write(5)
	batch, lost := unread(nil, ring, &written, &read)
	if len(batch) != 5 || lost != 0 || read != 5 {
		t.Errorf("%v, %d lost, read to %d", batch, lost, read)
	}
	write(20)
	batch, lost = unread(nil, ring, &written, &read)
	if lost != 13 || len(batch) != 7 || batch[0] != 18 || batch[6] != 24 || read != 25 {
		t.Errorf("%v, %d lost, read to %d: want 7 that cannot be written to just now", batch, lost, read)
	}
}

// A capture copies what is dropped, and nothing else, and only while it goes on.
func TestCaptures(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("r", 1, time.Hour, 1, udpPorts(9000)))
	dropped := from("203.0.113.5")
	g.count(5, dropped)
	captures, err := g.Captures()
	if err != nil {
		t.Fatal(err)
	}
	g.count(3, from("203.0.113.6")) // the first passes
	long := from("203.0.113.5")
	long.Payload = bytes.Repeat([]byte("x"), 600)
	g.count(1, long)
	var all []Captured
	captures.Read(func(c Captured) { all = append(all, c) })
	if err := captures.Close(); err != nil {
		t.Fatal(err)
	}
	g.count(5, dropped)
	if len(all) != 3 {
		t.Fatalf("%d frames captured", len(all))
	}
	for i, c := range all {
		p := []string{"203.0.113.6", "203.0.113.6", "203.0.113.5"}[i]
		q := from(p)
		if i == 2 {
			q = long
		}
		q.Unmarked = true
		want := q.MustFrame()
		if int(c.Length) != len(want) || !bytes.Equal(c.Frame, want[:min(len(want), 256)]) || c.Rule != "r" || c.Reason != "over_rate" {
			t.Errorf("frame %d: %+v, want rule r and % x", i, c, want[:60])
		}
	}
	again, err := g.Captures()
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	again.Read(func(c Captured) { t.Errorf("captured while nobody did: %+v", c.Sample) })
}

// How long a bucket needs to be full again is read from the bucket itself.
func TestFullIn(t *testing.T) {
	g := fixedGate(t)
	r := perSource("r", 1, time.Second, 10, config.Match{})
	total := r
	total.Name, total.Per = "total", []config.Per{config.PerTotal}
	g.rules(r, total)
	source := netip.MustParseAddr("203.0.113.5")
	if left, ok := g.FullIn(r, source); !ok || left != 0 {
		t.Errorf("one that never sent: %v %v", left, ok)
	}
	g.count(4, from("203.0.113.5"))
	g.advance(time.Second)
	if left, ok := g.FullIn(r, source); !ok || left < 2900*time.Millisecond || left > 3100*time.Millisecond {
		t.Errorf("4 of 10 sent a second ago at 1/s: full in %v %v, want 3 s", left, ok)
	}
	if _, ok := g.FullIn(total, source); ok {
		t.Error("a bucket of all is no source's")
	}
}
