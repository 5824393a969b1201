package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// addresses reads one prefix or name of a list, or a list of these.
func (o *object) addresses(key string) Addresses { return o.sorted(key, o.words(key)) }

// addressList reads a list of prefixes and names of lists, which may be empty.
func (o *object) addressList(key string) Addresses { return o.sorted(key, o.list(key)) }

// sorted tells prefixes and names of lists apart.
func (o *object) sorted(key string, words []word) Addresses {
	var a Addresses
	for _, w := range words {
		if !namesList(w.text) {
			p, err := ParsePrefix(w.text)
			if err != nil {
				o.errorf(w.node, "%s", err)
				continue
			}
			a.Prefixes = append(a.Prefixes, p)
			continue
		}
		if slices.Contains(a.Lists, w.text) {
			o.errorf(w.node, "`%s` names list %s twice: remove one", key, w.text)
			continue
		}
		a.Lists = append(a.Lists, w.text)
		o.mention("list", w)
	}
	return a
}

// namesList reports whether s is the name of a list rather than a prefix, also
// one with a fault. What is of digits and marks alone, as 192.0.2 is, was meant
// as an address.
func namesList(s string) bool {
	_, err := netip.ParseAddr(s)
	return err != nil && checkName(s) == "" && strings.ContainsAny(s, "abcdefghijklmnopqrstuvwxyz")
}

// mention is a word that another section of the file must explain.
type mention struct {
	what string // list or interface
	word
	where string // what stands before its faults
}

func (r *reader) mention(what string, w word) {
	r.mentions = append(r.mentions, mention{what, w, r.where})
}

// explained reports what is mentioned and nowhere explained.
func (r *reader) explained(c *Config) {
	for _, m := range r.mentions {
		if fault := c.lacks(m.what, m.text); fault != "" {
			r.where = m.where
			r.errorf(m.node, "%s", fault)
		}
	}
	r.where = ""
}

// lacks says what is wrong with a list or an interface that c does not have.
func (c *Config) lacks(what, name string) string {
	if what == "list" {
		if slices.ContainsFunc(c.Lists, func(l List) bool { return l.Name == name }) {
			return ""
		}
		return noList(name, c.Lists)
	}
	if n := c.Network.Interfaces; len(n) > 0 && !c.Network.takes(name) {
		return fmt.Sprintf("interface %s is not in `network.interfaces`, which has %s", quote(name), list(n))
	}
	return ""
}

// CheckNames checks that c has the lists and interfaces that r names; the
// error joins one error a name. For the rules of a file Parse has done it.
func CheckNames(c *Config, r Rule) error {
	var errs []error
	check := func(what string, names []string) {
		for _, name := range names {
			if fault := c.lacks(what, name); fault != "" {
				errs = append(errs, fmt.Errorf("rule %s: %s", quote(r.Name), fault))
			}
		}
	}
	check("list", r.Lists())
	check("interface", r.Match.Interfaces)
	return errors.Join(errs...)
}

// Lists returns the names of the lists that r needs, sorted, each once.
func (r Rule) Lists() []string {
	names := slices.Concat(r.Match.From.Lists, r.Match.To.Lists, r.Match.Except.Lists)
	for _, o := range r.Overrides {
		names = append(names, o.From.Lists...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func noList(name string, lists []List) string {
	names := make([]string, len(lists))
	for i, l := range lists {
		names[i] = l.Name
	}
	if near := nearest(name, names); near != "" {
		return fmt.Sprintf("no list %s: did you mean `%s`?", quote(name), near)
	}
	return fmt.Sprintf("%s is no address prefix and no list: write one such as 192.0.2.0/24, or name it under `lists`; names of hosts are not looked up", quote(name))
}

func (a Addresses) empty() bool { return len(a.Prefixes)+len(a.Lists) == 0 }

// String returns a for messages: its first prefixes and lists.
func (a Addresses) String() string {
	const shown = 4
	words := a.words()
	if more := len(words) - shown; more > 0 {
		words = append(words[:shown:shown], fmt.Sprintf("%d more", more))
	}
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return strings.Join(words, "")
}

// words returns a as the configuration writes it.
func (a Addresses) words() []string {
	var words []string
	for _, p := range a.Prefixes {
		words = append(words, p.String())
	}
	return append(words, a.Lists...)
}
