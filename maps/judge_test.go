package maps

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

const (
	xdpDrop = 1
	xdpPass = 2
)

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

// judge sends one frame through the program, in each of its two forms where
// they can't differ, and returns the reason that was counted. It fails if not
// exactly one reason was counted once, with the frame's length, and if the
// verdict is not the reason's.
func (g testGate) judge(frame []byte) string {
	g.t.Helper()
	before, err := g.Reasons()
	if err != nil {
		g.t.Fatal(err)
	}
	ret, err := g.Program(true).Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		g.t.Fatal(err)
	}
	after, err := g.Reasons()
	if err != nil {
		g.t.Fatal(err)
	}
	reason := ""
	for i, r := range after {
		switch r.Packets - before[i].Packets {
		case 0:
			continue
		case 1:
		default:
			g.t.Fatalf("one frame was counted %d times as %s", r.Packets-before[i].Packets, r.Reason)
		}
		if reason != "" {
			g.t.Fatalf("one frame has two reasons: %s and %s", reason, r.Reason)
		}
		if bytes := r.Bytes - before[i].Bytes; bytes != uint64(len(frame)) {
			g.t.Fatalf("%s counted %d bytes of a frame of %d", r.Reason, bytes, len(frame))
		}
		if verdict := map[uint32]string{xdpPass: "pass", xdpDrop: "drop"}[ret]; verdict != r.Verdict {
			g.t.Fatalf("verdict %d (%s) with reason %s, which is a %s", ret, verdict, r.Reason, r.Verdict)
		}
		reason = r.Reason
	}
	if reason == "" {
		g.t.Fatal("the frame has no reason")
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
		ret, err := g.Program(true).Run(&ebpf.RunOptions{Data: frame})
		if err != nil {
			g.t.Fatal(err)
		}
		if ret == xdpPass {
			passed++
		}
	}
	return passed
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
	src := netip.MustParseAddr(source)
	dst := netip.MustParseAddr("192.0.2.1")
	if src.Is6() {
		dst = netip.MustParseAddr("2001:db8:ffff::1")
	}
	return rig.Packet{Src: src, Dst: dst, SrcPort: 40000, DstPort: 9000}
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
