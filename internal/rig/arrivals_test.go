package rig

import (
	"net/netip"
	"testing"
	"time"
)

// The burst of a schedule is what a bucket needs to pass it.
func TestArrivalsBurst(t *testing.T) {
	at := func(ms ...int) (a Arrivals) {
		for _, m := range ms {
			a = append(a, time.UnixMilli(int64(m)))
		}
		return a
	}
	for _, c := range []struct {
		name string
		a    Arrivals
		want float64
	}{
		{"none", nil, 0},
		{"one", at(0), 1},
		{"at the rate", at(0, 100, 200, 300), 1},
		{"three at once", at(0, 0, 0, 100, 200), 3},
		{"a second burst too early", at(0, 0, 0, 100, 100, 100), 5},
		{"a second burst in time", at(0, 0, 0, 300, 300, 300), 3},
	} {
		if got := c.a.Burst(10); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A torrent numbers each source's packets on its own, loses none by itself, and
// is faster than any socket need be; the receiver stamps what it is asked to.
func TestPour(t *testing.T) {
	n := Net(t)
	l := n.Links[0]
	if err := l.Gate.SetGRO(); err != nil {
		t.Fatal(err)
	}
	first := netip.MustParseAddr("198.18.0.254")
	r := Receive(t, l)
	r.Time(t, first)
	p := Pour(t, l, first, 3, 9000, 250_000)
	time.Sleep(300 * time.Millisecond) // how long it pours
	sent := p.Stop(t)
	report := r.Stop(t)
	if sent.Lost != 0 || sent.Total() == 0 {
		t.Fatalf("sent %+v", sent)
	}
	for i, source := range []string{"198.18.0.254", "198.18.0.255", "198.18.1.0"} {
		got := report.From(netip.MustParseAddr(source))
		if got.Packets != sent.Packets[i] || got.Missing != 0 || got.Duplicates != 0 || got.Reordered != 0 || got.Bytes != torrentSize*got.Packets {
			t.Errorf("%s: %+v of %d arrived", source, got, sent.Packets[i])
		}
	}
	if a := r.Arrivals(first); uint64(len(a)) != sent.Packets[0] {
		t.Errorf("%d times of %d packets", len(a), sent.Packets[0])
	} else if took := a[len(a)-1].Sub(a[0]); took <= 0 || took > sent.Elapsed {
		t.Errorf("they arrived over %v, sent over %v", took, sent.Elapsed)
	}
	t.Logf("%.0f packets a second", sent.Rate())
}
