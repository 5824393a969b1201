package live

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/maps"
)

const halfPorts = 40

// halfConfig limits the even ports or the odd ones, each by a rule of its own.
func halfConfig(odd int) string {
	text := "network: {interfaces: [IFACE]}\nrules:\n"
	for port := odd; port < halfPorts; port += 2 {
		text += fmt.Sprintf("  - {name: port-%d, match: {protocol: udp, ports: [%d]}, per: total, rate: 1/day, burst: 1}\n", port, 2000+port)
	}
	return text
}

// limited tells of each port whether some rule holds for it: of three packets
// at most one comes through then.
func (h *host) limited() string {
	h.t.Helper()
	r := rig.Receive(h.t, h.link)
	var packets []rig.Packet
	for range 3 {
		for port := range halfPorts {
			p := h.packet("203.0.113.5", uint16(2000+port))
			p.Stream = uint32(port)
			packets = append(packets, p)
		}
	}
	var frames [][]byte
	for _, p := range packets {
		frames = append(frames, p.MustFrame())
	}
	if _, err := rig.Send(context.Background(), h.link.Peer, rig.Stream{Frames: frames, Count: uint64(len(frames))}); err != nil {
		h.t.Fatal(err)
	}
	report := r.Stop(h.t)
	var all strings.Builder
	for port := range halfPorts {
		switch report.Flows[rig.Flow{Source: netip.MustParseAddr("203.0.113.5"), Stream: uint32(port)}].Packets {
		case 3:
			all.WriteByte('-')
		case 0, 1:
			all.WriteByte('L')
		default:
			all.WriteByte('?')
		}
	}
	return all.String()
}

// RC-045: the parent is killed at random moments of a reload: the rules in force
// are the old ones or the new ones, never some of both, and after the next start
// the new ones.
func TestKilledReloadIsNeverHalf(t *testing.T) {
	h := newHost(t, halfConfig(0))
	h.start()
	sets := [2]string{strings.Repeat("L-", halfPorts/2), strings.Repeat("-L", halfPorts/2)}
	seen := map[string]int{}
	for i := range often(4, 50) {
		old, next := sets[i%2], sets[1-i%2]
		if got := h.limited(); got != old {
			t.Fatalf("in force are %s, want %s", got, old)
		}
		h.write(halfConfig(1 - i%2))
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			h.try("reload") // it may be killed under it
		}()
		time.Sleep(time.Duration(rand.Int64N(int64(80 * time.Millisecond)))) // anywhere in the reload
		h.kill()
		<-asked
		got := h.limited()
		switch got {
		case old:
			seen["old"]++
		case next:
			seen["new"]++
		default:
			t.Errorf("killed in a reload: in force are %s, neither %s nor %s", got, old, next)
		}
		h.start()
	}
	t.Logf("in force after a kill: %v", seen)
}

// Killed in the middle of a reload of a long list, the daemon leaves what was
// in force; after the next start the new list is, whole, and nothing of the old.
func TestKilledReloadOfAList(t *testing.T) {
	h := newHost(t, "")
	list := func(second byte) (text string, prefixes map[netip.Prefix]bool) {
		prefixes = map[netip.Prefix]bool{}
		var b strings.Builder
		for i := range 20_000 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, second, byte(i >> 8), byte(i)}), 32)
			prefixes[p] = true
			fmt.Fprintln(&b, p)
		}
		return b.String(), prefixes
	}
	file := filepath.Join(h.dir, "drop.txt")
	text, want := list(18)
	put(t, file, text)
	h.write("network: {interfaces: [IFACE]}\nlists: {drop: {file: drop.txt}}\nblock: [drop]\n")
	h.start()
	for i := range often(2, 20) {
		text, want = list(byte(18 + (i+1)%2))
		put(t, file, text)
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			h.try("reload")
		}()
		time.Sleep(time.Duration(rand.Int64N(int64(150 * time.Millisecond))))
		h.kill()
		<-asked
		h.start()
		h.await("the new list to be in force", func() bool {
			p, err := maps.Inspect(h.pins)
			if err != nil {
				t.Fatal(err)
			}
			for b := range p.Blocks {
				if !want[b] {
					return false
				}
			}
			return len(p.Blocks) == len(want)
		})
	}
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
