package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/redisrig"
)

// fleetBench makes a daemon of the fleet at redis, in step with the others.
func fleetBench(t *testing.T, redis, secret string, change ...func(*daemon)) *bench {
	t.Helper()
	b := newBench(t, "")
	if err := os.WriteFile(filepath.Join(b.dir, "fleet.key"), []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	b.write(t, fmt.Sprintf("fleet: {name: test, secret_file: fleet.key, redis: {addresses: [%q]}}", redis))
	b.d = b.daemon(t)
	for _, c := range change {
		c(b.d)
	}
	b.follow(t)
	return b
}

// follow keeps the daemon in step until the test ends or the returned function is
// called.
func (b *bench) follow(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	d := b.d
	go func() { done <- d.keepBoard(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

const aSecret, anotherSecret = "a secret that all hosts share", "a secret of other hosts only"

func (b *bench) holds(t *testing.T, what string, want bool) {
	t.Helper()
	await.For(t, fmt.Sprintf("%s is %v", what, want), func() bool { return strings.Contains(listed(b.d), what) == want })
}

func blockAll(t *testing.T, d *daemon, prefix string, force bool) *FleetReply {
	t.Helper()
	q := EntryRequest{Prefix: netip.MustParsePrefix(prefix), For: 600, Reason: "all", AllHosts: true, Force: force}
	if _, err := d.addEntry(t.Context(), blocks, q, Origin{From: FromCommand, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	return d.tell(t.Context())
}

// What one of 8 hosts blocks all block, and unblock again (RC-095, RC-096).
func TestAllHosts(t *testing.T) {
	t.Parallel()
	s := redisrig.Start(t)
	var all []*bench
	for range 8 {
		all = append(all, fleetBench(t, s.Addr, aSecret))
	}
	for _, b := range all {
		await.For(t, "it is in step", func() bool { st := b.d.boardStatus(t.Context()); return st.Up && len(st.Hosts) == 8 })
	}
	background(t, all[0].d.countHosts)
	await.For(t, "the hosts are counted", func() bool {
		all[0].d.mu.Lock()
		defer all[0].d.mu.Unlock()
		return all[0].d.added.Posted.Hosts == 8
	})
	for i, b := range all {
		p := fmt.Sprintf("203.0.113.%d/32", i)
		await.For(t, "all have it", func() bool { r := blockAll(t, b.d, p, false); return r.Error == "" && r.Have == 8 })
	}
	for i, b := range all {
		for j := range all {
			b.holds(t, fmt.Sprintf("203.0.113.%d ", j), true)
		}
		if st := b.d.boardStatus(t.Context()); st.Entries != 8 || st.Drafts != 0 {
			t.Errorf("host %d: %+v", i, st)
		}
	}
	d := all[3].d
	_, err := d.removeEntry(t.Context(), blocks, EntryRemoval{Prefix: netip.MustParsePrefix("203.0.113.5/32"), AllHosts: true}, Origin{From: FromCommand, By: "ben"})
	if err != nil {
		t.Fatal(err)
	}
	d.tell(t.Context())
	for _, b := range all {
		b.holds(t, "203.0.113.5 ", false)
	}
	if _, err := d.undo(t.Context(), UndoRequest{}, Origin{From: FromCommand, By: "ben"}); err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		b.holds(t, "203.0.113.5 ", true)
	}
}

// A block that would cut a host off from its gateway is set aside there and said
// so, unless it was forced; hosts with another secret take nothing, and what
// nobody of this fleet wrote blocks nobody.
func TestAllHostsAreGuarded(t *testing.T) {
	t.Parallel()
	s := redisrig.Start(t)
	gateway := func(d *daemon) {
		d.gateways = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("198.18.0.1")}, nil }
	}
	a, b, other := fleetBench(t, s.Addr, aSecret), fleetBench(t, s.Addr, aSecret, gateway), fleetBench(t, s.Addr, anotherSecret)
	blockAll(t, a.d, "198.18.0.0/24", false)
	blockAll(t, a.d, "198.18.1.0/24", false)
	b.holds(t, "198.18.1.0/24", true)
	b.holds(t, "198.18.0.0/24", false)
	warned := func() bool {
		return strings.Contains(strings.Join(b.d.snapshot(t.Context()).Config.Warnings, "\n"), "block 198.18.0.0/24, said to all hosts, is not in force on this one: 198.18.0.0/24 holds 198.18.0.1, the default gateway")
	}
	if !warned() {
		t.Errorf("not warned: %v", b.d.snapshot(t.Context()).Config.Warnings)
	}
	blockAll(t, a.d, "198.18.0.0/24", true)
	b.holds(t, "198.18.0.0/24", true)
	if warned() {
		t.Error("warned of what is in force")
	}

	blockAll(t, other.d, "198.18.2.0/24", false)
	await.For(t, "it is posted", func() bool { return other.d.boardStatus(t.Context()).Drafts == 0 })
	await.For(t, "the others saw it", func() bool {
		return strings.Contains(strings.Join(a.d.snapshot(t.Context()).Config.Warnings, "\n"), "was not sealed with this fleet's secret")
	})
	a.holds(t, "198.18.2.0/24", false)
	other.holds(t, "198.18.1.0/24", false)
	await.For(t, "the other secret is told", func() bool {
		n := 0
		for _, h := range a.d.boardStatus(t.Context()).Hosts {
			if h.Other {
				n++
			}
		}
		return n == 1
	})
}

// A host that starts without Redis has what held on all hosts; one that changes
// its fleet has not.
func TestAllHostsWithoutRedis(t *testing.T) {
	t.Parallel()
	s := redisrig.Start(t)
	a := newBench(t, "")
	os.WriteFile(filepath.Join(a.dir, "fleet.key"), []byte(aSecret), 0o600)
	text := fmt.Sprintf("fleet: {name: test, secret_file: fleet.key, redis: {addresses: [%q]}}", s.Addr)
	a.write(t, text)
	a.d = a.daemon(t)
	stop := a.follow(t)
	blockAll(t, a.d, "203.0.113.1/32", false)
	stop()
	s.Kill()
	a.d = a.daemon(t)
	a.holds(t, "203.0.113.1 ", true)
	stop = a.follow(t)
	if r := blockAll(t, a.d, "203.0.113.2/32", false); r.Error == "" || r.Have != 1 {
		t.Errorf("without Redis: %+v", r)
	}
	stop()
	a.d = a.daemon(t)
	a.holds(t, "203.0.113.2 ", true)
	if n := a.d.boardStatus(t.Context()).Drafts; n != 1 {
		t.Errorf("%d wait to be posted", n)
	}
	a.d.mu.Lock()
	next := a.d.added
	next.Posted.Hosts = 7 // as last heard
	err := a.d.store.save(next, a.d.now())
	a.d.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	a.d = a.daemon(t)
	if n := a.d.policy.http().Fleet.Hosts; n != 7 {
		t.Errorf("without Redis it takes itself for one of %d", n)
	}
	a.write(t, strings.Replace(text, "name: test", "name: new", 1))
	a.d = a.daemon(t)
	a.holds(t, "203.0.113", false)
	if n := a.d.policy.http().Fleet.Hosts; n != 1 {
		t.Errorf("in another fleet it takes itself for one of %d", n)
	}
	if !strings.Contains(a.log.String(), "another fleet") {
		t.Errorf("not told:\n%s", a.log)
	}
	a.d.board.Close()
}
