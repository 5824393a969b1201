package live

import (
	numbers "encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/caps"
	"github.com/headgate/headgate/internal/rig"
	"golang.org/x/sys/unix"
)

// application counts the numbered packets that a UDP socket gets: behind the
// tc program too, where the rig's receiver stands before it.
type application struct {
	t     *testing.T
	conn  *net.UDPConn
	fence *rig.Receiver
	done  chan struct{}

	mu   sync.Mutex
	seen map[netip.Addr]map[uint64]bool
}

func (h *host) listen(port uint16) *application {
	h.t.Helper()
	a := &application{t: h.t, done: make(chan struct{}), seen: map[netip.Addr]map[uint64]bool{}, fence: rig.Receive(h.t, h.link)}
	err := rig.Run(h.net.Gate, func() (err error) {
		a.conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: h.link.Gate.IPv4.AsSlice(), Port: int(port)})
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { a.conn.Close(); <-a.done })
	raw, err := a.conn.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) })
	}
	if err != nil {
		h.t.Fatal(err)
	}
	go a.read()
	return a
}

func (a *application) read() {
	defer close(a.done)
	b := make([]byte, 2048)
	for {
		n, from, err := a.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if n < 16 {
			continue
		}
		a.mu.Lock()
		source := from.Addr().Unmap()
		if a.seen[source] == nil {
			a.seen[source] = map[uint64]bool{}
		}
		a.seen[source][numbers.BigEndian.Uint64(b[n-16:])] = true
		a.mu.Unlock()
	}
}

// stop waits for all that is on its way and returns the numbers that came, by
// source. What the kernel has handed over by then is read without waiting.
func (a *application) stop() map[netip.Addr]map[uint64]bool {
	a.t.Helper()
	a.fence.Stop(a.t)
	a.conn.SetReadDeadline(time.Now().Add(time.Second))
	<-a.done
	return a.seen
}

func (h *host) attachMode() string { return h.status().Network.Interfaces[0].AttachMode }

// covers are the tc programs at the gate's interface, as tc sees them.
func (h *host) covers() string {
	out, _ := rig.Command(h.net.Gate, "tc", "filter", "show", "dev", h.link.Gate.Interface, "ingress").CombinedOutput()
	left, err := os.ReadDir(h.pins + "/covers")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Error(err)
	}
	for _, e := range left {
		out = append(out, "pinned "+e.Name()...)
	}
	return string(out)
}

const reattachConfig = `
network: {interfaces: [IFACE]}
allow: [198.51.100.7]
block: [198.51.100.0/24]
rules:
  - {name: all, per: source, rate: 100/s, burst: 100}
`

// A change of the attach mode, to and fro: nothing of a blocked source gets
// through in between, a limited one keeps its one bucket, and of an allowed one
// nothing is lost but what the veth throws away itself: when native XDP comes
// off it frees what lies in its ring of 256 (veth_napi_del).
func TestReattachUnderFlood(t *testing.T) {
	h := newHost(t, reattachConfig)
	h.as = withOnly(caps.NetworkGate)
	h.start()
	a := h.listen(9000)
	const d = 2500 * time.Millisecond
	blocked := h.flow(200000, d, h.packet("198.51.100.66", 9000))
	limited := h.flow(1000, d, h.packet("203.0.113.5", 9000))
	allowed := h.flow(20000, d, h.packet("198.51.100.7", 9000))
	for _, mode := range []string{"generic", "native", "generic", "native"} {
		time.Sleep(250 * time.Millisecond) // the flood goes on in this mode
		was := h.attachMode()
		out := h.do("reattach", h.link.Gate.Interface, "--mode", mode)
		if now := h.attachMode(); now != mode || now == was || !strings.Contains(out, "it was "+was) {
			t.Errorf("change from %s to %s: now %s\n%s", was, mode, now, out)
		}
		if left := h.covers(); left != "" {
			t.Errorf("after the change to %s: %s", mode, left)
		}
	}
	if out := h.do("history"); !strings.Contains(out, "reattach") || !strings.Contains(out, "generic to native") {
		t.Errorf("history: %s", out)
	}
	blocked()
	sent, sentAllowed := limited(), allowed()
	seen := a.stop()
	if n := len(seen[netip.MustParseAddr("198.51.100.66")]); n != 0 {
		t.Errorf("%d packets of the blocked source were delivered", n)
	}
	lost := sentAllowed.Packets - uint64(len(seen[netip.MustParseAddr("198.51.100.7")]))
	if lost > 2*256 {
		t.Errorf("%d of %d packets of the allowed source were lost", lost, sentAllowed.Packets)
	}
	// one bucket all the time: its burst comes once
	n := float64(len(seen[netip.MustParseAddr("203.0.113.5")]))
	if most := 100 + 100*(sent.Elapsed().Seconds()+0.05); n > most || n < 0.9*most {
		t.Errorf("%.0f packets of the limited source were delivered in %v", n, sent.Elapsed())
	}
}

