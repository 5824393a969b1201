package live

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/internal/rig"
)

// RC-045: whatever is done to the daemon, there is never a gap. Four sources
// send in turn, together faster than 200 000 packets a second, while it is done.
// HEADGATE_SOAK=1 does it as often as the case says, without it a few times.

const (
	gapRate  = 250_000 // packets a second of all sources
	gapLimit = 100     // rate and burst of the limited source
)

// In the order of their addresses.
var (
	gapLimited = netip.MustParseAddr("198.18.0.4")
	gapStruck  = netip.MustParseAddr("198.18.0.5") // blocked in the data path, by then
	gapBlocked = netip.MustParseAddr("198.18.0.6")
	gapAllowed = netip.MustParseAddr("198.18.0.7") // by an exception of what is blocked
)

const gapConfig = `
network: {interfaces: [IFACE], slots: SLOTS}
allow: [198.18.0.7]
block: [198.18.0.6/31]
rules:
  - {name: limited, match: {from: [198.18.0.4]}, per: source, rate: 100/s, burst: 100}
  - {name: struck, match: {from: [198.18.0.5]}, per: source, rate: 10/s, burst: 10, then: {block: 1h, after: 10/1s}}
`

func gapText(slots int) string {
	return strings.ReplaceAll(gapConfig, "SLOTS", fmt.Sprint(slots))
}

// often is how often something is done: soak times, or a few.
func often(few, soak int) int {
	if os.Getenv("HEADGATE_SOAK") != "" {
		return soak
	}
	return few
}

// newGapHost is a host on which the four sources are what they are to be.
func newGapHost(t *testing.T) *host {
	h := newHost(t, gapText(65536))
	if err := h.link.Gate.SetGRO(); err != nil {
		t.Fatal(err)
	}
	h.start()
	p := h.pour()
	h.await("the source to be blocked in the data path", func() bool { return strings.Contains(h.do("blocks"), gapStruck.String()) })
	p.Stop(t)
	return h
}

func (h *host) pour() *rig.Torrent {
	h.t.Helper()
	return rig.Pour(h.t, h.link, gapLimited, 4, 9000, gapRate)
}

// gaps lets the four sources send while something is done, which returns how
// often a bucket table was replaced, and says what came through that must not.
func (h *host) gaps(do func() (swaps int)) (faults []string) {
	h.t.Helper()
	r := rig.Receive(h.t, h.link)
	r.Time(h.t, gapLimited)
	p := h.pour()
	swaps := do()
	sent := p.Stop(h.t)
	report := r.Stop(h.t)
	if sent.Lost != 0 {
		h.t.Errorf("the harness itself lost %d packets", sent.Lost)
	}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, source := range []netip.Addr{gapBlocked, gapStruck} {
		if got := report.From(source); got.Packets != 0 {
			fault("%d packets of the blocked source %s were delivered", got.Packets, source)
		}
	}
	if got := report.From(gapAllowed); got.Packets != sent.Packets[3] || got.Missing != 0 || got.Duplicates != 0 {
		fault("the allowed source: %+v of %d delivered", got, sent.Packets[3])
	}
	// the stamps are taken a moment after the verdicts
	const jitter = 50 * time.Millisecond
	most := gapLimit*float64(1+swaps) + gapLimit*jitter.Seconds()
	if burst := r.Arrivals(gapLimited).Burst(gapLimit); burst > most {
		fault("a window of the limited source exceeds rate·T by %.1f, its bound is %.1f", burst, most)
	}
	h.t.Logf("%d packets in %v, %.0f a second", sent.Total(), sent.Elapsed.Round(time.Millisecond), sent.Rate())
	return faults
}

// noGap is gaps where there must be none.
func (h *host) noGap(do func() (swaps int)) {
	h.t.Helper()
	for _, fault := range h.gaps(do) {
		h.t.Error(fault)
	}
}

