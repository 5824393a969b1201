package live

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/daemon"
	"github.com/headgate/headgate/internal/rig"
)

// inGate runs a command in the gate's namespace that must succeed.
func (h *host) inGate(name string, args ...string) string {
	h.t.Helper()
	out, err := rig.Command(h.net.Gate, name, args...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// gateIP runs ip(8) in the gate's namespace; words are separated by spaces.
func (h *host) gateIP(words string) string {
	h.t.Helper()
	return h.inGate("ip", strings.Fields(words)...)
}

// iface is one interface's entry of the status; the zero Interface for none.
func (h *host) iface(name string) daemon.Interface {
	h.t.Helper()
	for _, i := range h.status().Network.Interfaces {
		if i.Name == name {
			return i
		}
	}
	return daemon.Interface{}
}

// awaitAttached waits until the program is on an interface.
func (h *host) awaitAttached(name string) daemon.Interface {
	h.t.Helper()
	var i daemon.Interface
	h.await("a program on "+name, func() bool { i = h.iface(name); return i.ProgramID != 0 })
	return i
}

// logged counts the lines of the daemon's log that hold all of words.
func (h *host) logged(words ...string) int {
	n := 0
	for line := range strings.Lines(h.log.String()) {
		has := true
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			n++
		}
	}
	return n
}

// faulty waits until the status is not ready, for a fault that holds all of
// words.
func (h *host) faulty(words ...string) {
	h.t.Helper()
	h.await("a fault with "+strings.Join(words, ", "), func() bool {
		st := h.status()
		for _, f := range st.Faults {
			has := !st.Ready
			for _, w := range words {
				has = has && strings.Contains(f, w)
			}
			if has {
				return true
			}
		}
		return false
	})
}

func (h *host) ready() { h.t.Helper(); h.await("ready", func() bool { return h.status().Ready }) }

// RC-046: an interface that comes late, goes, comes back with another index, is
// renamed, goes down and up, and goes to another namespace and back: attached
// whenever it is there, told when it is not, each event once. The other
// interface is filtered all the time.
func TestInterfaceComesAndGoes(t *testing.T) {
	t.Parallel()
	h := newHost(t, "network: {interfaces: [IFACE, late.0]}\nblock: [203.0.113.9]\n")
	h.start()
	r := rig.Receive(t, h.link)
	flood := h.flow(1000, 4*time.Second, h.packet("203.0.113.9", 80))
	h.faulty("interface late.0 is not attached", "no such interface: waiting for it", h.link.Gate.Interface)
	before := h.iface(h.link.Gate.Interface)

	add := func() { h.gateIP("link add late.0 type veth peer name late.1") }
	add()
	first := h.awaitAttached("late.0")
	h.ready()
	h.gateIP("link del late.0")
	h.faulty("interface late.0 is not attached", "no such interface")
	add()
	second := h.awaitAttached("late.0")
	if first.Pin != second.Pin || second.AttachMode != "native" {
		t.Errorf("attached as %+v, after it came back as %+v", first, second)
	}
	h.gateIP("link set late.0 name early0")
	h.faulty("interface late.0 is not attached")
	h.gateIP("link set early0 name late.0")
	h.awaitAttached("late.0")
	attached := h.logged("msg=attached", "late.0")
	h.gateIP("link set late.0 up")
	h.gateIP("link set late.0 down")
	h.gateIP("link set late.0 up")
	h.gateIP("link set late.0 netns " + h.link.Peer.NS.Name)
	h.faulty("interface late.0 is not attached", "no such interface")
	out, err := rig.Command(h.link.Peer.NS, "ip", "link", "show", "late.0").CombinedOutput()
	if err != nil || strings.Contains(string(out), "xdp") {
		t.Errorf("a program went along to another namespace: %v %s", err, out)
	}
	if out, err := rig.Command(h.link.Peer.NS, "ip", "link", "set", "late.0", "netns", h.net.Gate.Name).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	h.awaitAttached("late.0")
	h.ready()
	if n := h.logged("msg=attached", "late.0"); n != attached+1 || attached != 3 {
		t.Errorf("told of %d attachments, then of %d, want 3 and one more:\n%s", attached, n, h.log)
	}
	if n := h.logged("not filtered", "late.0"); n != 4 {
		t.Errorf("told of %d absences, want 4", n)
	}
	if now := h.iface(h.link.Gate.Interface); now != before {
		t.Errorf("the other interface was %+v, is %+v", before, now)
	}
	flood()
	if n := r.Stop(t).From(netip.MustParseAddr("203.0.113.9")).Packets; n != 0 {
		t.Errorf("%d packets of a blocked source were delivered by the other interface", n)
	}
	h.gateIP("link del late.0")
}

// RC-046: a pattern gains members and loses them, and a rule for an interface
// follows its name to another index.
func TestPatternAndRulesFollow(t *testing.T) {
	t.Parallel()
	h := newHost(t, `
network: {interfaces: ["lan*"]}
rules:
  - {name: lan, match: {protocol: udp, interfaces: lan0}, per: source, rate: 1/min, burst: 5}
`)
	h.start()
	h.faulty("interface lan* is not attached", "no interface matches: waiting for one")
	h.gateIP("link add lan0 type veth peer name wan0")
	h.awaitAttached("lan0")
	h.ready()
	// met is how many of some packets at the gate's link the rule has judged
	met := func() (n, of uint64) {
		t.Helper()
		judged := func() uint64 { p := h.rule("lan").Packets; return p.Passed + p.Refused }
		before := judged()
		sent := h.flow(1000, 20*time.Millisecond, h.packet("203.0.113.5", 9000))()
		return judged() - before, sent.Packets
	}
	if n, _ := met(); n != 0 {
		t.Errorf("a rule for another interface met %d packets", n)
	}
	h.gateIP("link set lan0 name lan7")
	h.awaitAttached("lan7")
	gate := h.link.Gate.Interface
	h.gateIP("link set " + gate + " name lan0")
	h.awaitAttached("lan0")
	if n, of := met(); n != of {
		t.Errorf("a rule for lan0 met %d packets of %d after an interface was renamed to it", n, of)
	}
	// two interfaces change names: no program comes off, and the rule follows
	programs := [2]int{h.logged("msg=attached"), h.logged("msg=detached")}
	for _, to := range []string{"lan0 name lanx", "lan7 name lan0", "lanx name lan7"} {
		h.gateIP("link set " + to)
	}
	h.await("the pins to follow", func() bool {
		return h.iface("lan7").Pin == h.pins+"/links/lan7" && h.iface("lan0").Pin == h.pins+"/links/lan0"
	})
	h.await("the rule to follow", func() bool { n, _ := met(); return n == 0 })
	if now := [2]int{h.logged("msg=attached"), h.logged("msg=detached")}; now != programs {
		t.Errorf("attached and detached %v times before two interfaces changed names, %v after", programs, now)
	}
	h.gateIP("link set lan7 name " + gate) // no lan any more
	h.await("the interface to be let go", func() bool { return len(h.status().Network.Interfaces) == 1 })
	h.gateIP("link del lan0")
	h.faulty("interface lan* is not attached")
}

// RC-046: auto is where the default routes lead, and follows them; while there is
// none, as in a change of address, what is attached stays.
func TestAutoFollowsTheDefaultRoute(t *testing.T) {
	t.Parallel()
	h := newHost(t, "network: {interfaces: [auto]}\n")
	h.start()
	gate := h.link.Gate.Interface
	h.awaitAttached(gate)
	h.gateIP("link add other0 type veth peer name other1")
	h.gateIP("link set other1 up")
	h.gateIP("link set other0 up")
	h.gateIP("addr add 192.0.2.1/24 dev other0")
	h.gateIP("route replace default via 192.0.2.2 dev other0")
	h.awaitAttached("other0")
	if i := h.iface(gate); i.ProgramID == 0 {
		t.Errorf("%s has the IPv6 default route still, and is %+v", gate, i)
	}
	h.gateIP("-6 route del default")
	h.await(gate+" to be let go", func() bool { return h.iface(gate).ProgramID == 0 })
	h.gateIP("route del default")
	h.gateIP("route add 198.51.100.0/24 via 192.0.2.2")
	st := h.status()
	if !st.Ready || len(st.Network.Interfaces) != 1 || st.Network.Interfaces[0].Name != "other0" {
		t.Errorf("without a default route: %v %+v", st.Faults, st.Network.Interfaces)
	}
	h.gateIP("route add default via " + h.link.Peer.IPv4.String() + " dev " + gate)
	h.awaitAttached(gate)
	h.await("other0 to be let go", func() bool { return h.iface("other0").ProgramID == 0 })
	h.gateIP("link del other0")
}

// RC-111, with what this kernel has in the place of a bond: two interfaces that
// see the same packet are refused together when both are named, and a pattern
// takes the one below.
func TestInterfacesOnTopOfEachOther(t *testing.T) {
	t.Parallel()
	h := newHost(t, "network: {interfaces: [IFACE, mac0]}\n")
	gate := h.link.Gate.Interface
	h.gateIP("link add link " + gate + " name mac0 type macvlan mode bridge")
	h.exits(1, []string{"attach mac0: mac0 rides on " + gate, "judged twice", "name one of them"}, "run")
	if out := h.gateIP("link show"); strings.Contains(out, "xdp") {
		t.Errorf("a program is left: %s", out)
	}
	h.gateIP("link del mac0")
	h.start()
	h.awaitAttached(gate)
	h.gateIP("link add link " + gate + " name mac0 type macvlan mode bridge") // while it runs: what is attached stays
	h.faulty("interface mac0 is not attached: mac0 rides on " + gate)
	if i := h.iface(gate); i.ProgramID == 0 {
		t.Errorf("%s is %+v", gate, i)
	}
	h.write(fmt.Sprintf("network: {interfaces: [%s, \"mac*\"]}\n", gate))
	h.do("reload")
	h.ready()
	if n := len(h.status().Network.Interfaces); n != 1 || h.logged("mac0 is left out") == 0 {
		t.Errorf("%d interfaces; log:\n%s", n, h.log)
	}
}
