package daemon

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/maps"
)

// farApart are n IPv4 addresses, spread as in published lists, and for each
// five of them an IPv6 prefix.
func farApart(n int) []netip.Prefix {
	var all []netip.Prefix
	for i := range n {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 0x0b000000+uint32(i)*200)
		all = append(all, netip.PrefixFrom(netip.AddrFrom4(b), 32))
		if i%5 == 0 {
			a := [16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8}
			binary.BigEndian.PutUint32(a[4:], uint32(i))
			all = append(all, netip.PrefixFrom(netip.AddrFrom16(a), 64))
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}

// gated is a bench whose daemon holds a network gate that is attached nowhere.
func gated(t testing.TB, o maps.Options) *bench {
	t.Helper()
	rig.RequireRoot(t)
	b := newBench(t, "")
	o.Slots = 4096
	g, err := maps.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	b.d.network.gate = g
	return b
}

func batch(prefixes []netip.Prefix, reason string) BatchRequest {
	return BatchRequest{Prefixes: prefixes, Ever: true, Reason: reason}
}

// inForce are the blocks that the network gate holds.
func (b *bench) inForce(t testing.TB) map[netip.Prefix]time.Time {
	t.Helper()
	held, err := b.d.network.gate.Blocks()
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// RC-032: too many are refused before anything changes, with the number that is
// needed and the number there is room for.
func TestBatchTooLarge(t *testing.T) {
	b := gated(t, maps.Options{Prefixes4: 10000})
	if _, err := b.d.addEntry(context.Background(), blocks, EntryRequest{Prefix: netip.MustParsePrefix("203.0.113.9/32"), Ever: true}, Origin{}); err != nil {
		t.Fatal(err)
	}
	_, err := b.d.addBatch(context.Background(), blocks, batch(farApart(12000), ""), Origin{})
	if codeOf(err) != 409 || !strings.Contains(err.Error(), "12001") || !strings.Contains(err.Error(), "10000") {
		t.Errorf("12000 more in a table of 10000: %v", err)
	}
	if n := len(b.inForce(t)); n != 1 {
		t.Errorf("%d blocks are in force, want the 1 from before", n)
	}
	if got := b.d.entries(blocks).Entries; len(got) != 1 {
		t.Errorf("%d blocks are listed, want 1", len(got))
	}
	if n := len(b.daemon(t).entries(blocks).Entries); n != 1 {
		t.Errorf("after a restart there are %d, want 1", n)
	}
	// to the last place, and not one more
	four := slices.DeleteFunc(farApart(9999), func(p netip.Prefix) bool { return p.Addr().Is6() })
	if _, err := b.d.addBatch(context.Background(), blocks, batch(four, ""), Origin{}); err != nil {
		t.Fatal(err)
	}
	_, err = b.d.addEntry(context.Background(), blocks, EntryRequest{Prefix: netip.MustParsePrefix("203.0.113.10/32"), Ever: true}, Origin{})
	if err == nil || !strings.Contains(err.Error(), "room for 10000") {
		t.Errorf("one more in a full table: %v", err)
	}
	if n := len(b.inForce(t)); n != 10000 {
		t.Errorf("%d blocks are in force, want 10000", n)
	}
}

// RC-032: a table that is nearly full warns, from 80 % on.
func TestRoomWarns(t *testing.T) {
	for _, c := range []struct {
		r    Room
		want int
	}{{Room{0, 100}, 0}, {Room{79, 100}, 0}, {Room{80, 100}, 1}, {Room{100, 100}, 1}} {
		if got := c.r.warn("IPv4"); len(got) != c.want {
			t.Errorf("%v: %q", c.r, got)
		}
	}
}

// RC-097: while a long list goes in, single changes come through between two
// lots, and none of them is lost, whichever came first.
func TestSingleChangesDuringBatch(t *testing.T) {
	const n = 60000
	b := gated(t, maps.Options{})
	ctx := context.Background()
	all := farApart(n * 5 / 6)
	first, last := all[0], all[len(all)-1]
	state := b.d.added
	state.BlockImports = bulks{{prefixes: all}}
	if err := b.d.keepImports(state.BlockImports); err != nil {
		t.Fatal(err)
	}
	b.d.mu.Lock()
	if err := b.d.commit(ctx, state, nothing); err != nil {
		t.Fatal(err)
	}
	jobs := slices.Clone(b.d.filling)
	b.d.mu.Unlock()
	if !b.d.fillSome(ctx) {
		t.Fatal("nothing to fill in")
	}
	if got := len(b.inForce(t)); got != fillLot {
		t.Fatalf("after one lot %d are in force, want %d", got, fillLot)
	}
	one := netip.MustParsePrefix("203.0.113.9/32")
	if _, err := b.d.addEntry(ctx, blocks, EntryRequest{Prefix: one, For: 600}, Origin{}); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.inForce(t)[one]; !ok || b.d.unfilled.Load() == 0 {
		t.Fatalf("a single block is in force: %v, with %d of the list left", ok, b.d.unfilled.Load())
	}
	// one that is there already and one that is yet to come are taken out
	for _, p := range []netip.Prefix{first, last} {
		if _, err := b.d.removeEntry(ctx, blocks, EntryRemoval{Prefix: p}, Origin{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.d.fillIn(ctx, jobs); err != nil {
		t.Fatal(err)
	}
	want := map[netip.Prefix]bool{one: true}
	for _, p := range all[1 : len(all)-1] {
		want[p] = true
	}
	got := b.inForce(t)
	for p := range got {
		if !want[p] {
			t.Errorf("%s is blocked", p)
		}
	}
	if len(got) != len(want) || b.d.unfilled.Load() != 0 {
		t.Errorf("%d blocks, want %d; %d are left", len(got), len(want), b.d.unfilled.Load())
	}
}

// The same with both at once, for the race detector, and with a restart.
func TestBatchBesideSingles(t *testing.T) {
	b := gated(t, maps.Options{})
	all := farApart(6000)
	done := make(chan error, 1)
	go func() {
		_, err := b.d.addBatch(context.Background(), blocks, batch(all, "list"), Origin{})
		done <- err
	}()
	singles := farApart(7000)[8300:]
	singles = slices.DeleteFunc(singles, func(p netip.Prefix) bool { _, ok := slices.BinarySearchFunc(all, p, netip.Prefix.Compare); return ok })[:40]
	for _, p := range singles {
		if _, err := b.d.addEntry(context.Background(), blocks, EntryRequest{Prefix: p, Ever: true}, Origin{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := len(all) + len(singles)
	if n := len(b.inForce(t)); n != want {
		t.Errorf("%d blocks, want %d", n, want)
	}
	again := b.daemon(t)
	if n := len(again.entries(blocks).Entries); n != want {
		t.Errorf("after a restart %d blocks, want %d", n, want)
	}
	if n := len(again.policy.lists().Block); n != want {
		t.Errorf("after a restart the network gate gets %d, want %d", n, want)
	}
	if n := len(again.policy.http().Block); n != want {
		t.Errorf("after a restart the HTTP gate gets %d, want %d", n, want)
	}
}

// What imports of one reason make of each other, with ends and without.
func TestImportsJoin(t *testing.T) {
	now := time.Now()
	all := farApart(10)
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	holding := func(end time.Time, reason string, prefixes ...netip.Prefix) *bulk {
		return &bulk{End: end, Reason: reason, prefixes: prefixes}
	}
	for _, c := range []struct {
		name  string
		old   bulks
		fresh *bulk
		want  BatchReply
		sizes []int
	}{
		{"the first", nil, holding(at(5), "", all...), BatchReply{Added: 12}, []int{12}},
		{"another reason", bulks{holding(at(5), "x", all...)}, holding(at(5), "y", all...), BatchReply{Added: 12}, []int{12, 12}},
		{"the same again", bulks{holding(time.Time{}, "", all...)}, holding(time.Time{}, "", all...), BatchReply{Unchanged: 12}, []int{12}},
		{"a day's news", bulks{holding(time.Time{}, "", all[:8]...)}, holding(time.Time{}, "", all[2:]...), BatchReply{Added: 4, Unchanged: 6}, []int{12}},
		{"later", bulks{holding(at(5), "", all[:8]...)}, holding(at(9), "", all[2:]...), BatchReply{Added: 4, Extended: 6}, []int{2, 10}},
		{"all later", bulks{holding(at(5), "", all...)}, holding(at(9), "", all...), BatchReply{Extended: 12}, []int{12}},
		{"sooner", bulks{holding(at(9), "", all[:8]...)}, holding(at(5), "", all[2:]...), BatchReply{Added: 4, Longer: 6}, []int{8, 4}},
		{"one was taken out", bulks{holding(time.Time{}, "", all...).without(all[3])}, holding(time.Time{}, "", all...), BatchReply{Added: 1, Unchanged: 11}, []int{12}},
	} {
		m := c.old.with(c.fresh)
		var sizes []int
		for _, b := range m.next {
			sizes = append(sizes, b.size())
			if !slices.IsSortedFunc(b.prefixes, netip.Prefix.Compare) {
				t.Errorf("%s: not sorted", c.name)
			}
		}
		if m.reply != c.want || !slices.Equal(sizes, c.sizes) {
			t.Errorf("%s: %+v in lists of %v, want %+v in %v", c.name, m.reply, sizes, c.want, c.sizes)
		}
	}
}

// An import ends as a whole, and its file goes with the next change of imports.
func TestImportEnds(t *testing.T) {
	b := newBench(t, "")
	now := time.Now()
	b.d.now = func() time.Time { return now }
	q := BatchRequest{Prefixes: farApart(10), For: 60}
	if _, err := b.d.addBatch(context.Background(), blocks, q, Origin{}); err != nil {
		t.Fatal(err)
	}
	if next, ok := b.d.added.nextEnd(); !ok || !next.Equal(now.Add(time.Minute)) {
		t.Errorf("the next end is %v, %v", next, ok)
	}
	now = now.Add(time.Minute)
	if err := b.d.dropEnded(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := len(b.d.entries(blocks).Entries); n != 0 {
		t.Errorf("%d blocks after their end", n)
	}
	if _, err := b.d.addBatch(context.Background(), allows, batch(farApart(3), ""), Origin{}); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(b.d.store.imports())
	if err != nil || len(files) != 1 {
		t.Errorf("%d files of imports are left, want 1: %v", len(files), err)
	}
}

// A daemon does not start with half of its blocks: a file of an import that is
// damaged or gone is named.
func TestDamagedImport(t *testing.T) {
	b := newBench(t, "")
	if _, err := b.d.addBatch(context.Background(), blocks, batch(farApart(10), ""), Origin{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(b.d.store.imports(), b.d.added.BlockImports[0].File)
	if err := os.WriteFile(path, []byte("192.0.2.1/32\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.d.store.load(time.Now()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged file: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := b.d.store.load(time.Now()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
}

// A batch of bad prefixes or times is refused as a single entry is.
func TestBatchRefuses(t *testing.T) {
	b := newBench(t, "network: {management: {sources: [10.0.0.0/8], ports: [tcp/22]}}")
	good := farApart(3)
	for _, c := range []struct {
		q    BatchRequest
		code int
	}{
		{BatchRequest{Ever: true}, 400},
		{BatchRequest{Prefixes: good}, 400},
		{BatchRequest{Prefixes: good, Ever: true, For: 5}, 400},
		{BatchRequest{Prefixes: append(slices.Clip(good), netip.MustParsePrefix("192.0.2.1/24")), Ever: true}, 400},
		{BatchRequest{Prefixes: append(slices.Clip(good), netip.MustParsePrefix("10.1.0.0/16")), Ever: true}, 409},
		{BatchRequest{Prefixes: good, Ever: true, Peer: good[0].Addr()}, 409},
	} {
		if _, err := b.d.addBatch(context.Background(), blocks, c.q, Origin{}); err == nil || codeOf(err) != c.code {
			t.Errorf("%v: %v, want code %d", c.q, err, c.code)
		}
	}
	if n := len(b.d.entries(blocks).Entries); n != 0 {
		t.Errorf("%d blocks came of it", n)
	}
}
