package maps

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// run lets twice the time pass that a bucket takes to refill, in which the
// crowd presses four times over.
func (p *pressed) run(c *crowd) {
	p.t.Helper()
	const steps = 200
	refill := p.rule.Rate.Interval / time.Duration(p.rule.Rate.Amount) * time.Duration(p.rule.Burst)
	for i := range steps {
		p.turn(2 * refill / steps * time.Duration(i))
		c.press(4 * crowdSize / steps)
		p.sweep()
		p.advance(2 * refill / steps)
	}
}

// crowdSize is twice the slots of the table.
const crowdSize = 2 * minSlots

// slowRules are those of RC-078.
func slowRules() map[string]config.Rule {
	return map[string]config.Rule{
		"1 per hour, burst 3":  perSource("r", 1, time.Hour, 3, udpPorts(9000)),
		"5 per min, burst 20":  perSource("r", 5, time.Minute, 20, udpPorts(9000)),
		"1 per sec, burst 100": perSource("r", 1, time.Second, 100, udpPorts(9000)),
	}
}

// RC-078: a slow limit stays slow. Sources probe at all intervals while twice
// as many live ones as the table has slots press on it. Who has been refused
// never gets more than burst + rate·T; who finds no slot shares the overflow
// bucket, which keeps to its own bound; cleaning up takes full buckets only. Who
// has not been refused may lose its bucket to strangers and start anew: that is
// counted, each time.
func TestSlowLimitsUnderPressure(t *testing.T) {
	shared := fixedGate(t)
	for name, rule := range slowRules() {
		for _, six := range []bool{false, true} {
			for _, packets := range []int{1, 4} { // the fourth at once is refused
				t.Run(fmt.Sprintf("%s/IPv6 %v/%d at once", name, six, packets), func(t *testing.T) {
					p := newPressed(testGate{shared.Gate, t}, six, rule)
					before := p.stats()
					p.run(newCrowd(p.testGate, six, packets, crowdSize))
					p.check(before, p.stats(), packets > 1)
				})
			}
		}
	}
}

// RC-078: with `unknown` those who start anew are held too: all buckets that
// are made together stay within its bound.
func TestSlowLimitsWithUnknown(t *testing.T) {
	shared := fixedGate(t)
	for name, rule := range slowRules() {
		for _, six := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/IPv6 %v", name, six), func(t *testing.T) {
				rule.Unknown = &config.Rate{Amount: 4 * rule.Rate.Amount, Interval: rule.Rate.Interval, Unit: config.Count}
				p := newPressed(testGate{shared.Gate, t}, six, rule)
				before := p.stats()
				p.run(newCrowd(p.testGate, six, 1, crowdSize))
				p.check(before, p.stats(), false)
				if most := p.bound(*rule.Unknown, oneSecond(*rule.Unknown)); p.made == 0 || p.made > most {
					t.Errorf("%d buckets were made, want 1 to %d", p.made, most)
				}
			})
		}
	}
}

// check holds what was admitted, and what was counted, against the bounds.
func (p *pressed) check(before, after TableStats, full bool) {
	p.t.Helper()
	lost, patient := int64(0), int64(0)
	for _, s := range p.probers {
		lost += s.lost
		if !s.greedy {
			patient = max(patient, s.admitted)
		}
		if s.greedy && s.lost > 0 {
			p.t.Errorf("%s, every %v until refused, lost its bucket %d times", s.source, s.every, s.lost)
		}
		if most := p.bound(p.rule.Rate, p.rule.Burst) + s.lost*p.rule.Burst; s.admitted > most {
			p.t.Errorf("%s, every %v: %d admitted, the bound is %d (it lost %d buckets)", s.source, s.every, s.admitted, most, s.lost)
		}
	}
	if most := overflowFactor * p.bound(p.rule.Rate, p.rule.Burst); p.admitted > most {
		p.t.Errorf("%d admitted by the overflow bucket, the bound is %d", p.admitted, most)
	}
	evicted, overflowed := after.EvictedLive-before.EvictedLive, after.Overflowed-before.Overflowed
	if uint64(lost) > evicted {
		p.t.Errorf("sources lost %d buckets that were not full, %d are counted", lost, evicted)
	}
	if uint64(p.shared) > overflowed {
		p.t.Errorf("sources sent %d packets by the overflow bucket, %d are counted", p.shared, overflowed)
	}
	if after.Live*10 < after.Slots*9 || !full && evicted == 0 || full && p.shared == 0 {
		p.t.Errorf("that is no pressure: %+v, after %+v", after, before)
	}
	p.t.Logf("%d buckets made, %d lost, %d packets by the overflow bucket; %d evicted, %d overflowed in all; at most %d admitted of a source that asks once in a while, its due is %d",
		p.made, lost, p.shared, evicted, overflowed, patient, p.bound(p.rule.Rate, p.rule.Burst))
}
