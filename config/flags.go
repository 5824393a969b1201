package config

import (
	"fmt"
	"strings"
)

// tcpFlags are the names of a TCP header's flags (RFC 9293, RFC 3168), by bit.
var tcpFlags = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"}

// The flags that `flags: syn` is about.
const (
	flagSYN = 1 << 1
	flagACK = 1 << 4
)

// flags reads `flags`.
func (rr *ruleReader) flags() *TCPFlags {
	w, ok := rr.match.word("flags")
	if !ok {
		return nil
	}
	f, err := parseFlags(w.text)
	if err != nil {
		rr.errorf(w.node, "%s", err)
		return nil
	}
	rr.belongs("flags", "tcp")
	return &f
}

// parseFlags reads names joined by `+`, each with `!` in front where the flag
// must be clear: syn+!ack, fin+psh+urg. `syn` alone is a SYN without ACK: the
// packet that opens a connection, and what is nearly always meant.
func parseFlags(s string) (TCPFlags, error) {
	var f TCPFlags
	for word := range strings.SplitSeq(s, "+") {
		name, clear := strings.CutPrefix(word, "!")
		bit, err := flagBit(s, name)
		switch {
		case err != nil:
			return TCPFlags{}, err
		case (f.Set|f.Clear)&bit != 0:
			return TCPFlags{}, fmt.Errorf("flags %s names %s twice: remove one", quote(s), name)
		case clear:
			f.Clear |= bit
		default:
			f.Set |= bit
		}
	}
	if f.Set == flagSYN && f.Clear == 0 {
		f.Clear = flagACK
	}
	return f, nil
}

// flagBit returns the bit of one flag of s.
func flagBit(s, name string) (uint8, error) {
	for i, n := range tcpFlags {
		if n == name {
			return 1 << i, nil
		}
	}
	const form = "write names joined by `+`, such as syn, syn+ack or \"!ack\""
	if strings.ContainsAny(s, ",| ") {
		return 0, fmt.Errorf("flags %s: %s", quote(s), form)
	}
	if near := nearest(strings.ToLower(name), tcpFlags); near != "" {
		return 0, fmt.Errorf("%s is no flag: did you mean `%s`?", quote(name), near)
	}
	return 0, fmt.Errorf("%s is no flag: %s (known are %s)", quote(name), form, list(tcpFlags))
}

// String returns f as the configuration writes it: syn, syn+ack, fin+!ack.
func (f TCPFlags) String() string {
	if f == (TCPFlags{flagSYN, flagACK}) {
		return "syn"
	}
	var words []string
	for i, n := range tcpFlags {
		if f.Set&(1<<i) != 0 {
			words = append(words, n)
		}
	}
	for i, n := range tcpFlags {
		if f.Clear&(1<<i) != 0 {
			words = append(words, "!"+n)
		}
	}
	return strings.Join(words, "+")
}
