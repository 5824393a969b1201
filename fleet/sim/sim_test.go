package sim

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// zipf spreads total over hosts so that host n gets 1/n^s as much as the first.
func zipf(total, s float64, hosts int) Load {
	sum := 0.0
	for i := range hosts {
		sum += math.Pow(float64(i+1), -s)
	}
	return func(_ time.Duration, h int) float64 { return total * math.Pow(float64(h+1), -s) / sum }
}

func run(t *testing.T, c Config) *Result {
	t.Helper()
	r, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// One hot key of 1000/s, burst 1000: what the whole fleet admits in 20 s and in
// its worst second, and what it refuses below the limit.
func TestHotKey(t *testing.T) {
	for _, c := range []struct {
		hosts   int
		offered float64
		s       float64 // 0: the same on all hosts
	}{
		{8, 5_000, 0}, {16, 10_000, 1.2}, {64, 100_000, 0}, {64, 100_000, 1.2},
		{8, 800, 0}, {64, 950, 0}, {64, 950, 1.2}, {8, 950, 9},
	} {
		t.Run(fmt.Sprintf("%d hosts, %g/s, zipf %g", c.hosts, c.offered, c.s), func(t *testing.T) {
			t.Parallel()
			r := run(t, Config{Seed: 1, Hosts: c.hosts, Rate: 1000, Burst: 1000, Length: 20 * time.Second, Load: zipf(c.offered, c.s, c.hosts)})
			second := r.Window(time.Second)
			t.Logf("%d of %d admitted, %d by one bucket; %d in the worst second; %d wrongly refused; %.4f calls and %.4f waits a request",
				len(r.Admitted), r.Offered, r.Ideal, second, r.Wrong, float64(r.Calls)/float64(r.Offered), float64(r.Waited)/float64(r.Offered))
			if most := r.Ideal + 250 + 50; len(r.Admitted) > most {
				t.Errorf("%d admitted, at most %d", len(r.Admitted), most)
			}
			if least := r.Ideal * 97 / 100; len(r.Admitted) < least {
				t.Errorf("%d admitted, at least %d", len(r.Admitted), least)
			}
			if most := 2000 * 105 / 100; second > most {
				t.Errorf("%d in the worst second, at most %d", second, most)
			}
			if c.offered < 1000 && r.Wrong*100 > r.Offered {
				t.Errorf("%d of %d refused below the limit", r.Wrong, r.Offered)
			}
		})
	}
}

// It is no limit ÷ N: all load on one host, then on all, then one of them dead,
// and each time the sum is the limit within two seconds. At 80 % nothing is
// refused.
func TestLoadMoves(t *testing.T) {
	const hosts, stage = 4, 10 * time.Second
	for _, offered := range []float64{800, 3000} {
		r := run(t, Config{
			Seed: 7, Hosts: hosts, Rate: 1000, Burst: 1000, Length: 3 * stage,
			Load: func(at time.Duration, h int) float64 {
				switch {
				case at < stage && h > 0:
					return 0
				case at < stage:
					return offered
				case at < 2*stage:
					return offered / hosts
				case h == 2:
					return 0
				}
				return offered / (hosts - 1)
			},
			Events: []Event{{2 * stage, 2, Kill}},
		})
		if offered < 1000 {
			if r.Wrong > 0 {
				t.Errorf("%d of %d refused at %g/s", r.Wrong, r.Offered, offered)
			}
			continue
		}
		for i := range 3 {
			from, to := time.Duration(i)*stage+2*time.Second, time.Duration(i+1)*stage
			rate := float64(r.Between(from, to)) / (to - from).Seconds()
			if rate < 970 || rate > 1030 {
				t.Errorf("stage %d: %.0f/s admitted of %g/s", i, rate, offered)
			}
		}
	}
}

// A fleet without its authority goes on at about the limit, not at N times it,
// and back with it nobody is punished for what was admitted meanwhile.
func TestAuthorityGone(t *testing.T) {
	r := run(t, Config{
		Seed: 3, Hosts: 8, Rate: 1000, Burst: 1000, Length: 40 * time.Second, Load: zipf(3000, 0, 8),
		Events: []Event{{10 * time.Second, 0, Silent}, {30 * time.Second, 0, Speak}},
	})
	for i := range 4 {
		from, to := time.Duration(10*i+2)*time.Second, time.Duration(10*i+10)*time.Second
		if rate := float64(r.Between(from, to)) / 8; rate < 950 || rate > 1050 {
			t.Errorf("%v to %v: %.0f/s admitted", from, to, rate)
		}
	}
}

// The same seed gives the same run.
func TestDeterministic(t *testing.T) {
	c := Config{Seed: 5, Hosts: 5, Rate: 100, Burst: 50, Length: 3 * time.Second, Load: zipf(300, 1, 5), Loss: 0.1}
	a, b := run(t, c), run(t, c)
	if a.Calls != b.Calls || len(a.Admitted) != len(b.Admitted) || a.Admitted[len(a.Admitted)-1] != b.Admitted[len(b.Admitted)-1] {
		t.Errorf("%d calls and %d admitted, then %d and %d", a.Calls, len(a.Admitted), b.Calls, len(b.Admitted))
	}
}
