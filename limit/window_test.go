package limit

import (
	"testing"
	"time"
)

func windows(t *testing.T, n int64, per time.Duration) map[string]*direct {
	return map[string]*direct{
		"log":     {s: new(Log), l: mustWindow(t, SlidingLog, n, per)},
		"counter": {s: new(Counter), l: mustWindow(t, SlidingCounter, n, per)},
	}
}

func TestWindowEdge(t *testing.T) {
	for name, k := range windows(t, 100, time.Minute) {
		t.Run(name, func(t *testing.T) {
			// All at the end of one calendar minute, all again at the start of
			// the next: twice the limit for a fixed window.
			now := FromDuration(59 * time.Second)
			for range 100 {
				if !first(k.take(now)) {
					t.Fatal("refused within the limit")
				}
			}
			if first(k.take(now + FromDuration(2*time.Second))) {
				t.Fatal("admitted 101 in a minute")
			}
			for range 100 {
				if !first(k.take(now + FromDuration(time.Minute))) {
					t.Fatal("refused a whole window later")
				}
			}
		})
	}
}

// TestCounterError measures what the counter's doc comment promises.
func TestCounterError(t *testing.T) {
	const n = 1500
	k := &direct{s: new(Counter), l: mustWindow(t, SlidingCounter, n, time.Minute)}
	passed := 0
	for at := time.Duration(0); at < 60*time.Minute; at += 20 * time.Millisecond {
		if first(k.take(FromDuration(at))) {
			passed++
		}
	}
	if least := 60 * n * 15 / 16; passed < least || passed > 60*n {
		t.Fatalf("%d in an hour, want %d to %d", passed, least, 60*n)
	}
}

// RC-030 for windows: new figures bind at once and keep what was counted.
func TestNewWindowKeepsCount(t *testing.T) {
	for name, k := range windows(t, 100, time.Minute) {
		for range 100 {
			k.take(1)
		}
		k.l = mustWindow(t, k.l.algorithm, 10, time.Minute)
		ok, a := k.take(1)
		if ok || a.Remaining != 0 || a.Wait != k.l.window {
			t.Errorf("%s lowered: %v %+v", name, ok, a)
		}
		k.l = mustWindow(t, k.l.algorithm, 200, time.Minute)
		if _, a := k.take(1); a.Remaining != 99 {
			t.Errorf("%s raised: %d left, want 99", name, a.Remaining)
		}
	}
}

func TestClockRunsBackALittle(t *testing.T) {
	for name, k := range windows(t, 2, time.Minute) {
		k.take(1000)
		k.take(900)
		if first(k.take(950)) {
			t.Errorf("%s: a third was admitted", name)
		}
		if !first(k.take(1000 + k.l.window)) {
			t.Errorf("%s: refused when all had left the window", name)
		}
	}
}

func TestHeld(t *testing.T) {
	for _, now := range []Ticks{0, 5, 1 << 63, 1<<64 - 10} {
		var h held
		for m := range uint64(MaxHeld) {
			if !h.hold(Key{m, m}, now, now+100) {
				t.Fatalf("member %d of %d refused at %d", m, MaxHeld, now)
			}
		}
		if h.hold(Key{99, 9}, now, now+100) {
			t.Fatal("a ninth was held")
		}
		if !h.hold(Key{3, 3}, now+50, now+150) || h.used(now) != 1 {
			t.Fatal("a member was not held on")
		}
		if !h.hold(Key{99, 9}, now+100, now+200) || h.used(now+100) != 2.0/MaxHeld {
			t.Fatalf("places are not free at their end: %v used", h.used(now+100))
		}
	}
}
