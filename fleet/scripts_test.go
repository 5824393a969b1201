package fleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/fleet/credit"
	"github.com/headgate/headgate/internal/redisrig"
	"github.com/headgate/headgate/limit"
)

// debitScript and credit.Authority answer alike, batch by batch, at the moments
// that Redis' own clock gives: any terms, changes of figures, repeated batches,
// several hosts.
func TestDebitIsItsModel(t *testing.T) {
	c := redisrig.Start(t).Client()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for run := range 30 {
		model := credit.NewAuthority()
		seqs := map[string]uint64{}
		prefix := fmt.Sprintf("{%d}", run)
		for range 40 {
			host := fmt.Sprint("h", rng.IntN(3))
			if rng.IntN(6) > 0 {
				seqs[host]++
			}
			seq := max(1, seqs[host])
			var calls []credit.Call
			keys, args := []string{prefix + "n" + host}, []any{host, seq}
			for i := range 1 + rng.IntN(3) {
				call := credit.Call{
					Name:  fmt.Sprint("k", i, rng.IntN(2)),
					Terms: credit.Terms{Cost: []float64{1000, 1000, 333.3333, 20_000_000, 0.4}[rng.IntN(5)], Most: []int64{1, 10, 500}[rng.IntN(3)]},
					Spent: []int64{0, 1, 7, 400}[rng.IntN(4)], Presses: rng.IntN(2) == 0,
					Share: rng.Float64() / 2, Demand: float64(rng.IntN(1000)),
				}
				if call.Name[1] == '2' { // a name is of one kind
					call.Terms = credit.Terms{Most: 500, End: time.Now().Add(time.Hour).Truncate(time.Hour).UnixMicro(), Next: time.Now().Add(2 * time.Hour).Truncate(time.Hour).UnixMicro()}
				}
				calls = append(calls, call)
				presses := 0
				if call.Presses {
					presses = 1
				}
				keys = append(keys, prefix+call.Name, prefix+"s"+call.Name)
				args = append(args, number(call.Terms.Cost), call.Terms.Most, call.Terms.End, call.Terms.Next, call.Spent, presses, number(call.Share), number(call.Demand))
			}
			reply, err := debit.Run(t.Context(), c, keys, args...).Slice()
			if err != nil {
				t.Fatal(err)
			}
			n := numbers{words: reply}
			now := n.int()
			for i, want := range model.Batch(now, host, seq, calls) {
				left, share, wait := n.int(), n.float(), n.int()
				if left != want.Left || wait != want.Wait || math.Abs(share-want.Share) > 1e-9 {
					t.Fatalf("seed %d: %+v\nis answered left %d, share %v, wait %d, the model says %+v", seed, calls[i], left, share, wait, want)
				}
			}
			if n.err != nil || len(n.words) > 0 {
				t.Fatalf("%v, %d words too many", n.err, len(n.words))
			}
		}
	}
	expires(t, c)
}

// expires fails for each key that has no end (RC-005, RC-128).
func expires(t *testing.T, c *redis.Client) {
	t.Helper()
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if c.PTTL(t.Context(), k).Val() == -1 {
			t.Errorf("%s has no end", k)
		}
	}
}

// decider asks decide.lua as a member does.
type decider struct {
	t *testing.T
	c *redis.Client
	n int
}

func (d *decider) ask(name string, l *limit.Limit) (now limit.Ticks, told limit.Told) {
	d.t.Helper()
	d.n++
	c := limit.Charge{Limit: l}
	args := append([]any{fmt.Sprint("w", d.n), "ask"}, describe(limit.FromDuration(time.Since(start)), &c)...)
	reply, err := decide.Run(d.t.Context(), d.c, []string{name}, args...).Slice()
	q := question{told: make([]limit.Told, 1)}
	if q.hear(reply, err); q.err != nil {
		d.t.Fatal(q.err)
	}
	stand(l, &q.told[0])
	at := numbers{words: reply}
	return limit.FromDuration(time.Duration(at.int()) * time.Microsecond), q.told[0]
}

var start = time.Now()

