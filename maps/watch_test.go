package maps

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"pgregory.net/rapid"
)

// step is a packet some time after the one before.
type step struct {
	gap   time.Duration
	frame []byte
}

// watchRun plays steps to rules that start full, on an empty table, and returns
// what passed and the rules' counters.
func (g testGate) watchRun(rules []config.Rule, steps []step) (passed []bool, counters map[string]Counters) {
	g.t.Helper()
	if err := g.SetRules(rules, config.Management{}, poolLists); err != nil {
		g.t.Fatal(err)
	}
	clear(g.table.lines)
	for _, index := range g.Gate.counters {
		if err := g.clearCounter(index); err != nil {
			g.t.Fatal(err)
		}
	}
	for _, s := range steps {
		g.advance(s.gap)
		passed = append(passed, g.send(s.frame))
	}
	counters, err := g.RuleCounters()
	if err != nil {
		g.t.Fatal(err)
	}
	return passed, counters
}

// inMode are rules with the mode of some of them set.
func inMode(rules []config.Rule, mode func(name string) config.Mode) []config.Rule {
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].Mode = mode(rules[i].Name)
	}
	return rules
}

// drawWatched is a rule of any kind that refuses some of what drawSteps sends.
func drawWatched(rt *rapid.T, name string) config.Rule {
	interval := rapid.SampledFrom([]time.Duration{250 * time.Millisecond, time.Second, time.Minute, time.Hour}).Draw(rt, "interval")
	r := perSource(name, rapid.Int64Range(1, 20).Draw(rt, "amount"), interval, rapid.Int64Range(1, 10).Draw(rt, "burst"), config.Match{})
	r.Per = rapid.SampledFrom([][]config.Per{
		{config.PerSource}, {config.PerSource}, {config.PerDestination}, {config.PerTotal}, {config.PerSource, config.PerDestination},
	}).Draw(rt, "per")
	if rapid.Bool().Draw(rt, "match?") {
		r.Match = rapid.SampledFrom([]config.Match{
			protocol("udp"), protocol("tcp"), udpPorts(53, 9000), {From: config.Addresses{Prefixes: poolPrefixes[:1]}},
			{Except: config.Addresses{Lists: []string{"good"}}},
		}).Draw(rt, "match")
	}
	switch kind := rapid.IntRange(0, 3).Draw(rt, "kind"); {
	case kind == 0:
		r.Rate.Unit, r.Rate.Amount, r.Burst = config.Bytes, r.Rate.Amount*100, r.Burst*100
	case kind == 1 && len(r.Per) == 1 && r.Per[0] == config.PerSource:
		r.Rate.Amount = 1
		r.Unknown = &config.Rate{Amount: rapid.Int64Range(1, 3).Draw(rt, "unknown"), Interval: interval, Unit: config.Count}
	case kind == 2:
		r.Overrides = []config.Override{{From: config.Addresses{Prefixes: poolPrefixes[1:3]}, Rate: r.Rate, Burst: 2 * r.Burst}}
	}
	return r
}

func drawSteps(rt *rapid.T) (steps []step) {
	frames := make([][]byte, rapid.IntRange(1, 10).Draw(rt, "frames"))
	for i := range frames {
		p := drawPacket(rt)
		frames[i] = p.MustFrame()
	}
	gaps := rapid.SampledFrom([]time.Duration{0, 0, 0, time.Millisecond, 100 * time.Millisecond, time.Second, 20 * time.Second})
	for range rapid.IntRange(10, 80).Draw(rt, "packets") {
		steps = append(steps, step{gaps.Draw(rt, "gap"), frames[rapid.IntRange(0, len(frames)-1).Draw(rt, "frame")]})
	}
	return steps
}

