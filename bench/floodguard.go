package main

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
	"github.com/headgate/headgate/maps"
)

const (
	floodRule = "flood" // the rule's name

	// In the words of every contender a source may send so many packets at
	// once, and then so few an hour that the next is due long after the end:
	// all is dropped. The burst is large enough, on two CPUs, for the gate's
	// cached clock, as bursts mostly are; with fewer an hour hashlimit would
	// not take it (its credit for a burst ends at about a day).
	floodBurst   = 64
	floodPerHour = 6
)

// guard is what stands before the stack on one wire.
type guard struct {
	// refused is how many packets the guard itself says it dropped. Nil where
	// nothing but the stack can tell.
	refused func() (uint64, error)
	close   func() error
}

func (g guard) end() error {
	if g.close == nil {
		return nil
	}
	return g.close()
}

// contender is one way to drop a flood.
type contender struct {
	name    string
	tool    string // the command that it needs
	install func(*wire) (guard, error)
	limits  bool // lets floodBurst packets of each source through
	most    int  // sources that it is given; 0: as many as come
}

// contenders are those that a host has at hand, and with all, what else
// filters in XDP. The first is what the ratios are to.
func contenders(all bool) []contender {
	list := []contender{
		{name: "bare XDP_DROP", install: guardBare},
		{name: "headgate", install: guardHeadgate, limits: true},
		{name: "nftables dynamic set, ingress", tool: "nft", install: guardIngress, limits: true},
		{name: "nftables dynamic set, prerouting raw", tool: "nft", install: guardRaw, limits: true},
		{name: "iptables hashlimit, raw", tool: "iptables", install: guardHashlimit, limits: true},
		{name: "no filter, no listener", install: guardNothing},
	}
	if all {
		list = append(list, contender{
			name: "xdp-filter, addresses listed", tool: "xdp-filter", install: guardXDPFilter, most: listedSources,
		})
	}
	return list
}

// guardNothing leaves the packets to the kernel: it finds no socket for them
// and drops them, with a port unreachable to whom its ICMP limits allow one.
func guardNothing(*wire) (guard, error) { return guard{}, nil }

func guardBare(w *wire) (guard, error) {
	program, err := bareDrop()
	if err != nil {
		return guard{}, err
	}
	l, err := attachNative(w, program)
	if err != nil {
		return guard{}, errors.Join(err, program.Close())
	}
	return guard{close: func() error { return errors.Join(l.Close(), program.Close()) }}, nil
}

// guardHeadgate attaches the network gate as the daemon does, with its table
// at the default size.
func guardHeadgate(w *wire) (guard, error) {
	gate, err := maps.Open(maps.Options{Slots: newSlots})
	if err != nil {
		return guard{}, err
	}
	rule := perSource(floodPerHour, time.Hour, floodBurst)
	rule.Name = floodRule
	if err := gate.SetRules([]config.Rule{rule}, config.Management{}, nil); err != nil {
		return guard{}, errors.Join(err, gate.Close())
	}
	l, err := attachNative(w, gate.Program(true))
	if err != nil {
		return guard{}, errors.Join(err, gate.Close())
	}
	refused := func() (uint64, error) {
		counters, err := gate.RuleCounters()
		return counters[floodRule].RefusedPackets, err
	}
	return guard{refused, func() error { return errors.Join(l.Close(), gate.Close()) }}, nil
}

// attachNative puts a program on the wire's receiver.
func attachNative(w *wire, program *ebpf.Program) (l link.Link, err error) {
	err = rig.Run(w.link.Gate.NS, func() error {
		l, err = link.AttachXDP(link.XDPOptions{
			Program: program, Interface: w.link.Gate.Index, Flags: link.XDPDriverMode,
		})
		return err
	})
	return l, err
}

func guardIngress(w *wire) (guard, error) {
	return guardNftables(w, "netdev", fmt.Sprintf("hook ingress device %q priority 0", w.link.Gate.Interface))
}

func guardRaw(w *wire) (guard, error) {
	return guardNftables(w, "ip", "hook prerouting priority raw")
}

// guardNftables is a dynamic set with a limit an element, as nft(8) shows it.
func guardNftables(w *wire, family, hook string) (guard, error) {
	rules := fmt.Sprintf(`table %s flood {
	counter refused { }
	set sources { type ipv4_addr; size %d; flags dynamic; timeout 1h; }
	chain gate {
		type filter %s; policy accept;
		udp dport %d add @sources { ip saddr limit rate over %d/hour burst %d packets } counter name refused drop
	}
}
`, family, maxSources, hook, benchPort, floodPerHour, floodBurst)
	cmd := command(w, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if text, err := cmd.CombinedOutput(); err != nil {
		return guard{}, fmt.Errorf("add the nftables rules: %w: %s", err, firstLine(text))
	}
	// the rules end with the namespace
	return guard{refused: func() (uint64, error) {
		return askCounter(w, `packets (\d+)`, "nft", "list", "counter", family, "flood", "refused")
	}}, nil
}

// guardHashlimit sizes the hash so that every source has a place and keeps it.
func guardHashlimit(w *wire) (guard, error) {
	err := ask(w, "iptables", "-w", "-t", "raw", "-A", "PREROUTING",
		"-p", "udp", "--dport", strconv.Itoa(benchPort),
		"-m", "hashlimit", "--hashlimit-name", "flood", "--hashlimit-mode", "srcip",
		"--hashlimit-above", fmt.Sprintf("%d/hour", floodPerHour), "--hashlimit-burst", strconv.Itoa(floodBurst),
		"--hashlimit-htable-size", strconv.Itoa(maxSources), "--hashlimit-htable-max", strconv.Itoa(maxSources),
		"--hashlimit-htable-expire", "3600000", "-j", "DROP")
	if err != nil {
		return guard{}, err
	}
	return guard{refused: func() (uint64, error) {
		return askCounter(w, `(?m)^\[(\d+):\d+\] -A PREROUTING`, "iptables-save", "-c", "-t", "raw")
	}}, nil
}

// command runs in the receiver's namespace and in a process group of its own:
// an interrupt from the terminal does not leave its work half done.
func command(w *wire, name string, args ...string) *exec.Cmd {
	cmd := rig.Command(w.link.Gate.NS, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// ask runs a command and takes what it prints for the reason why it failed.
func ask(w *wire, name string, args ...string) error {
	if text, err := command(w, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", name, err, firstLine(text))
	}
	return nil
}

// askCounter runs a command and reads the figure that pattern finds in what it
// prints.
func askCounter(w *wire, pattern, name string, args ...string) (uint64, error) {
	text, err := command(w, name, args...).Output()
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", name, err)
	}
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("read the counter of %s: none in %q", name, firstLine(text))
	}
	return strconv.ParseUint(string(found[1]), 10, 64)
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line
}
