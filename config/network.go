package config

import (
	"fmt"
	"math/bits"
	"net/netip"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

const (
	leastSlots = 4096
	mostSlots  = 1 << 27
	slotBytes  = 16
)

func (o *object) network() Network {
	n := Network{Interfaces: o.interfaces(), Slots: o.slots(), Repair: o.flag("repair"), Leash: o.leash()}
	if w, ok := o.word("attach_mode"); ok {
		n.AttachMode = AttachMode(w.text)
		if n.AttachMode != AttachAuto && n.AttachMode != AttachNative && n.AttachMode != AttachGeneric {
			o.errorf(w.node, "%s", oneOf("attach_mode", w.text, []string{"auto", "native", "generic"}))
		}
	}
	if m := o.child("management", managementLevel); m != nil {
		n.Management = m.management()
	}
	return n
}

const (
	shortestLeash = time.Minute
	longestLeash  = 365 * 24 * time.Hour
)

// leash reads how long the data path filters without a daemon.
func (o *object) leash() time.Duration {
	w, _ := o.word("leash")
	if w.text == "" || w.text == "off" {
		return 0
	}
	d, err := ParseDuration(w.text)
	switch {
	case err != nil:
		o.errorf(w.node, "leash: %s; or write off", err)
	case d < shortestLeash || d > longestLeash:
		o.errorf(w.node, "leash %s: from 1min to 365d, or off", quote(w.text))
	}
	return d
}

// slots reads the size of the bucket table, a power of two.
func (o *object) slots() uint32 {
	w, _ := o.word("slots")
	n, err := parseWhole(w.text)
	switch {
	case w.text == "":
		return 0
	case err != nil:
		o.errorf(w.node, "slots %s: write a whole number, such as 1048576", quote(w.text))
	case n < leastSlots || n > mostSlots:
		o.errorf(w.node, "slots %d: from %d to %d (%d bytes each)", n, leastSlots, mostSlots, slotBytes)
	case n&(n-1) != 0:
		low := int64(1) << (bits.Len64(uint64(n)) - 1)
		o.errorf(w.node, "slots %d: it is a power of two, write %d (%s) or %d (%s)", n, low, memory(low), 2*low, memory(2*low))
	default:
		return uint32(n)
	}
	return 0
}

// memory says what so many slots take.
func memory(slots int64) string {
	kib := slots * slotBytes / 1024
	if kib < 1024 {
		return fmt.Sprintf("%d KiB", kib)
	}
	return fmt.Sprintf("%d MiB", kib/1024)
}

// prefixes reads a list of prefixes.
func (o *object) prefixes(key string) []netip.Prefix {
	var all []netip.Prefix
	for _, w := range o.list(key) {
		p, err := ParsePrefix(w.text)
		if err != nil {
			o.errorf(w.node, "%s", err)
			continue
		}
		all = append(all, p)
	}
	return all
}

func (o *object) management() Management {
	var m Management
	if o.need("sources", "name the prefixes that you manage this host from") {
		m.Sources = o.prefixes("sources")
	}
	if !o.has("ports") {
		m.Ports = []Port{{"tcp", 22}}
		return m
	}
	list := o.list("ports")
	if seq, ok := o.values["ports"].(*ast.SequenceNode); ok && len(seq.Values) == 0 {
		o.errorf(seq, "`ports` is empty: name a port such as tcp/22, or remove the key")
	}
	for _, w := range list {
		protocol, number, _ := strings.Cut(w.text, "/")
		port, err := parsePort(number)
		if err != nil || protocol != "tcp" && protocol != "udp" {
			o.errorf(w.node, "%s is no port of a protocol: write tcp/22 or udp/51820", quote(w.text))
			continue
		}
		m.Ports = append(m.Ports, Port{protocol, port})
	}
	return m
}
