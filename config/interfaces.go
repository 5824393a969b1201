package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// AutoInterfaces, as an item of network.interfaces, stands for the interfaces
// of the default routes.
const AutoInterfaces = "auto"

// longestInterface is IFNAMSIZ without the zero byte.
const longestInterface = 15

// loopback is left out by every pattern that does not spell it.
const loopback = "lo"

// interfaces reads names, patterns and `auto`.
func (o *object) interfaces() []string {
	var names []string
	for _, w := range o.list("interfaces") {
		switch fault := checkPattern(w.text); {
		case fault != "":
			o.errorf(w.node, "%s", fault)
		case slices.Contains(names, w.text):
			o.errorf(w.node, "interface %s is there twice: remove one", quote(w.text))
		default:
			names = append(names, w.text)
		}
	}
	return names
}

// checkPattern says what is wrong with an item of network.interfaces.
func checkPattern(s string) string {
	if !IsPattern(s) {
		return checkInterface(s)
	}
	if _, err := filepath.Match(s, ""); err != nil || strings.ContainsAny(s, "/ :") {
		return fmt.Sprintf("%s is no pattern of interface names: write one such as eth* or enp?s0", quote(s))
	}
	return ""
}

func checkInterface(s string) string {
	if len(s) > longestInterface || strings.ContainsAny(s, "/ :*?") || s == "." || s == ".." {
		return fmt.Sprintf("%s is no interface name: write one of those that `ip link` shows", quote(s))
	}
	return ""
}

// IsPattern reports whether an item of network.interfaces stands for all
// interfaces of some spelling, as eth* does, and not for one.
func IsPattern(item string) bool { return strings.ContainsAny(item, "*?[") }

// MatchesInterface reports whether item, a name or a pattern of
// network.interfaces, stands for the interface of that name. `auto` depends on
// routes: it stands for none here. A pattern with a wildcard at its start
// leaves out lo, which nobody means by it.
func MatchesInterface(item, name string) bool {
	if !IsPattern(item) {
		return item == name && item != AutoInterfaces
	}
	if name == loopback && !strings.HasPrefix(item, "l") {
		return false
	}
	ok, err := filepath.Match(item, name)
	return ok && err == nil
}

// takes reports whether an interface of that name may be one of the network
// gate's.
func (n Network) takes(name string) bool {
	return slices.ContainsFunc(n.Interfaces, func(item string) bool {
		return item == AutoInterfaces || MatchesInterface(item, name)
	})
}
