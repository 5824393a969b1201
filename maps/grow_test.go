package maps

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gaissmai/bart"
	"github.com/headgate/headgate/internal/rig"
)

// drawPrefixes draws prefixes of a family that lie close together, so that many
// cover others.
func drawPrefixes(random *rand.Rand, n int, six bool) []netip.Prefix {
	all := make([]netip.Prefix, n)
	for i := range all {
		if six {
			b := [16]byte{0x20, 0x01, 0x0d, 0xb8 + byte(random.IntN(3))}
			binary.BigEndian.PutUint64(b[8:], random.Uint64()&0xff0000000000ffff)
			binary.BigEndian.PutUint32(b[4:], random.Uint32()&0xff0f0003)
			bits := []int{20, 32, 40, 48, 56, 64, 64, 64, 65, 96, 127, 128, 128}[random.IntN(13)]
			all[i] = netip.PrefixFrom(netip.AddrFrom16(b), bits).Masked()
			continue
		}
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], random.Uint32()&0x3f03ffff)
		all[i] = netip.PrefixFrom(netip.AddrFrom4(b), 32-min(random.IntN(40)/2, 24)).Masked()
	}
	return all
}

// inside draws an address in p.
func inside(random *rand.Rand, p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		if random.IntN(2) == 0 {
			b[i/8] |= 0x80 >> (i % 8)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// The tables hold, after growing several times, after half of all is taken out
// again and after a restart, what a plain table of prefixes holds: the program
// judges addresses in and around the prefixes by it.
func TestPrefixTablesGrow(t *testing.T) {
	pins := rig.BPFFS(t)
	open := func() testGate {
		g, err := Open(Options{Pins: pins, Slots: minSlots, Clock: ClockFixed})
		if err != nil {
			t.Fatal(err)
		}
		g.SetNow(1)
		return testGate{g, t}
	}
	random := rand.New(rand.NewPCG(3, uint64(time.Now().UnixNano())))
	g := open()
	// blocked tells whom the model blocks; an allow is a hole in it
	var model bart.Table[Held]
	all := append(drawPrefixes(random, 60_000, false), drawPrefixes(random, 20_000, true)...)
	all = append(all, netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("2001:db8::/31"))
	for _, p := range all {
		model.Insert(p, Held{Allow: random.IntN(3) == 0, Block: true})
	}
	held := func(p netip.Prefix) Held { h, _ := model.Get(p); return h }
	if err := g.SetHeld(all, held); err != nil {
		t.Fatal(err)
	}
	v4, v6 := g.Room()
	if v4.Held != model.Size4() || v6.Held != model.Size6() {
		t.Fatalf("holds %d and %d, want %d and %d", v4.Held, v6.Held, model.Size4(), model.Size6())
	}
	if places := g.Gate.lists.prefixes.tables[0].places(); places < 65_536 {
		t.Fatalf("the table of IPv4 has %d places: it did not grow", places)
	}
	check := func(when string) {
		t.Helper()
		for range 800 {
			a := inside(random, all[random.IntN(len(all))])
			if random.IntN(3) == 0 {
				a = a.Next()
			}
			want := "no_rule"
			for _, h := range model.Supernets(netip.PrefixFrom(a, a.BitLen())) {
				if h.Allow {
					want = "allow"
				} else if h.Block && want == "no_rule" {
					want = "block"
				}
			}
			if got := g.judge(frameOf(a.String())); got != want {
				t.Fatalf("%s: %s: %s, want %s", when, a, got, want)
			}
		}
	}
	check("filled")
	for _, p := range all[:40_000] {
		model.Delete(p)
	}
	if err := g.SetHeld(all[:40_000], held); err != nil {
		t.Fatal(err)
	}
	check("half taken out")
	again := drawPrefixes(random, 30_000, false)
	for _, p := range again {
		model.Insert(p, Held{Block: true})
	}
	if err := g.SetHeld(again, held); err != nil {
		t.Fatal(err)
	}
	check("filled again")
	g.Close()
	g = open()
	defer g.Close()
	if v4, v6 := g.Room(); v4.Held != model.Size4() || v6.Held != model.Size6() {
		t.Errorf("after a restart it holds %d and %d, want %d and %d", v4.Held, v6.Held, model.Size4(), model.Size6())
	}
	check("after a restart")
}

// A program that cannot be put in place leaves the old one and its table in
// force, and what did not fit is told.
func TestGrowRefused(t *testing.T) {
	rig.RequireRoot(t)
	refuse := errors.New("not now")
	calls := 0
	opened, err := Open(Options{Slots: minSlots, Clock: ClockFixed, OnReplace: func(Programs, Programs) error {
		calls++
		return refuse
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	opened.SetNow(1)
	g := testGate{opened, t}
	program := g.Program(true)
	all := hosts(40_000)
	err = g.SetHeld(all, func(netip.Prefix) Held { return Held{Block: true} })
	if !errors.Is(err, refuse) || calls == 0 {
		t.Fatalf("growing: %v after %d calls", err, calls)
	}
	if g.Program(true) != program {
		t.Error("another program is in place")
	}
	v4, _ := g.Room()
	g.want("block", from(all[0].Addr().String()))
	g.want("block", from(all[v4.Held-1].Addr().String()))
	g.want("no_rule", from(all[v4.Held].Addr().String()))
	refuse = nil
	if err := g.SetHeld(all, func(netip.Prefix) Held { return Held{Block: true} }); err != nil {
		t.Fatal(err)
	}
	g.want("block", from(all[39_999].Addr().String()))
}

// What the program looks for an address is where Go has put it: constants and
// hashes are the same on both sides, whatever the seed.
func TestPrefixHashes(t *testing.T) {
	random := rand.New(rand.NewPCG(5, uint64(time.Now().UnixNano())))
	for range 3 {
		g := fixedGate(t)
		for _, p := range append(drawPrefixes(random, 100, false), drawPrefixes(random, 100, true)...) {
			if err := g.Block(p, time.Time{}); err != nil {
				t.Fatal(err)
			}
			if got := g.judge(frameOf(inside(random, p).String())); got != "block" {
				t.Errorf("%s: %s", p, got)
			}
			if err := g.Unblock(p); err != nil {
				t.Fatal(err)
			}
			if ret, err := g.Program(true).Run(&ebpf.RunOptions{Data: frameOf(inside(random, p).String())}); err != nil || ret != xdpPass {
				t.Errorf("%s taken out: verdict %d, %v", p, ret, err)
			}
		}
	}
}

// RC-097: a table that is not crowded has a place for every prefix, whatever the
// seed: else a single block would wait for a larger one.
func TestPrefixTableTakesAllUntilCrowded(t *testing.T) {
	random := rand.New(rand.NewPCG(9, uint64(time.Now().UnixNano())))
	for range 10 {
		table := &prefixTable{lines4: make([]bpfPrefixLine4, 1<<15), mask: 1<<15 - 1, retired: map[uint32]bool{}}
		for i := range table.seed {
			table.seed[i] = random.Uint64() | 1
		}
		for !table.crowded(1) {
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], random.Uint32())
			if p := netip.PrefixFrom(netip.AddrFrom4(b), 32); !table.put(p, bpfPrefix{}) {
				t.Fatalf("no place for %s with %d of %d held", p, table.held, table.places())
			}
		}
	}
}
