package maps

import (
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/packets"
	"github.com/headgate/headgate/internal/rig"
)

// The tc program says of every shape of frame what the XDP program says, and
// counts it as the same reason with the same length. (A test run hands it the
// frame with its tags in place.)
func TestCoverJudgesAsTheGate(t *testing.T) {
	g := openGate(t, ClockExact, minSlots) // the tc program has no other clock
	g.rules(perSource("tagged", 1000, time.Second, 1000, config.Match{VLANs: []uint16{10}}))
	g.lists(Lists{
		Allow: prefixes("198.51.100.7/32", "2001:db8:bad:7::7/128"),
		Block: forever("198.51.100.0/24", "2001:db8:bad::/48"),
	})
	cover, err := g.LoadCover()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cover.Close() })
	for _, source := range []string{"198.51.100.9", "198.51.100.7", "203.0.113.5", "2001:db8:bad::9", "2001:db8:bad:7::7", "2001:db8:1::5"} {
		for name, dress := range packets.Dress(strings.Contains(source, ":")) {
			t.Run(source+" "+name, func(t *testing.T) {
				g := testGate{g.Gate, t}
				p := from(source)
				dress(&p)
				p.Unmarked = true
				frame := p.MustFrame()
				want := g.judge(frame)
				if got := g.judgeCover(cover, frame); got != want {
					t.Errorf("the tc program says %s, the XDP program %s", got, want)
				}
			})
		}
	}
}

// judgeCover is judge with the tc program.
func (g testGate) judgeCover(cover *ebpf.Program, frame []byte) (reason string) {
	g.t.Helper()
	const goOn, shot = ^uint32(0), 2
	before, err := g.Reasons()
	if err != nil {
		g.t.Fatal(err)
	}
	ret, err := cover.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		g.t.Fatal(err)
	}
	after, err := g.Reasons()
	if err != nil {
		g.t.Fatal(err)
	}
	for i, r := range after {
		if r.Packets == before[i].Packets {
			continue
		}
		if bytes := r.Bytes - before[i].Bytes; bytes != uint64(len(frame)) {
			g.t.Errorf("%s counted %d bytes of a frame of %d", r.Reason, bytes, len(frame))
		}
		if verdict := map[uint32]string{goOn: "pass", shot: "drop"}[ret]; verdict != r.Verdict {
			g.t.Errorf("verdict %d with reason %s, which is a %s", int32(ret), r.Reason, r.Verdict)
		}
		reason += r.Reason
	}
	return reason
}

// The tc program can be loaded beside the gate again and again: an attach mode
// may change many times.
func TestCoverLoadsAgain(t *testing.T) {
	rig.RequireRoot(t)
	g := fixedGate(t)
	for range 3 {
		cover, err := g.LoadCover()
		if err != nil {
			t.Fatal(err)
		}
		cover.Close()
	}
}
