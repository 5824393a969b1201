package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// addresses reads one prefix or a list of them.
func (o *object) addresses(key string) Addresses { return o.sorted(o.words(key)) }

// addressList reads a list of prefixes, which may be empty.
func (o *object) addressList(key string) Addresses { return o.sorted(o.list(key)) }

// sorted reads prefixes; names of lists are for a later version.
func (o *object) sorted(words []word) Addresses {
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
		o.errorf(w.node, "%s", noList(w.text))
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
	word
	where string // what stands before its faults
}

func (r *reader) mention(w word) {
	r.mentions = append(r.mentions, mention{w, r.where})
}

// explained reports what is mentioned and nowhere explained.
func (r *reader) explained(c *Config) {
	for _, m := range r.mentions {
		fault := c.lacks(m.text)
		if fault != "" {
			r.where = m.where
			r.errorf(m.node, "%s", fault)
		}
	}
	r.where = ""
}

// lacks says what is wrong with an interface that c does not have.
func (c *Config) lacks(name string) string {
	if n := c.Network.Interfaces; len(n) > 0 && !slices.Contains(n, name) {
		return fmt.Sprintf("interface %s is not in `network.interfaces`, which has %s", quote(name), list(n))
	}
	return ""
}

// CheckNames checks that c has the interfaces that r names; the error joins one
// error a name. For the rules of a file Parse has done it.
func CheckNames(c *Config, r Rule) error {
	var errs []error
	for _, name := range r.Match.Interfaces {
		if fault := c.lacks(name); fault != "" {
			errs = append(errs, fmt.Errorf("rule %s: %s", quote(r.Name), fault))
		}
	}
	return errors.Join(errs...)
}

func noList(name string) string {
	return fmt.Sprintf("%s is no address prefix: write one such as 192.0.2.0/24; names of hosts are not looked up, and this version does not have named lists yet", quote(name))
}

func (a Addresses) empty() bool { return len(a.Prefixes)+len(a.Lists) == 0 }

// words returns a as the configuration writes it.
func (a Addresses) words() []string {
	var words []string
	for _, p := range a.Prefixes {
		words = append(words, p.String())
	}
	return append(words, a.Lists...)
}
