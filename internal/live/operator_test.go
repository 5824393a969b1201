package live

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/maps"
)

// delivered is how many of some packets from source arrive.
func (h *host) delivered(source string) (n, of uint64) {
	h.t.Helper()
	r := rig.Receive(h.t, h.link)
	sent := h.flow(1000, 100*time.Millisecond, h.packet(source, 80))()
	return r.Stop(h.t).From(netip.MustParseAddr(source)).Packets, sent.Packets
}

// blocked demands that all packets from source are dropped, or that none is.
func (h *host) blocked(when, source string, want bool) {
	h.t.Helper()
	if n, of := h.delivered(source); want && n != 0 || !want && n != of {
		h.t.Errorf("%s: %d of %d packets from %s were delivered, blocked should be %v", when, n, of, source, want)
	}
}

// RC-007: in an emergency everything passes at once, with the daemon alive or
// dead, until it is taken back, also over a restart, and nobody can forget it.
func TestPanic(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\nblock: [203.0.113.9]\n")
	h.exits(1, []string{"nothing is pinned", "--pins"}, "panic")
	h.start()
	h.blocked("before", "203.0.113.9", true)
	h.do("panic", "--why", "nobody can log in")
	h.blocked("after panic", "203.0.113.9", false)
	if out := h.do("status"); !strings.Contains(out, "THE NETWORK GATE IS OPEN TO EVERYTHING") || !strings.Contains(out, "NOT READY") {
		t.Errorf("status does not shout:\n%s", out)
	}
	h.kill()
	h.exits(1, []string{"THE NETWORK GATE IS OPEN TO EVERYTHING"}, "status")
	h.start()
	h.blocked("after a restart", "203.0.113.9", false)
	h.do("panic", "--off")
	h.blocked("after --off", "203.0.113.9", true)
	h.kill()
	if out := h.do("panic"); !strings.Contains(out, "panic --off") {
		t.Errorf("panic with the daemon dead: %s", out)
	}
	h.blocked("with the daemon dead", "203.0.113.9", false)
	h.do("panic", "--off")
	h.blocked("closed with the daemon dead", "203.0.113.9", true)
	h.start()
	out := h.do("history")
	for _, w := range []string{"panic ", "panic --off", "nobody can log in"} {
		if !strings.Contains(out, w) {
			t.Errorf("history does not say %q:\n%s", w, out)
		}
	}
	if strings.Contains(h.do("status"), "OPEN TO EVERYTHING") {
		t.Error("status still shouts")
	}
}

// RC-007: a config that locks out rolls itself back, also when the daemon is
// killed and started again meanwhile, or stays away until the time is over.
func TestTrialThatNobodyConfirms(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\n")
	h.start()
	text, err := os.ReadFile(h.config())
	if err != nil {
		t.Fatal(err)
	}
	locks := filepath.Join(h.dir, "locks.yaml")
	if err := os.WriteFile(locks, append(text, "block: [203.0.113.9]\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	h.blocked("before", "203.0.113.9", false)

	h.do("apply", locks, "--confirm", "5s")
	h.blocked("on trial", "203.0.113.9", true)
	h.kill()
	h.start()
	h.await("the trial to be rolled back", func() bool { return h.status().Trial == nil })
	h.blocked("after the trial", "203.0.113.9", false)

	h.do("apply", locks, "--confirm", "5s")
	began := time.Now()
	h.kill()
	h.blocked("on trial with the daemon dead", "203.0.113.9", true)
	h.await("the time to be over", func() bool { return time.Since(began) > 5*time.Second })
	h.start()
	h.blocked("after a late start", "203.0.113.9", false)
	if out := h.do("history"); strings.Count(out, "not confirmed in time") != 2 {
		t.Errorf("history:\n%s", out)
	}
	if now, err := os.ReadFile(h.config()); err != nil || string(now) != string(text) {
		t.Errorf("the config is %s, %v", now, err)
	}
}

// RC-134: entries that somebody takes out of the pinned maps, or puts in, are
// noticed and put right while the daemon runs.
func TestMapsEditedBehindTheBack(t *testing.T) {
	h := newHost(t, `
network: {interfaces: [IFACE]}
rules:
  - {name: all, per: source, rate: 1/h, burst: 5}
`)
	h.start()
	h.do("block", "203.0.113.9", "--for", "1h")
	m, err := ebpf.LoadPinnedMap(filepath.Join(maps.MapDir(h.pins), "prefixes4"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for i := range m.MaxEntries() {
		if err := m.Put(i, make([]byte, m.ValueSize())); err != nil {
			t.Fatal(err)
		}
	}
	limits, err := ebpf.LoadPinnedMap(filepath.Join(maps.MapDir(h.pins), "limits"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer limits.Close()
	for i := range limits.MaxEntries() / 2 { // both generations: whichever is in force
		for _, at := range []uint32{i, i + limits.MaxEntries()/2} {
			if i < 4 {
				if err := limits.Put(at, make([]byte, limits.ValueSize())); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	h.await("all to be put right", func() bool { return h.status().Network.MapRepairs >= 2 })
	h.blocked("what was removed", "203.0.113.9", true)
	if n, _ := h.delivered("203.0.113.10"); n != 5 {
		t.Errorf("%d packets of another were delivered, its rule passes 5", n)
	}
	if out := h.do("status"); !strings.Contains(out, "others changed the pinned maps") {
		t.Errorf("status:\n%s", out)
	}
	h.do("block", "203.0.113.9", "--for", "1h")
}
