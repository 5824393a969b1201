package maps

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

// hosts are n addresses, one in 200, as far apart as those of published lists.
func hosts(n int) []netip.Prefix {
	all := make([]netip.Prefix, n)
	for i := range all {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 0x0b000000+uint32(i)*200)
		all[i] = netip.PrefixFrom(netip.AddrFrom4(b), 32)
	}
	return all
}

// RC-097: what is the same is not written again, what differs is, and what
// nobody speaks of stays.
func TestSetHeldWritesTheDifference(t *testing.T) {
	g := fixedGate(t)
	g.rules()
	g.lists(Lists{
		Management: []netip.Prefix{netip.MustParsePrefix("11.0.0.0/32")},
		Block:      map[netip.Prefix]time.Time{netip.MustParsePrefix("203.0.113.9/32"): {}},
	})
	all := hosts(1000)
	held := func(netip.Prefix) Held { return Held{Block: true} }
	if err := g.SetHeld(all, held); err != nil {
		t.Fatal(err)
	}
	g.want("block", from("11.0.0.200"))
	g.want("block", from("203.0.113.9"))
	// an entry that another hand took away tells whether it is written again
	g.Gate.lists.prefixes.remove(all[7])
	if err := g.SetHeld(all, held); err != nil {
		t.Fatal(err)
	}
	g.want("no_rule", from(all[7].Addr().String()))
	err := g.SetHeld(all, func(p netip.Prefix) Held {
		switch p {
		case all[7]:
			return Held{Block: true, End: time.Now().Add(time.Hour)}
		case all[8]:
			return Held{Block: true, Allow: true}
		}
		return Held{}
	})
	if err != nil {
		t.Fatal(err)
	}
	g.want("block", from(all[7].Addr().String()))
	g.want("allow", from(all[8].Addr().String()))
	g.want("no_rule", from(all[9].Addr().String()))
	g.want("block", from("203.0.113.9"))
	if o, _ := g.Gate.lists.own.Get(all[0]); o.flags != prefixManagement {
		t.Errorf("the management prefix has flags %d", o.flags)
	}
}

// RC-032: a full table refuses, says so with its bound, and can tell beforehand
// what it lacks.
func TestFullPrefixTable(t *testing.T) {
	rig.RequireRoot(t)
	opened, err := Open(Options{Slots: minSlots, Clock: ClockFixed, Prefixes4: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	opened.SetNow(1)
	g := testGate{opened, t}
	g.rules(perSource("named", 1, time.Hour, 1, config.Match{From: config.Addresses{Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}}))
	all := hosts(120)
	if n4, n6 := g.Lacks(append(all, netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32"))); n4 != 120 || n6 != 1 {
		t.Errorf("lacks %d and %d, want 120 and 1", n4, n6)
	}
	if err := g.SetHeld(all[:99], func(netip.Prefix) Held { return Held{Block: true} }); err != nil {
		t.Fatal(err)
	}
	if v4, v6 := g.Room(); v4 != (Room{100, 100}) || v6 != (Room{0, 1 << 18}) {
		t.Errorf("room %v and %v", v4, v6)
	}
	if err := g.Block(all[99], time.Time{}); err == nil || !strings.Contains(err.Error(), "room for 100") {
		t.Errorf("one too many: %v", err)
	}
	g.want("no_rule", from(all[99].Addr().String()))
	g.want("block", from(all[98].Addr().String()))
	// an error is no end: what makes room lets the next one in
	if err := g.Unblock(all[0]); err != nil {
		t.Fatal(err)
	}
	if err := g.Block(all[99], time.Time{}); err != nil {
		t.Fatal(err)
	}
	g.want("block", from(all[99].Addr().String()))
}

// RC-032: what is pinned goes on under whatever bound the next start has.
func TestBoundOfNextStart(t *testing.T) {
	pins := rig.BPFFS(t)
	all := hosts(101)
	for i, bound := range []uint32{100, 0, 1} {
		g, err := Open(Options{Pins: pins, Slots: minSlots, Clock: ClockFixed, Prefixes4: bound})
		if err != nil {
			t.Fatal(err)
		}
		g.SetNow(1)
		err = g.SetHeld(all, func(netip.Prefix) Held { return Held{Block: true} })
		if (err == nil) != (i > 0) {
			t.Errorf("bound %d: %v", bound, err)
		}
		want := 101
		if i == 0 {
			want = 100
		}
		if v4, _ := g.Room(); v4.Held != want {
			t.Errorf("bound %d: holds %d, want %d", bound, v4.Held, want)
		}
		testGate{g, t}.want("block", from(all[99].Addr().String()))
		g.Close()
	}
}
