package maps

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// tagger returns what makes the tag of a source's bucket under a rule.
func (g testGate) tagger(rule string) func(source string) uint64 {
	g.t.Helper()
	ids, err := g.openIDs()
	if err != nil {
		g.t.Fatal(err)
	}
	for identity, id := range ids.ids {
		if name, ok := ruleOfIdentity(identity); ok && name == rule {
			salt := g.table.salt(bpfSlotKindSLOT_RULE, id.Id)
			return func(source string) uint64 {
				hi, lo := sourceKey(netip.MustParseAddr(source), 64)
				return g.table.tag(g.table.hash(hi, lo), salt, bpfSlotKindSLOT_RULE)
			}
		}
	}
	g.t.Fatalf("no rule %s", rule)
	return nil
}

func (g testGate) tagOf(rule, source string) uint64 { return g.tagger(rule)(source) }

func (g testGate) lineOf(tag uint64) uint64 { return (tag >> 32) & uint64(len(g.table.lines)-1) }

func frameOf(source string) []byte {
	p := from(source)
	p.Unmarked = true
	return p.MustFrame()
}

// level is the TAT of a source's bucket, 0 if it has none.
func (g testGate) level(rule, source string) uint64 {
	if s := g.table.find(g.tagOf(rule, source)); s != nil {
		return s.Tat
	}
	return 0
}

// neighbours returns n sources whose buckets lie in one line of the table.
func (g testGate) neighbours(rule string, n int) (sources []string) {
	g.t.Helper()
	var line uint64
	tag := g.tagger(rule)
	for i := range 1 << 20 {
		source := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		l := g.lineOf(tag(source))
		if len(sources) == 0 {
			line = l
		}
		if l == line {
			sources = append(sources, source)
		}
		if len(sources) == n {
			return sources
		}
	}
	g.t.Fatal("too few sources in one line")
	return nil
}

func (g testGate) stats() TableStats {
	g.t.Helper()
	s, err := g.Table()
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// A newcomer takes a free slot, then the place of the live bucket that is
// worth least, never of one that has refused; when all have refused it shares
// the overflow bucket, and is never passed uncounted.
func TestEvictionAndOverflow(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("r", 1, time.Hour, 4, config.Match{}))
	s := g.neighbours("r", 6)
	for i, source := range s[:4] {
		g.count(i+1, from(source)) // the first has the least debt
	}
	if st := g.stats(); st.EvictedLive != 0 || st.Live != 4 {
		t.Fatalf("four sources in four slots: %+v", st)
	}
	g.want("within_rate", from(s[4]))
	if st := g.stats(); st.EvictedLive != 1 {
		t.Fatalf("after a fifth source: %+v", st)
	}
	if g.level("r", s[0]) != 0 || g.level("r", s[1]) == 0 {
		t.Fatal("the newcomer did not take the place of the bucket with the least debt")
	}
	for _, source := range s[1:5] {
		for g.judge(frameOf(source)) != "over_rate" {
		}
	}
	evicted := g.stats().EvictedLive
	// all four have refused: ten times the rate for all that come now
	if passed := g.count(100, from(s[5])) + g.count(100, from(s[0])); passed != 40 {
		t.Errorf("%d passed by the overflow bucket, want ten times the burst of 4", passed)
	}
	g.want("table_full", from(s[5]))
	st := g.stats()
	if st.EvictedLive != evicted || st.Overflowed != 201 {
		t.Errorf("with a full line: %+v, want %d evicted and 201 overflowed", st, evicted)
	}
	for _, source := range s[1:5] {
		g.want("over_rate", from(source))
	}
	// an hour on one packet of each has come back, and slots that are worth
	// nothing are free
	g.advance(5 * time.Hour)
	g.want("within_rate", from(s[5]))
	if g.level("r", s[5]) == 0 {
		t.Error("a dead slot was not claimed")
	}
}

// Other kinds of slot keep their places: a block is never evicted.
func TestBlockSlotsAreNotEvicted(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("r", 1, time.Hour, 4, config.Match{}))
	s := g.neighbours("r", 2)
	line := &g.table.lines[g.lineOf(g.tagOf("r", s[0]))]
	for w := range line.Way {
		line.Way[w].Tag = uint64(w+1)<<40 | uint64(bpfSlotKindSLOT_BLOCK)<<tagKindShift
		line.Way[w].Tat = g.now() + 1<<50
	}
	g.want("within_rate", from(s[0]))
	if g.level("r", s[0]) != 0 || g.stats().Overflowed != 1 {
		t.Error("a block's slot was taken")
	}
	line.Way[2].Tag = uint64(9)<<40 | uint64(bpfSlotKindSLOT_STRIKE)<<tagKindShift
	g.want("within_rate", from(s[1]))
	if line.Way[2].Tag != g.tagOf("r", s[1]) {
		t.Error("a strike's slot was not taken")
	}
}

// The daily sweep frees slots that are worth nothing, and only those.
func TestSweep(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("r", 1, time.Second, 4, config.Match{}))
	for i := range 100 {
		g.count(1, from(fmt.Sprintf("10.0.0.%d", i)))
	}
	g.advance(500 * time.Millisecond)
	g.count(4, from("203.0.113.1"))
	g.advance(500 * time.Millisecond)
	if freed := g.Sweep(); freed != 100 {
		t.Errorf("swept %d slots, want 100", freed)
	}
	g.advance(500 * time.Millisecond) // one packet has come back since the four
	g.want("within_rate", from("203.0.113.1"))
	g.want("over_rate", from("203.0.113.1"))
	if freed := g.Sweep(); freed != 0 {
		t.Errorf("swept %d more", freed)
	}
}

// Tags spread evenly over lines and never collide in practice, for sources
// that count up as those of a flood do.
func TestTagsSpread(t *testing.T) {
	g := fixedGate(t)
	g.rules(perSource("r", 1, time.Hour, 4, config.Match{}))
	const n = 1 << 17
	lines := make([]int, len(g.table.lines))
	tags := make(map[uint64]bool, n)
	salt := g.table.salt(bpfSlotKindSLOT_RULE, firstLimit)
	for i := range uint32(n) {
		hi, lo := sourceKey(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 64)
		tag := g.table.tag(g.table.hash(hi, lo), salt, bpfSlotKindSLOT_RULE)
		tags[tag] = true
		lines[(tag>>32)&uint64(len(lines)-1)]++
	}
	if len(tags) != n {
		t.Errorf("%d different tags of %d sources", len(tags), n)
	}
	mean, chi := float64(n)/float64(len(lines)), 0.0
	for _, l := range lines {
		chi += (float64(l) - mean) * (float64(l) - mean) / mean
	}
	// chi-square with n-1 degrees of freedom: mean n-1, deviation sqrt(2(n-1)).
	// Multiplicative hashing may be more even than chance, never much less.
	degrees := float64(len(lines) - 1)
	if chi > degrees+8*math.Sqrt(2*degrees) {
		t.Errorf("lines are uneven: chi-square %.0f of %.0f degrees", chi, degrees)
	}
}