// The counter-test: with the gate taken off and put on again, packets of the
// blocked source do come through, and are seen.
func TestDetachUnderFloodLetsThrough(t *testing.T) {
	h := newHost(t, reattachConfig)
	h.start()
	a := h.listen(9000)
	blocked := h.flow(50000, time.Second, h.packet("198.51.100.66", 9000))
	h.do("detach", "--all")
	h.do("reload")
	blocked()
	if n := len(a.stop()[netip.MustParseAddr("198.51.100.66")]); n == 0 {
		t.Error("nothing was delivered while the gate was off: this test sees no gap")
	}
}

// Killed at any moment of a change, the daemon leaves the interface judged, by
// XDP or by tc; the next start leaves nothing of tc behind.
func TestKilledWhileReattaching(t *testing.T) {
	h := newHost(t, reattachConfig)
	h.start()
	a := h.listen(9000)
	const d = 3 * time.Second
	blocked := h.flow(50000, d, h.packet("198.51.100.66", 9000))
	for i := range 4 {
		asked := rig.Command(h.net.Gate, binary, "reattach", h.link.Gate.Interface, "--mode", []string{"generic", "native"}[i%2], "-c", h.config())
		if err := asked.Start(); err != nil {
			t.Fatal(err)
		}
		// the change takes a few milliseconds some time after the start
		time.Sleep(time.Duration(5+10*i) * time.Millisecond)
		h.kill()
		asked.Wait()
		if left := h.covers(); left != "" {
			h.exits(1, []string{"cut short", h.link.Gate.Interface + ":", "headgate detach --all"}, "status")
		}
		h.start()
		if left := h.covers(); left != "" {
			t.Errorf("after start %d: %s", i, left)
		}
	}
	blocked()
	if n := len(a.stop()[netip.MustParseAddr("198.51.100.66")]); n != 0 {
		t.Errorf("%d packets of the blocked source were delivered", n)
	}
}

// What cannot be done is told, and all stays as it was.
func TestReattachRefused(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\n")
	h.start()
	name := h.link.Gate.Interface
	before := h.status().Network.Interfaces[0]
	h.exits(1, []string{"nosuch0", "network.interfaces", name}, "reattach", "nosuch0")
	h.exits(2, []string{"native, generic or auto"}, "reattach", name, "--mode", "fast")
	if out := h.do("reattach", name); !strings.Contains(out, "stays in native mode") {
		t.Errorf("reattach in the mode it is in: %s", out)
	}
	if now := h.status().Network.Interfaces[0]; now != before {
		t.Errorf("%+v before, %+v now", before, now)
	}
	h.do("detach", "--all")
	h.exits(1, []string{"detached by", "headgate reload"}, "reattach", name)
}

// RC-033 with a kernel that refuses: native mode is asked for again by hand, the
// answer has the kernel's words and the cure, and the gate stays in place.
func TestNativeRefusedForReal(t *testing.T) {
	h := newHost(t, "network: {interfaces: [narrow]}\nblock: [203.0.113.9]\n")
	h.as = withOnly(caps.NetworkGate)
	add := rig.Command(h.net.Gate, "ip", "link", "add", "narrow", "up", "numrxqueues", "1", "numtxqueues", "4", "type", "veth", "peer", "name", "wide", "numrxqueues", "4", "numtxqueues", "4")
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	h.start()
	words := []string{"XDP expects number of rx queues not less than peer tx queues", "ethtool -L wide tx 1"}
	i := h.status().Network.Interfaces[0]
	for _, w := range words {
		if i.AttachMode != "generic" || !strings.Contains(i.Warning, w) || strings.Count(h.log.String(), w) != 1 {
			t.Errorf("attached as %+v\n%s", i, h.log)
		}
	}
	h.exits(1, append(words, "as before"), "reattach", "narrow", "--mode", "native")
	if i = h.status().Network.Interfaces[0]; i.AttachMode != "generic" || i.ProgramID == 0 || !strings.Contains(i.Warning, words[0]) {
		t.Errorf("afterwards attached as %+v", i)
	}
	h.kill()
	h.do("detach", "--all")
	h.write("network: {interfaces: [narrow], attach_mode: native}\n")
	h.exits(1, append(words, "attach_mode"), "run")
}

// RC-135: a veth may hide tags, so a rule by VLAN is taken with a warning that
// has the cure; a rule without is not concerned. Tags that are sent in the frame
// are matched.
func TestRuleByVLANOnAVeth(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\n")
	h.start()
	cure := "ethtool -K PEER txvlan off"
	if out := h.do("rule", "add", "guests", "--vlan", "10", "--per", "source", "--rate", "10/min"); !strings.Contains(out, cure) {
		t.Errorf("rule add says: %s", out)
	}
	if out := h.do("rule", "add", "all", "--per", "source", "--rate", "1000/s"); strings.Contains(out, cure) {
		t.Errorf("rule add without vlan says: %s", out)
	}
	if out := h.do("status"); !strings.Contains(out, "rule guests: ") || !strings.Contains(out, cure) {
		t.Errorf("status says: %s", out)
	}
	tagged := h.packet("203.0.113.5", 9000)
	tagged.Tags = []rig.Tag{{ID: 10}}
	sent := h.flow(1000, 100*time.Millisecond, tagged)()
	if r := h.rule("guests"); r.Packets.Passed != 10 || r.Packets.Passed+r.Packets.Refused != sent.Packets {
		t.Errorf("counted %+v of %d", *r.Packets, sent.Packets)
	}
}
