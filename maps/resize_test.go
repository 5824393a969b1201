package maps

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

// resizedRules give a source 5 packets an hour to one port, and block who asks
// too much of another.
func resizedRules() []config.Rule {
	return []config.Rule{perSource("all", 1, time.Hour, 5, udpPorts(80)), blocking("game")}
}

func to80(source string) rig.Packet {
	p := from(source)
	p.DstPort = 80
	return p
}

// RC-045: a table that grows and shrinks keeps what each source has spent, and
// who is blocked by a rule's then, also over a restart; programs that work on it
// are put in place once a change.
func TestResize(t *testing.T) {
	rig.RequireRoot(t)
	pins := rig.BPFFS(t)
	calls := 0
	open := func() testGate {
		g, err := Open(Options{Pins: pins, Slots: minSlots, Clock: ClockExact, OnReplace: func(old, next Programs) error {
			calls++
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		return testGate{g, t}
	}
	g := open()
	g.rules(resizedRules()...)
	struck := from("203.0.113.7")
	struck.DstPort = 9000
	g.count(20, struck)
	g.want("strikes", struck)
	g.count(9, to80("203.0.113.5"))
	for i, slots := range []uint32{4 * minSlots, 16 * minSlots, minSlots, 2 * minSlots} {
		lost, err := g.Resize(slots)
		if err != nil || lost != 0 {
			t.Fatalf("resize to %d: %d lost, %v", slots, lost, err)
		}
		if calls != i+1 || g.Slots() != slots || g.stats().Slots != uint64(slots) {
			t.Errorf("%d slots, wanted %d; %d programs put in place", g.Slots(), slots, calls)
		}
		g.want("over_rate", to80("203.0.113.5"))
		g.want("strikes", struck)
		g.want("within_rate", to80(fmt.Sprintf("203.0.113.%d", 100+i)))
	}
	if _, err := g.Resize(2 * minSlots); err != nil || calls != 4 {
		t.Errorf("the same size again: %v, %d programs put in place", err, calls)
	}
	if _, err := g.Resize(5000); err == nil {
		t.Error("resized to 5000 slots")
	}
	g.Close()
	g = open()
	defer g.Close()
	if !g.Adopted() || g.Slots() != 2*minSlots {
		t.Errorf("after a restart: adopted %v, %d slots", g.Adopted(), g.Slots())
	}
	g.want("over_rate", to80("203.0.113.5"))
	g.want("strikes", struck)
}

// A program that cannot be put in place leaves the old table in force, and
// pinned.
func TestResizeRefused(t *testing.T) {
	rig.RequireRoot(t)
	pins := rig.BPFFS(t)
	refuse := errors.New("not now")
	opened, err := Open(Options{Pins: pins, Slots: minSlots, Clock: ClockExact, OnReplace: func(_, _ Programs) error { return refuse }})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	g := testGate{opened, t}
	g.rules(resizedRules()...)
	g.count(9, to80("203.0.113.5"))
	program := g.Program(true)
	if _, err := g.Resize(4 * minSlots); !errors.Is(err, refuse) {
		t.Fatalf("resize: %v", err)
	}
	if g.Program(true) != program || g.Slots() != minSlots {
		t.Errorf("%d slots, another program: %v", g.Slots(), g.Program(true) != program)
	}
	g.want("over_rate", to80("203.0.113.5"))
	p, err := Inspect(pins)
	if err != nil || p.Table.Slots != minSlots || p.Table.Live == 0 {
		t.Errorf("pinned: %+v, %v", p.Table, err)
	}
	refuse = nil
	if _, err := g.Resize(4 * minSlots); err != nil || g.Slots() != 4*minSlots {
		t.Errorf("resize again: %d slots, %v", g.Slots(), err)
	}
}

// RC-045: while packets are judged on other CPUs, no source gets more than its
// burst once more a change of the table, and none loses its bucket.
func TestResizeBesidePackets(t *testing.T) {
	rig.RequireRoot(t)
	var program atomic.Pointer[ebpf.Program]
	opened, err := Open(Options{Slots: minSlots, Clock: ClockExact, OnReplace: func(_, next Programs) error {
		clone, err := next.Frags.Clone() // a packet in flight holds its program
		program.Store(clone)
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	g := testGate{opened, t}
	const burst, sources, resizes = 5, 64, 3
	g.rules(perSource("all", 1, time.Hour, burst, udpPorts(80)))
	first, err := g.Program(true).Clone()
	if err != nil {
		t.Fatal(err)
	}
	program.Store(first)

	var passed [sources]atomic.Int64
	var stop atomic.Bool
	var senders sync.WaitGroup
	var frames [sources][]byte
	for n := range frames {
		p := to80(fmt.Sprintf("203.0.113.%d", n))
		p.Unmarked = true
		frames[n] = p.MustFrame()
	}
	for cpu := range 2 {
		senders.Go(func() {
			for i := cpu; !stop.Load(); i++ {
				n := i % sources
				ret, err := program.Load().Run(&ebpf.RunOptions{Data: frames[n]})
				if err != nil {
					t.Error(err)
					return
				}
				if ret == xdpPass {
					passed[n].Add(1)
				}
			}
		})
	}
	for i := range resizes {
		if _, err := g.Resize([]uint32{4 * minSlots, minSlots}[i%2]); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	senders.Wait()
	for n := range passed {
		if got := passed[n].Load(); got < burst || got > burst*(1+resizes) {
			t.Errorf("source %d: %d passed, want %d to %d", n, got, burst, burst*(1+resizes))
		}
		g.want("over_rate", to80(fmt.Sprintf("203.0.113.%d", n)))
	}
}