// The control: a gap of 1 ms is seen.
func TestGapIsSeen(t *testing.T) {
	h := newGapHost(t)
	faults := h.gaps(func() int {
		time.Sleep(100 * time.Millisecond) // the flood is under way
		h.detachFor(time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		return 0
	})
	if text := strings.Join(faults, "; "); !strings.Contains(text, "blocked source "+gapBlocked.String()) || !strings.Contains(text, "blocked source "+gapStruck.String()) {
		t.Errorf("a detach of 1 ms was not seen: %s", text)
	} else {
		t.Log(text)
	}
}

// detachFor takes the program off the interface and puts it back.
func (h *host) detachFor(d time.Duration) {
	h.t.Helper()
	pin := filepath.Join(h.pins, "links", h.link.Gate.Interface)
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		h.t.Fatal(err)
	}
	program, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		h.t.Fatal(err)
	}
	defer program.Close()
	if err := l.Detach(); err != nil {
		h.t.Fatal(err)
	}
	time.Sleep(d)
	var again link.Link
	err = rig.Run(h.link.Gate.NS, func() (err error) {
		again, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: h.link.Gate.Index})
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { again.Close() })
}

func TestNoGapInReloads(t *testing.T) {
	h := newGapHost(t)
	h.noGap(func() int {
		for i := range often(10, 100) {
			// each has a rule more or less than the one before
			text := gapText(65536)
			if i%2 == 0 {
				text += "  - {name: other, match: {protocol: udp, ports: [7]}, per: source, rate: 1/s}\n"
			}
			h.write(text)
			h.do("reload")
		}
		return 0
	})
}

func TestNoGapInRestarts(t *testing.T) {
	h := newGapHost(t)
	h.noGap(func() int {
		for range often(2, 20) {
			h.stop()
			h.start()
		}
		return 0
	})
}

func TestNoGapInKills(t *testing.T) {
	h := newGapHost(t)
	h.noGap(func() int {
		for range often(2, 10) {
			h.kill()
			h.start()
		}
		return 0
	})
}

// The bucket table grows by a reload and shrinks by a restart.
func TestNoGapInResizes(t *testing.T) {
	h := newGapHost(t)
	h.noGap(func() (swaps int) {
		for range often(1, 5) {
			h.write(gapText(1 << 18))
			h.do("reload")
			h.wantSlots(1 << 18)
			h.write(gapText(1 << 13))
			h.stop()
			h.start()
			h.wantSlots(1 << 13)
			swaps += 2
		}
		return swaps
	})
}

func (h *host) wantSlots(want uint64) {
	h.t.Helper()
	if got := h.status().Network.Table.Slots; got != want {
		h.t.Errorf("the table has %d slots, want %d", got, want)
	}
}

// RC-032: nor while a long list makes the tables of prefixes grow, each time
// with another program, and shrink again.
func TestNoGapWhileListsGrow(t *testing.T) {
	h := newGapHost(t)
	list := filepath.Join(t.TempDir(), "list.txt")
	var text strings.Builder
	for i := range often(60_000, 500_000) {
		// neighbours of the four sources, and far away
		fmt.Fprintf(&text, "%s\n", netip.AddrFrom4([4]byte{198, 19 + byte(i>>16), byte(i >> 8), byte(i)}))
	}
	for i := range often(10_000, 100_000) {
		fmt.Fprintf(&text, "3fff:0:%x::/48\n", i&0xffff)
		fmt.Fprintf(&text, "3fff:1:%x::1\n", i&0xffff)
	}
	if err := os.WriteFile(list, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	h.noGap(func() int {
		h.do("block", "--from-file", list, "--for", "1h", "--reason", "a long list")
		h.do("allow", "--from-file", list, "--reason", "spared")
		h.do("reload")
		return 0
	})
	if out := h.do("status"); strings.Contains(out, "not ready") {
		t.Errorf("afterwards: %s", out)
	}
}
