package maps

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// crowd are strangers that press on the table: each sends some packets at once
// under a rule of its own, which keeps its bucket alive for hours.
type crowd struct {
	g       testGate
	frame   []byte
	source  int // offset of the 4 bytes that tell strangers apart
	packets int // at once, of each
	of      int // strangers; then they begin anew
	next    int
}

const crowdPort = 80

func newCrowd(g testGate, six bool, packets, of int) *crowd {
	p, at := from("100.64.0.0"), 14+12
	if six {
		p, at = from("2001:db8::"), 14+8+4
	}
	p.DstPort, p.Unmarked = crowdPort, true
	return &crowd{g: g, frame: p.MustFrame(), source: at, packets: packets, of: of}
}

// press lets n strangers send.
func (c *crowd) press(n int) {
	c.g.t.Helper()
	for range n {
		i := c.next % c.of
		c.next++
		copy(c.frame[c.source+1:], []byte{byte(i >> 16), byte(i >> 8), byte(i)})
		for range c.packets {
			c.g.send(c.frame)
		}
	}
}

// prober is a source with a model of what it is due.
type prober struct {
	source string
	frame  []byte
	every  time.Duration // between two probes
	greedy bool          // probes until it is refused, else once

	due      time.Duration
	tag      uint64
	tat      uint64 // of its bucket, as the model has it
	denied   bool   // has been refused since it has this bucket
	admitted int64  // by a bucket of its own
	lost     int64  // times it lost a bucket that was not full
}

// pressed is a rule under pressure and a model of it.
type pressed struct {
	testGate
	rule             config.Rule
	figures          limit.Figures
	strangers        limit.Figures // what unknown sources get together; zero: no cap
	overflow         uint64        // TAT of the overflow bucket
	unknown          uint64        // TAT of what unknown sources get together
	start            uint64
	probers          []*prober
	made             int64 // buckets
	shared, admitted int64 // packets by the overflow bucket, and how many it admitted
}

// bound is burst + rate·T.
func (p *pressed) bound(rate config.Rate, burst int64) int64 {
	elapsed := time.Duration((p.now() - p.start) / ticksPerNano)
	return burst + int64(float64(rate.Amount)*elapsed.Seconds()/rate.Interval.Seconds())
}

// take is limit.Take on a TAT that it moves.
func (p *pressed) take(tat *uint64, f limit.Figures, cost uint64) (ok bool) {
	*tat, ok = limit.Take(*tat, p.now(), cost, f.Burst)
	return ok
}

// probe sends one packet and holds the answer against the model: a source that
// has its bucket gets what this holds, one that has none a new one or a share
// of the overflow bucket, and who has been refused keeps the bucket until it is
// full.
func (p *pressed) probe(s *prober) (passed bool) {
	p.t.Helper()
	had := p.table.find(s.tag) != nil
	if left := limit.Until(s.tat, p.now()); !had && left > 0 {
		s.lost++
		if s.denied {
			p.t.Fatalf("%s: its bucket has refused and was taken away %v before it is full", s.source, time.Duration(left/ticksPerNano))
		}
	}
	passed = p.send(s.frame)
	if want := p.want(s, had, p.table.find(s.tag) != nil); passed != want {
		p.t.Fatalf("%s: the program says %v, the model %v (own bucket before: %v)", s.source, passed, want, had)
	}
	return passed
}

// want is what the model says to a packet of a source that had a bucket of its
// own before, and has one now.
func (p *pressed) want(s *prober, had, has bool) bool {
	paid := false
	if !had {
		s.tat, s.denied = p.now(), false
		if p.strangers.Burst > 0 {
			if !p.take(&p.unknown, p.strangers, p.strangers.Cost(1)) {
				return false
			}
			paid = true
		}
	}
	cost := p.figures.Cost(1)
	if !has {
		p.shared++
		if !paid && !p.take(&p.overflow, p.figures, cost/overflowFactor) {
			return false
		}
		p.admitted++
		return true
	}
	if !had {
		p.made++
	}
	if !p.take(&s.tat, p.figures, cost) {
		s.denied = true
		return false
	}
	s.admitted++
	return true
}

// turn lets those probe whose time has come.
func (p *pressed) turn(at time.Duration) {
	p.t.Helper()
	for _, s := range p.probers {
		if at < s.due {
			continue
		}
		s.due = at + s.every
		for p.probe(s) && s.greedy {
		}
	}
}

// sweep cleans up and wants what is not full to stay as it is.
func (p *pressed) sweep() {
	p.t.Helper()
	before := map[*prober]uint64{}
	for _, s := range p.probers {
		if slot := p.table.find(s.tag); slot != nil && limit.Until(slot.Tat, p.now()) > 0 {
			before[s] = slot.Tat
		}
	}
	p.Sweep()
	for s, tat := range before {
		if slot := p.table.find(s.tag); slot == nil || slot.Tat != tat {
			p.t.Fatalf("%s: a bucket that is not full was swept", s.source)
		}
	}
}

// newPressed puts a rule and a crowd's rule in force on an empty table, for
// probers that ask at intervals from 10 s to a second more than a whole refill.
func newPressed(g testGate, six bool, r config.Rule) *pressed {
	g.t.Helper()
	g.rules()
	g.advance(30 * 24 * time.Hour)
	g.Sweep()
	g.rules(r, perSource("crowd", 1, 12*time.Hour, 3, udpPorts(crowdPort)))
	p := &pressed{testGate: g, rule: r, start: g.now(), overflow: g.now(), unknown: g.now()}
	p.figures = figuresOf(g.t, r.Rate, r.Burst)
	if r.Unknown != nil {
		p.strangers = figuresOf(g.t, *r.Unknown, oneSecond(*r.Unknown))
	}
	one := r.Rate.Interval / time.Duration(r.Rate.Amount)
	tag := g.tagger(r.Name)
	for i, every := range []time.Duration{10 * time.Second, one / 3, one, one * time.Duration(r.Burst) / 2, one*time.Duration(r.Burst) + time.Second} {
		for j := range 8 {
			source := fmt.Sprintf("203.0.%d.%d", i, j)
			if six {
				source = fmt.Sprintf("2001:db9:%x:%x::1", i, j)
			}
			p.probers = append(p.probers, &prober{
				source: source, frame: frameOf(source), tag: tag(source), tat: g.now(),
				every: every, greedy: j%2 == 0,
				due: time.Duration(j/4) * one * time.Duration(r.Burst) / 2, // some come when all is full
			})
		}
	}
	return p
}

func figuresOf(t *testing.T, r config.Rate, burst int64) limit.Figures {
	t.Helper()
	f, err := limit.NewFigures(r.Amount, r.Interval, burst, false)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
