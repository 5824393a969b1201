package sim

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/limit"
)

// drawn is a fleet under load that moves from host to host.
func drawn(t *rapid.T) Config {
	c := Config{
		Seed:   rapid.Uint64().Draw(t, "seed"),
		Hosts:  rapid.IntRange(1, 16).Draw(t, "hosts"),
		Rate:   rapid.Int64Range(1, 3000).Draw(t, "rate"),
		Burst:  rapid.Int64Range(1, 3000).Draw(t, "burst"),
		Length: time.Duration(rapid.IntRange(2, 8).Draw(t, "seconds")) * time.Second,
		Trip:   time.Duration(rapid.IntRange(50, 1500).Draw(t, "trip")) * time.Microsecond,
		Skew:   time.Hour,
	}
	total := float64(c.Rate) * rapid.SampledFrom([]float64{0.5, 0.95, 1.5, 8}).Draw(t, "offered")
	moves := rapid.SliceOfN(rapid.SampledFrom([]int{-1, 0, 1, 2}), 1, 4).Draw(t, "load on")
	c.Load = func(at time.Duration, h int) float64 {
		switch on := moves[int(at*time.Duration(len(moves))/(c.Length+1))]; {
		case on < 0:
			return total / float64(c.Hosts)
		case on%c.Hosts == h:
			return total
		}
		return 0
	}
	return c
}

// bound is what a connected fleet may admit beyond a bucket's rate.
func (c *Config) bound(t *rapid.T, killed int) float64 {
	f := limit.NewFleet(50 * time.Millisecond)
	f.SetHosts(c.Hosts)
	l, err := limit.NewRate(c.Rate, time.Second, c.Burst)
	if err != nil {
		t.Fatal(err)
	}
	if l, err = l.Shared(limit.Lines, f); err != nil {
		t.Fatal(err)
	}
	over := float64(l.Overshoot(8 * c.Trip))
	line := 0.25*float64(c.Burst) + float64(c.Rate)*0.05
	return float64(c.Burst) + over + float64(killed)*line
}

// What hosts admit together stays within the stated bound, wherever the load is
// and however late messages come, while hosts are killed and start again.
func TestBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawn(t)
		killed := rapid.IntRange(0, 3).Draw(t, "killed")
		for range killed {
			h := rapid.IntRange(0, c.Hosts-1).Draw(t, "host")
			at := time.Duration(rapid.Int64Range(0, int64(c.Length)).Draw(t, "at"))
			c.Events = append(c.Events, Event{at, h, Kill}, Event{at + 500*time.Millisecond, h, Start})
		}
		r, err := Run(c)
		if err != nil {
			t.Fatal(err)
		}
		if excess := r.Excess(float64(c.Rate)); excess > c.bound(t, killed) {
			t.Fatalf("%.0f admitted beyond the rate, at most %.0f", excess, c.bound(t, killed))
		}
	})
}

// Where messages are lost and hosts cut off, they go on with their last shares:
// less than twice the rate for all, however many they are, beside what their
// lines and the buckets that stand in for the fleet's hold once.
func TestOutage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawn(t)
		c.Loss = rapid.SampledFrom([]float64{0, 0.01, 0.2}).Draw(t, "loss")
		for range rapid.IntRange(0, 4).Draw(t, "outages") {
			from := time.Duration(rapid.Int64Range(0, int64(c.Length)).Draw(t, "from"))
			length := time.Duration(rapid.Int64Range(int64(10*time.Millisecond), int64(2*time.Second)).Draw(t, "for"))
			h := rapid.IntRange(0, c.Hosts-1).Draw(t, "host")
			do := rapid.SampledFrom([][2]Action{{Cut, Mend}, {Silent, Speak}}).Draw(t, "outage")
			c.Events = append(c.Events, Event{from, h, do[0]}, Event{from + length, h, do[1]})
		}
		r, err := Run(c)
		if err != nil {
			t.Fatal(err)
		}
		most := 3*c.bound(t, 0) + 2*float64(c.Hosts)
		if excess := r.Excess(2 * float64(c.Rate)); excess > most {
			t.Fatalf("%.0f admitted beyond twice the rate, at most %.0f", excess, most)
		}
	})
}

// Load that stays below the limit is hardly ever refused: not on one host, not
// spread, and not when it moves, over links whose longest round trip is beyond
// the deadline of a question.
func TestNothingRefusedBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawn(t)
		c.Rate, c.Burst = rapid.Int64Range(200, 3000).Draw(t, "rate"), rapid.Int64Range(200, 3000).Draw(t, "burst")
		moves := rapid.SliceOfN(rapid.IntRange(-1, c.Hosts-1), 1, 4).Draw(t, "load on")
		c.Load = func(at time.Duration, h int) float64 {
			switch on := moves[int(at*time.Duration(len(moves))/(c.Length+1))]; {
			case on < 0:
				return 0.8 * float64(c.Rate) / float64(c.Hosts)
			case on == h:
				return 0.8 * float64(c.Rate)
			}
			return 0
		}
		r, err := Run(c)
		if err != nil {
			t.Fatal(err)
		}
		if share := float64(r.Wrong) / math.Max(1, float64(r.Offered)); share > 0.01 {
			t.Fatalf("%d of %d refused where one bucket refuses none", r.Wrong, r.Offered)
		}
	})
}
