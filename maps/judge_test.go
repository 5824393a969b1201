package maps

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/packets"
	"github.com/headgate/headgate/internal/rig"
)

const xdpPass = 2

// testGate is a gate without pins whose clock the test sets.
type testGate struct {
	*Gate
	t *testing.T
}

func openGate(t *testing.T, clock Clock, slots uint32) testGate {
	t.Helper()
	rig.RequireRoot(t)
	g, err := Open(Options{Slots: slots, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	if clock == ClockFixed {
		g.SetNow(1)
	}
	return testGate{g, t}
}

// fixedGate opens the smallest table with a clock that stands still.
func fixedGate(t *testing.T) testGate { return openGate(t, ClockFixed, minSlots) }

func (g testGate) rules(rules ...config.Rule) {
	g.t.Helper()
	if err := g.SetRules(rules, config.Management{}, nil); err != nil {
		g.t.Fatal(err)
	}
}

func (g testGate) lists(l Lists) {
	g.t.Helper()
	if err := g.SetLists(l); err != nil {
		g.t.Fatal(err)
	}
}

// advance moves the clock.
func (g testGate) advance(d time.Duration) {
	g.SetNow(g.now() + uint64(d)*ticksPerNano)
}

// SetPrefixes, Advance and Counts make it a packets.Gate.
func (g testGate) SetPrefixes(management, allow, block []netip.Prefix) error {
	l := Lists{Management: management, Allow: allow, Block: map[netip.Prefix]time.Time{}}
	for _, p := range block {
		l.Block[p] = time.Time{}
	}
	return g.SetLists(l)
}

func (g testGate) Advance(d time.Duration) { g.advance(d) }

func (g testGate) Counts() (all []packets.Count, err error) {
	reasons, err := g.Reasons()
	for _, r := range reasons {
		all = append(all, packets.Count(r))
	}
	return all, err
}

// judge sends one frame through the program and returns the reason that was
// counted.
func (g testGate) judge(frame []byte) string {
	g.t.Helper()
	reason, err := packets.Judge(g, frame, 0, true)
	if err != nil {
		g.t.Fatal(err)
	}
	return reason
}

func (g testGate) want(reason string, p rig.Packet) {
	g.t.Helper()
	p.Unmarked = true
	g.wantFrame(reason, p.MustFrame())
}

func (g testGate) wantFrame(reason string, frame []byte) {
	g.t.Helper()
	if got := g.judge(frame); got != reason {
		g.t.Errorf("reason %s, want %s: % x", got, reason, frame[:min(len(frame), 80)])
	}
}

// count sends the packet n times and returns how many passed.
func (g testGate) count(n int, p rig.Packet) (passed int) {
	g.t.Helper()
	p.Unmarked = true
	frame := p.MustFrame()
	for range n {
		if g.send(frame) {
			passed++
		}
	}
	return passed
}

// send sends a frame and reports whether it passed.
func (g testGate) send(frame []byte) bool {
	g.t.Helper()
	ret, err := g.Program(true).Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		g.t.Fatal(err)
	}
	return ret == xdpPass
}

// perSource is a rule of n packets per interval and source.
func perSource(name string, n int64, interval time.Duration, burst int64, m config.Match) config.Rule {
	return config.Rule{
		Name: name, Gate: config.GateNetwork, Match: m, Per: []config.Per{config.PerSource},
		Algorithm: config.TokenBucket, Mode: config.Enforce,
		Rate: config.Rate{Amount: n, Interval: interval, Unit: config.Count}, Burst: burst,
	}
}

func udpPorts(ports ...uint16) config.Match {
	m := config.Match{Protocol: "udp"}
	for _, p := range ports {
		m.Ports = append(m.Ports, config.PortRange{First: p, Last: p})
	}
	return m
}

// from is a UDP packet to port 9000.
func from(source string) rig.Packet {
	p := packets.From(source)
	p.Unmarked = false
	return p
}

func prefixes(list ...string) (ps []netip.Prefix) {
	for _, s := range list {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

func forever(list ...string) map[netip.Prefix]time.Time {
	m := map[netip.Prefix]time.Time{}
	for _, p := range prefixes(list...) {
		m[p] = time.Time{}
	}
	return m
}
