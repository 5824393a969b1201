package limit

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// process is a store as one process has it: with a clock that begins anywhere,
// and rules in an order of its own.
type process struct {
	*Store
	begin  Ticks // its clock at the time 0 of the test
	rules  map[string]*Account
	limits map[string]*Limit
}

var savedBase = time.Date(2027, 3, 31, 22, 59, 30, 0, time.UTC)

// savedRules has each algorithm, twice: figures that fill up soon, and slow ones.
func savedRules(t testing.TB, s *Store) map[string]*Limit {
	hour, err := s.Aligned(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	month, err := s.Calendar(Month, time.UTC, 1)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Limit{}
	put := func(name string, l Limit, err error) {
		if err != nil {
			t.Fatal(err)
		}
		all[name] = &l
	}
	l, err := NewRate(5, time.Minute, 5)
	put("bucket", l, err)
	l, err = NewRate(1000, time.Hour, 7)
	put("bucket-fast", l, err)
	l, err = NewWindow(SlidingLog, 5, time.Minute)
	put("log", l, err)
	l, err = NewWindow(SlidingLog, 30, time.Hour)
	put("log-long", l.CountRefused(), err)
	l, err = NewWindow(SlidingCounter, 20, time.Minute)
	put("counter", l, err)
	l, err = NewWindow(SlidingCounter, 50, time.Hour)
	put("counter-long", l, err)
	l, err = NewTally(9, hour)
	put("window", l, err)
	l, err = NewTally(40, month)
	put("quota", l, err)
	return all
}

func newProcess(t testing.TB, elapsed *time.Duration, begin Ticks, memory int, names []string) *process {
	p := &process{Store: NewStore(memory), begin: begin, rules: map[string]*Account{}}
	p.Hash(NewSecretHasher([]byte("one secret of two processes")))
	p.Wall = func() time.Time { return savedBase.Add(*elapsed) }
	p.limits = savedRules(t, p.Store)
	for _, name := range names {
		p.rules[name] = p.Account(p.Key([]byte(name)), *p.limits[name], 0)
	}
	return p
}

func (p *process) now(elapsed time.Duration) Ticks { return p.begin + FromDuration(elapsed) }

func (p *process) ask(elapsed time.Duration, rule string, who int) (bool, Answer) {
	a := p.rules[rule]
	c := []Charge{{Key: a.Key(p.Key(fmt.Append(nil, "who", who))), Limit: p.limits[rule], Account: a}}
	return p.Take(p.now(elapsed), c), c[0].Answer
}

var savedNames = []string{"bucket", "bucket-fast", "log", "log-long", "counter", "counter-long", "window", "quota"}

// A process that goes on with what another saved decides as that would have, of
// each algorithm, however its clock runs and its rules are ordered.
func TestSavedGoesOn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var elapsed time.Duration
		old := newProcess(t, &elapsed, Ticks(rapid.Uint64().Draw(rt, "old begin")), 1<<20, savedNames)
		step := func() {
			elapsed += time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(rt, "step"))
		}
		names, who := rapid.SampledFrom(savedNames), rapid.IntRange(1, 2)
		for range rapid.IntRange(0, 60).Draw(rt, "before") {
			step()
			old.ask(elapsed, names.Draw(rt, "rule"), who.Draw(rt, "who"))
		}
		var data bytes.Buffer
		done, err := old.Save(&data, old.now(elapsed), 1<<20)
		if err != nil || done.Left > 0 {
			rt.Fatal(done, err)
		}
		saved := elapsed
		step()
		next := newProcess(t, &elapsed, Ticks(rapid.Uint64().Draw(rt, "new begin")), 1<<20, rapid.Permutation(savedNames).Draw(rt, "order"))
		if done, err = next.Restore(data.Bytes(), next.now(elapsed), FromDuration(elapsed-saved)); err != nil || done.Left > 0 {
			rt.Fatal(done, err)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "after") {
			rule, w := names.Draw(rt, "rule"), who.Draw(rt, "who")
			before, after := old.look(elapsed, rule, w), next.look(elapsed, rule, w)
			if later := elapsed + savedStep(old.limits[rule]); before.Remaining != after.Remaining &&
				old.look(later, rule, w).Remaining == next.look(later, rule, w).Remaining {
				return // moments are rounded: what one just forgot, the other is about to
			}
			if !alike(before, after, savedStep(old.limits[rule])) {
				rt.Fatalf("%s at %v: %+v, one process would say %+v", rule, elapsed, after, before)
			}
			was, _ := old.ask(elapsed, rule, w)
			if is, answer := next.ask(elapsed, rule, w); is != was {
				rt.Fatalf("%s at %v: %v %+v, one process would say %v", rule, elapsed, is, answer, was)
			}
			step()
		}
	})
}

func (p *process) look(elapsed time.Duration, rule string, who int) Answer {
	a, _ := p.Look(p.now(elapsed), p.rules[rule].Key(p.Key(fmt.Append(nil, "who", who))), p.limits[rule])
	return a
}

// savedStep is how far moments may be apart in two processes: two steps of the
// grid of logs and counters, or what a calendar's period differs by.
func savedStep(l *Limit) time.Duration { return time.Microsecond + l.Window()/16_000 }

