package config

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

const (
	leastSlots = 4096
	mostSlots  = 1 << 27
	slotBytes  = 16

	// longestInterface is IFNAMSIZ without the zero byte, and longestSocket
	// sun_path of unix(7) without it.
	longestInterface = 15
	longestSocket    = 107
)

func (o *object) network() Network {
	n := Network{Interfaces: o.interfaces(), Slots: o.slots()}
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

func (o *object) interfaces() []string {
	var names []string
	for _, w := range o.list("interfaces") {
		switch {
		case len(w.text) > longestInterface || strings.ContainsAny(w.text, "/ :*?") || w.text == "." || w.text == "..":
			o.errorf(w.node, "%s is no interface name: write one of those that `ip link` shows", quote(w.text))
		case slices.Contains(names, w.text):
			o.errorf(w.node, "interface %s is there twice: remove one", quote(w.text))
		default:
			names = append(names, w.text)
		}
	}
	return names
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

func (o *object) http() HTTP {
	h := HTTP{Listeners: o.listeners(), Proxies: o.prefixes("proxies")}
	if ids := o.child("identities", identitiesLevel); ids != nil && ids.need("key", "say where the API key is, or remove `identities`") {
		if k := ids.child("key", keyLevel); k != nil {
			h.KeyHeader = k.keyHeader()
			if w, ok := k.word("file"); ok {
				h.KeyFile = w.text
			}
		}
	}
	for _, n := range o.objects("exempt") {
		if e := o.object(n, exemptLevel); e != nil {
			h.Exempt = append(h.Exempt, e.exempt())
		}
	}
	h.User = o.user()
	h.ClientBits = o.clientBits()
	return h
}

// unusableHeaders cannot carry an API key: they are the connection's or the
// protocol's own, or name addresses.
var unusableHeaders = []string{
	"Connection", "Content-Length", "Content-Type", "Cookie", "Forwarded", "Host", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip",
}

func (o *object) keyHeader() string {
	if !o.need("header", "say which header carries the API key, such as X-Api-Key") {
		return ""
	}
	w, ok := o.word("header")
	if !ok {
		return ""
	}
	name := textproto.CanonicalMIMEHeaderKey(w.text)
	switch {
	case len(name) > 128 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "":
		o.errorf(w.node, "%s is no header name: use letters, digits and hyphens, such as X-Api-Key", quote(w.text))
	case name == "Authorization":
		o.errorf(w.node, "this version does not read keys from Authorization yet; use a header of their own, such as X-Api-Key")
	case slices.Contains(unusableHeaders, name):
		o.errorf(w.node, "header %s cannot carry an API key: use one of its own, such as X-Api-Key", name)
	}
	return name
}

func (o *object) exempt() Exempt {
	var e Exempt
	if o.need("path", "name the path that no rule applies to") {
		if w, ok := o.word("path"); ok {
			fault := checkPath(w.text)
			if fault == "" && strings.ContainsAny(w.text, "*{") {
				fault = fmt.Sprintf("path %s: an exempt path is exact, without wildcards", quote(w.text))
			}
			if fault != "" {
				o.errorf(w.node, "%s", fault)
			}
			e.Path = w.text
		}
	}
	if o.need("from", "name the prefixes that may ask for it without limit") {
		e.From = o.prefixes("from")
		if seq, ok := o.values["from"].(*ast.SequenceNode); ok && len(seq.Values) == 0 {
			o.errorf(seq, "`from` is empty: nobody is exempt, remove the item or name prefixes")
		}
	}
	return e
}

// user reads a system user's name; that it exists is seen at start.
func (o *object) user() string {
	w, _ := o.word("user")
	const set = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	if len(w.text) > 32 || strings.Trim(w.text, set) != "" || strings.HasPrefix(w.text, "-") {
		o.errorf(w.node, "%s is no name of a system user", quote(w.text))
	}
	return w.text
}

func (o *object) clientBits() int {
	w, _ := o.word("ipv6_prefix")
	n, err := parseWhole(strings.TrimPrefix(w.text, "/"))
	if w.text != "" && (err != nil || n < 48 || n > 128 || w.text[0] == '/') {
		o.errorf(w.node, "ipv6_prefix %s: write a whole number from 48 to 128, such as 64", quote(w.text))
	}
	return int(n)
}

func (o *object) admin() Admin {
	a := Admin{Socket: o.absolute("socket")}
	if len(a.Socket) > longestSocket {
		o.errorf(o.at("socket"), "socket path of %d bytes: the most is %d", len(a.Socket), longestSocket)
	}
	w, ok := o.word("listen")
	switch {
	case !ok || w.text == "off":
	case w.text == "false" || w.text == "none" || w.text == "no":
		o.errorf(w.node, "%s is no address: write `listen: off` for none", quote(w.text))
	default:
		a.Listen = w.text
		if err := checkAddress(w.text); err != nil {
			o.errorf(w.node, "%s", err)
		}
	}
	return a
}

func (o *object) state() State {
	return State{Dir: o.absolute("dir"), Pins: o.absolute("pins")}
}

// absolute reads a path from the root: a daemon's folder is not its user's.
func (o *object) absolute(key string) string {
	w, ok := o.word(key)
	if !ok {
		return ""
	}
	if !filepath.IsAbs(w.text) {
		o.errorf(w.node, "%s %s: write the whole path, from `/`", key, quote(w.text))
	}
	return filepath.Clean(w.text)
}

// checkAddress checks host:port to listen on; the host may be empty, port 0
// takes a free one.
func checkAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if _, err := parsePort(s); err == nil {
			return fmt.Errorf("%s is no address: write \":%s\"", quote(s), s)
		}
		return fmt.Errorf("%s is no address: write host:port, such as 127.0.0.1:8080, [::1]:8080 or \":8080\"", quote(s))
	}
	if _, err := parsePort(port); err != nil && port != "0" {
		return fmt.Errorf("%s has no port: write a number from 1 to 65535", quote(s))
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && !isHostName(strings.ToLower(host)) {
		return fmt.Errorf("%s: %s is no host", quote(s), quote(host))
	}
	return nil
}

// parseUpstream reads an http or https URL without path, and returns it in
// its short form.
func parseUpstream(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || !strings.Contains(s, "://"):
		return "", fmt.Errorf("%s is no URL: write one such as http://127.0.0.1:9000", quote(s))
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("upstream with scheme %s: use http or https", quote(u.Scheme))
	case u.User != nil:
		return "", errors.New("upstream with a user in its URL: remove it")
	case u.Path != "" && u.Path != "/":
		return "", fmt.Errorf("upstream %s has a path: remove it, requests keep their own", quote(s))
	case strings.ContainsAny(s, "?#"):
		return "", fmt.Errorf("upstream %s has a query or fragment: remove it", quote(s))
	}
	host, port := u.Hostname(), u.Port()
	if _, err := netip.ParseAddr(host); err != nil && !isHostName(strings.ToLower(host)) {
		return "", fmt.Errorf("upstream %s: %s is no host", quote(s), quote(host))
	}
	if _, err := parsePort(port); err != nil && (port != "" || strings.HasSuffix(u.Host, ":")) {
		return "", fmt.Errorf("upstream %s: its port is a number from 1 to 65535", quote(s))
	}
	return u.Scheme + "://" + strings.ToLower(u.Host), nil
}
