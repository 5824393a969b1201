package maps

import (
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
	"pgregory.net/rapid"
)

// The C bucket against the Go model on random rates, bursts, lengths and
// schedules: the same verdict for every packet, and the same TAT.
func TestBucketAgainstModel(t *testing.T) {
	g := fixedGate(t)
	rapid.Check(t, func(rt *rapid.T) {
		r := drawRule(rt, "r")
		f, err := limit.NewFigures(r.Rate.Amount, r.Rate.Interval, r.Burst, r.Rate.Unit == config.Bytes)
		if err != nil {
			rt.Skip("not a rate")
		}
		g.rules() // a rule that was gone starts full
		g.rules(r)
		g.SetNow(rapid.Uint64Range(1, 1<<62).Draw(rt, "start"))
		tat := g.now() - 1
		p := from("203.0.113.5")
		for range rapid.IntRange(1, 40).Draw(rt, "packets") {
			g.SetNow(g.now() + drawGap(rt, f))
			p.Length = rapid.SampledFrom([]int{60, 61, 590, 1514, 9014}).Draw(rt, "length")
			units := uint64(1)
			if r.Rate.Unit == config.Bytes {
				units = uint64(p.Length)
			}
			next, ok := limit.Take(tat, g.now(), f.Cost(units), f.Burst)
			tat = next
			if passed := g.count(1, p) == 1; passed != ok {
				rt.Fatalf("rule %+v: the program says %v, the model %v", r, passed, ok)
			}
		}
		if level := g.level("r", p.Src.String()); level != 0 && limit.Until(tat, g.now()) > 0 && level != tat {
			rt.Fatalf("TAT %d in the table, %d in the model", level, tat)
		}
	})
}

// Several limits on a packet against a model that reads all before it charges
// any.
func TestSeveralLimitsAgainstModel(t *testing.T) {
	g := fixedGate(t)
	rapid.Check(t, func(rt *rapid.T) {
		rules := []config.Rule{}
		figures := []limit.Figures{}
		for _, name := range []string{"a", "b", "c", "d"}[:rapid.IntRange(2, 4).Draw(rt, "rules")] {
			r := perSource(name, rapid.Int64Range(1, 1000).Draw(rt, "rate"), time.Second, rapid.Int64Range(1, 20).Draw(rt, "burst"), config.Match{})
			if rapid.IntRange(0, 3).Draw(rt, "watch") == 0 {
				r.Mode = config.Watch
			}
			f, err := limit.NewFigures(r.Rate.Amount, r.Rate.Interval, r.Burst, false)
			if err != nil {
				rt.Fatal(err)
			}
			rules, figures = append(rules, r), append(figures, f)
		}
		g.rules()
		g.rules(rules...)
		tats := make([]uint64, len(rules))
		for i := range tats {
			tats[i] = g.now()
		}
		for range rapid.IntRange(1, 60).Draw(rt, "packets") {
			g.SetNow(g.now() + rapid.Uint64Range(0, uint64(50*time.Millisecond)*ticksPerNano).Draw(rt, "gap"))
			want := takeAll(rules, figures, tats, g.now())
			if passed := g.count(1, from("203.0.113.5")) == 1; passed != want {
				rt.Fatalf("the program says %v, the model %v", passed, want)
			}
		}
	})
}

func takeAll(rules []config.Rule, figures []limit.Figures, tats []uint64, now uint64) bool {
	next, ok := make([]uint64, len(rules)), make([]bool, len(rules))
	for i, f := range figures {
		next[i], ok[i] = limit.Take(tats[i], now, f.Cost(1), f.Burst)
		if !ok[i] && rules[i].Mode != config.Watch {
			return false
		}
	}
	for i := range tats {
		if ok[i] {
			tats[i] = next[i]
		}
	}
	return true
}

func drawRule(rt *rapid.T, name string) config.Rule {
	interval := rapid.SampledFrom([]time.Duration{time.Millisecond, 250 * time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(rt, "interval")
	r := perSource(name, rapid.Int64Range(1, 1_000_000).Draw(rt, "amount"), interval, rapid.Int64Range(1, 1000).Draw(rt, "burst"), config.Match{})
	if rapid.Bool().Draw(rt, "bytes") {
		r.Rate.Unit, r.Burst = config.Bytes, r.Burst*1000
	}
	return r
}

// drawGap is a time of the order of what the bucket resolves.
func drawGap(rt *rapid.T, f limit.Figures) uint64 {
	switch rapid.IntRange(0, 3).Draw(rt, "gap") {
	case 0:
		return 0
	case 1:
		return rapid.Uint64Range(0, 2*f.Cost(1)+1).Draw(rt, "of a unit")
	case 2:
		return rapid.Uint64Range(0, f.Burst/4+1).Draw(rt, "of the burst")
	}
	return rapid.Uint64Range(0, 1<<40).Draw(rt, "free")
}