// RC-100: rules that watch refuse nothing, whatever they are, and each counts
// as watched exactly what it refuses in a second identical run in which it
// enforces and the others watch.
func TestWatchedIsWhatEnforcingRefuses(t *testing.T) {
	g := fixedGate(t)
	refused := uint64(0)
	rapid.Check(t, func(rt *rapid.T) {
		var rules []config.Rule
		for i := range rapid.IntRange(1, 3).Draw(rt, "rules") {
			rules = append(rules, drawWatched(rt, fmt.Sprintf("r%d", i)))
		}
		steps := drawSteps(rt)
		passed, watched := g.watchRun(inMode(rules, func(string) config.Mode { return config.Watch }), steps)
		if i := slices.Index(passed, false); i >= 0 {
			rt.Fatalf("packet %d was dropped, and all rules watch", i)
		}
		for _, r := range rules {
			passed, counters := g.watchRun(inMode(rules, func(name string) config.Mode {
				if name == r.Name {
					return config.Enforce
				}
				return config.Watch
			}), steps)
			dropped := uint64(0)
			for _, ok := range passed {
				if !ok {
					dropped++
				}
			}
			w, e := watched[r.Name], counters[r.Name]
			if w.WatchedPackets != e.RefusedPackets || w.WatchedBytes != e.RefusedBytes || w.PassedPackets != e.PassedPackets || w.RefusedPackets+e.WatchedPackets != 0 {
				rt.Fatalf("%s watching: %+v; enforcing: %+v; %+v", r.Name, w, e, r)
			}
			if dropped != e.RefusedPackets {
				rt.Fatalf("%s counts %d as refused, %d were dropped", r.Name, e.RefusedPackets, dropped)
			}
			refused += dropped
		}
	})
	if refused == 0 {
		t.Error("nothing was refused in all runs: this test saw nothing")
	}
}

// RC-100: rules that watch change nothing of what enforcing ones do, and count
// as if nothing came but what these let through.
func TestWatchChangesNothing(t *testing.T) {
	g := fixedGate(t)
	both := 0 // runs in which both kinds had something to say
	rapid.Check(t, func(rt *rapid.T) {
		enforcing := []config.Rule{drawWatched(rt, "e0"), drawWatched(rt, "e1")}[:rapid.IntRange(1, 2).Draw(rt, "enforcing")]
		watching := []config.Rule{drawWatched(rt, "w0"), drawWatched(rt, "w1")}[:rapid.IntRange(1, 2).Draw(rt, "watching")]
		for i := range watching {
			watching[i].Mode = config.Watch
			watching[i].Unknown = nil // which is charged first, and not given back
			if slices.Equal(watching[i].Per, []config.Per{config.PerSource}) && rapid.Bool().Draw(rt, "then") {
				watching[i].Then = &config.Then{Block: time.Minute, After: config.Rate{Amount: 1, Interval: time.Second, Unit: config.Count}}
			}
		}
		all := slices.Clone(enforcing) // in their order: the first that refuses counts the packet
		for _, w := range watching {
			all = slices.Insert(all, rapid.IntRange(0, len(all)).Draw(rt, "place"), w)
		}
		steps := drawSteps(rt)
		alone, before := g.watchRun(enforcing, steps)
		beside, after := g.watchRun(all, steps)
		if !slices.Equal(alone, beside) {
			rt.Fatalf("verdicts without watching rules %v, with them %v", alone, beside)
		}
		for _, r := range enforcing {
			if before[r.Name] != after[r.Name] {
				rt.Fatalf("%s alone: %+v, beside watching rules: %+v", r.Name, before[r.Name], after[r.Name])
			}
		}
		_, through := g.watchRun(watching, passedSteps(steps, alone))
		for _, r := range watching {
			if after[r.Name] != through[r.Name] {
				rt.Fatalf("%s beside enforcing rules: %+v, alone with what these let through: %+v", r.Name, after[r.Name], through[r.Name])
			}
			if after[r.Name].WatchedPackets > 0 && slices.Contains(beside, false) {
				both++
			}
		}
	})
	if both == 0 {
		t.Error("no run in which enforcing and watching rules both refused: this test saw nothing")
	}
}

// passedSteps are the steps that passed, at the same times.
func passedSteps(steps []step, passed []bool) (some []step) {
	gap := time.Duration(0)
	for i, s := range steps {
		gap += s.gap
		if passed[i] {
			some = append(some, step{gap, s.frame})
			gap = 0
		}
	}
	return some
}

// RC-100: a watching rule that made a bucket for a packet gives the charge back
// when an enforcing rule refuses it.
func TestWatchIsGivenBack(t *testing.T) {
	g := fixedGate(t)
	watch := perSource("watch", 1, time.Hour, 1, config.Match{})
	watch.Mode = config.Watch
	total := perSource("total", 1, time.Minute, 1, config.Match{})
	total.Per = []config.Per{config.PerTotal}
	g.rules(watch, total)
	g.want("within_rate", from("203.0.113.1"))
	g.want("over_rate", from("203.0.113.2"))
	g.advance(time.Minute)
	g.want("within_rate", from("203.0.113.2"))
	counters, err := g.RuleCounters()
	if err != nil {
		t.Fatal(err)
	}
	if c := counters["watch"]; c.PassedPackets != 2 || c.WatchedPackets != 0 {
		t.Errorf("the watching rule counts %+v, want 2 passed", c)
	}
}