func alike(a, b Answer, within time.Duration) bool {
	near := func(a, b Ticks) bool { return Until(a, b)+Until(b, a) < FromDuration(within) }
	return a.Remaining == b.Remaining && a.Over == b.Over && near(a.Wait, b.Wait) && near(a.Reset, b.Reset)
}

// Whoever was refused is refused, also where a flood of others was saved beside
// and there is no room for all; claimed keys stay held; and keys without room go
// on sharing.
func TestSavedIsBounded(t *testing.T) {
	t.Parallel()
	var elapsed time.Duration
	old := newProcess(t, &elapsed, 0, 4<<20, savedNames)
	for who := range 20_000 {
		old.ask(elapsed, "bucket", who)
	}
	for range 9 {
		for who := range 5 {
			for _, rule := range savedNames[:6] {
				for range 5 {
					old.ask(elapsed, rule, -1-who)
				}
			}
		}
	}
	set, member := old.Key([]byte("set")), func(i int) Key { return old.Key(fmt.Append(nil, "member", i)) }
	for i := range MaxHeld {
		old.Hold(set, member(i), old.now(elapsed), old.now(time.Hour))
	}
	const most = 100_000
	var data bytes.Buffer
	done, err := old.Save(&data, old.now(elapsed), most)
	if err != nil || done.Left < 10_000 || data.Len() > most+1000 {
		t.Fatalf("%+v of %d bytes: %v", done, data.Len(), err)
	}
	elapsed = time.Second
	next := newProcess(t, &elapsed, 1<<50, 4<<20, savedNames)
	if done, err := next.Restore(data.Bytes(), next.now(elapsed), FromDuration(time.Second)); err != nil || done.Keys < 100 {
		t.Fatal(done, err)
	}
	for who := range 5 {
		for _, rule := range savedNames[:6] {
			if ok, _ := old.ask(elapsed, rule, -1-who); ok {
				continue // one that refills fast
			}
			if ok, a := next.ask(elapsed, rule, -1-who); ok {
				t.Errorf("%s of %d, which had refused, passes: %+v", rule, who, a)
			}
		}
	}
	if next.Hold(set, member(MaxHeld), next.now(elapsed), next.now(time.Hour)) {
		t.Error("a ninth key is held")
	}
	if !next.Hold(set, member(3), next.now(elapsed), next.now(time.Hour)) {
		t.Error("a held key is not")
	}
}

// A rule that is gone takes nothing along, and rules that share a slot with it
// get nothing of its.
func TestSavedOfGoneRules(t *testing.T) {
	t.Parallel()
	var elapsed time.Duration
	old := newProcess(t, &elapsed, 0, 1<<20, []string{"log", "bucket"})
	for range 9 {
		old.ask(0, "log", 1)
		old.ask(0, "bucket", 1)
	}
	var data bytes.Buffer
	if _, err := old.Save(&data, 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	next := newProcess(t, &elapsed, 0, 1<<20, []string{"bucket-fast", "log"})
	done, err := next.Restore(data.Bytes(), 0, 0)
	if err != nil || done.Keys != 1 || done.Left != 1 {
		t.Errorf("%+v %v", done, err)
	}
	if ok, _ := next.ask(0, "bucket-fast", 1); !ok {
		t.Error("a new rule begins with another's debt")
	}
	if ok, _ := next.ask(0, "log", 1); ok {
		t.Error("a rule that stayed lost its")
	}
}

// What is cut, changed, of another secret or version is refused as a whole.
func TestSavedThatDoesNotRead(t *testing.T) {
	t.Parallel()
	var elapsed time.Duration
	old := newProcess(t, &elapsed, 0, 1<<20, savedNames)
	for _, rule := range savedNames {
		for range 5 {
			old.ask(0, rule, 1)
		}
	}
	var out bytes.Buffer
	if _, err := old.Save(&out, 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	data := out.Bytes()
	refused := func(what string, s *Store, data []byte) {
		t.Helper()
		if done, err := s.Restore(data, 0, 0); !errors.Is(err, ErrSaved) || done.Keys > 0 || s.Stats().Keys > 0 {
			t.Errorf("%s: %+v %v", what, done, err)
		}
	}
	next := newProcess(t, &elapsed, 0, 1<<20, savedNames)
	for n := range data {
		refused(fmt.Sprint("cut at ", n), next.Store, data[:n])
		bad := bytes.Clone(data)
		bad[n] ^= 1
		refused(fmt.Sprint("changed at ", n), next.Store, bad)
	}
	other := NewStore(1 << 20)
	other.Hash(NewSecretHasher([]byte("another secret")))
	refused("of another secret", other, data)
}

func BenchmarkSave(b *testing.B) {
	var elapsed time.Duration
	old := newProcess(b, &elapsed, 0, 256<<20, savedNames)
	const keys = 500_000
	for who := range keys {
		old.ask(0, "bucket", who)
	}
	for b.Loop() {
		var out bytes.Buffer
		if done, err := old.Save(&out, 0, 1<<30); err != nil || done.Keys < keys {
			b.Fatal(done, err)
		}
		next := newProcess(b, &elapsed, 0, 256<<20, savedNames)
		if done, err := next.Restore(out.Bytes(), 0, 0); err != nil || done.Keys < keys {
			b.Fatal(done, err)
		}
		b.ReportMetric(float64(out.Len())/keys, "bytes/key")
	}
}