// The exact scope decides as limit does on one host: every algorithm, at the
// moments that Redis' clock gives. What is left, too.
func TestExactDecidesAsOneHost(t *testing.T) {
	c := redisrig.Start(t).Client()
	rate := func(n int64, per time.Duration, burst int64) limit.Limit {
		l, _ := limit.NewRate(n, per, burst)
		return l
	}
	window := func(a limit.Algorithm, n int64, w time.Duration) limit.Limit {
		l, _ := limit.NewWindow(a, n, w)
		return l
	}
	for name, l := range map[string]limit.Limit{
		"bucket":  rate(200, time.Second, 7),
		"slow":    rate(1, time.Hour, 3),
		"log":     window(limit.SlidingLog, 5, 40*time.Millisecond),
		"counter": window(limit.SlidingCounter, 20, 60*time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared, err := l.Shared(limit.Exact, limit.NewFleet(50*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			d := &decider{t: t, c: c}
			store := limit.NewStore(1 << 20)
			// A host rounds moments up by 1/32000 of the window at most, and so may
			// take a request that comes right at an end for one before it. Then both
			// begin anew.
			anew, most := 0, 0
			if l.Algorithm() == limit.SlidingLog || l.Algorithm() == limit.SlidingCounter {
				most = 12
			}
			passed, refused := 0, 0
			for i := range 400 {
				of := fmt.Sprint(name, anew)
				now, told := d.ask(of, &shared)
				charge := []limit.Charge{{Key: store.Key([]byte(of)), Limit: &l}}
				ok := store.Take(now, charge)
				us := limit.FromDuration(time.Microsecond)
				a, b := told.Answer.Wait, charge[0].Answer.Wait
				if ok != told.Admitted || charge[0].Answer.Remaining != told.Answer.Remaining || max(a, b)-min(a, b) > 2*us {
					if anew++; anew > most {
						t.Fatalf("request %d: Redis says %v with %d left and to wait %v, one host %v with %d and %v", i,
							told.Admitted, told.Answer.Remaining, limit.ToDuration(a), ok, charge[0].Answer.Remaining, limit.ToDuration(b))
					}
					continue
				}
				if ok {
					passed++
				} else {
					refused++
				}
				if i%50 == 49 {
					time.Sleep(25 * time.Millisecond) // real time is the test's clock
				}
			}
			if passed == 0 || refused == 0 {
				t.Errorf("%d passed and %d refused: one of both was not tested", passed, refused)
			}
			expires(t, c)
		})
	}
}

// A fixed window is cut by Redis' clock and lets exactly its limit through.
func TestExactWindows(t *testing.T) {
	c := redisrig.Start(t).Client()
	d := &decider{t: t, c: c}
	store := limit.NewStore(1 << 20)
	aligned, err := store.Aligned(300 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	l, err := limit.NewTally(10, aligned)
	if err != nil {
		t.Fatal(err)
	}
	l, _ = l.Shared(limit.Exact, limit.NewFleet(50*time.Millisecond))
	windows := map[limit.Ticks]int{}
	const length = 300 * time.Millisecond
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if _, told := d.ask("w", &l); told.Admitted {
			windows[uint64(time.Now().UnixMicro())/uint64(length.Microseconds())]++ // it is the same clock
		} else if told.Wait == 0 || limit.ToDuration(told.Wait) > length {
			t.Fatalf("refused, and to wait %v", limit.ToDuration(told.Wait))
		}
	}
	// An answer may be seen after the window it was given in.
	if sum, least := sum(windows), 10*(len(windows)-1); sum < least || sum > 10*(len(windows)+1) {
		t.Errorf("%d passed in %d windows", sum, len(windows))
	}
	expires(t, c)
}

// RC-005: a key without an end, or with a value that none of ours wrote, keeps
// nobody out: it is served again, and has an end.
func TestPlantedKeys(t *testing.T) {
	s := redisrig.Start(t)
	c := s.Client()
	d := &decider{t: t, c: c}
	l, _ := limit.NewRate(10, time.Second, 5)
	l, _ = l.Shared(limit.Exact, limit.NewFleet(50*time.Millisecond))
	for name, plant := range map[string]func(key string) error{
		"far in the future": func(k string) error { return c.Set(t.Context(), k, "99999999999999999 100000", 0).Err() },
		"no number":         func(k string) error { return c.Set(t.Context(), k, "soon", 0).Err() },
		"another type":      func(k string) error { return c.LPush(t.Context(), k, "1").Err() },
		"empty":             func(k string) error { return c.Set(t.Context(), k, "", 0).Err() },
		"not a number":      func(k string) error { return c.Set(t.Context(), k, "nan nan", 0).Err() },
	} {
		if err := plant(name); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if _, told := d.ask(name, &l); told.Admitted {
				break
			}
			if time.Now().After(end) {
				t.Errorf("%s: kept out", name)
				break
			}
		}
	}
	expires(t, c)
}

func sum(m map[limit.Ticks]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}
