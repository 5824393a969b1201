package config

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

const (
	// shortestPoll keeps a list from being asked for so often that its
	// publisher would refuse to answer.
	shortestPoll = time.Minute
	longestPoll  = 30 * day
)

// lists reads the named lists. Their keys are names that the user gives.
func (o *object) lists() []List {
	var pairs []*ast.MappingValueNode
	switch v := o.values["lists"].(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		pairs = v.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{v}
	default:
		o.errorf(v, "`lists` is a mapping, not %s: write `name: {file: path}` for each", kind(v))
		return nil
	}
	var all []List
	lines := map[string]int{}
	for _, p := range pairs {
		name, ok := o.keyName(p.Key)
		if !ok {
			continue
		}
		fault := checkListName(name)
		switch first := lines[name]; {
		case first > 0:
			o.errorf(p.Key, "list %s is there twice, first in line %d: rename one", quote(name), first)
			continue
		case fault != "":
			o.errorf(p.Key, "%s", fault)
		}
		lines[name] = position(p.Key).Line
		o.where = "list " + quote(name) + ": "
		all = append(all, o.reader.namedList(name, p.Value))
		o.where = ""
	}
	return all
}

func checkListName(s string) string {
	switch {
	case s == "":
		return "a list without a name: give it one"
	case checkName(s) != "":
		return "list " + checkName(s)
	case !namesList(s):
		return "list name " + quote(s) + " looks like an address: use a word"
	}
	return ""
}

func (r *reader) namedList(name string, n ast.Node) List {
	l := List{Name: name}
	o := r.object(n, listLevel)
	switch {
	case o == nil:
	case o.has("file") && o.has("url"):
		o.errorf(o.keys["url"], "`file` and `url` are two places: remove one")
	case o.has("file"):
		w, _ := o.word("file")
		l.File = w.text
		for _, key := range []string{"interval", "sha256"} {
			if o.has(key) {
				o.errorf(o.keys[key], "`%s` is for a list with a `url`: remove it", key)
			}
		}
	case o.has("url"):
		l.URL, l.Interval, l.SHA256 = o.listURL(), o.interval(), o.checksum()
	case !o.meant["file"] && !o.meant["url"]:
		o.errorf(o.node, "say where it is: `file: path` or `url: https://...`")
	}
	return l
}

// listURL reads an https address: who could change a list on its way here
// could block anyone.
func (o *object) listURL() string {
	w, ok := o.word("url")
	if !ok {
		return ""
	}
	u, err := url.Parse(w.text)
	switch {
	case err != nil || !strings.Contains(w.text, "://"):
		o.errorf(w.node, "%s is no URL: write one such as https://lists.example/drop.txt", quote(w.text))
	case u.User != nil: // before any message that shows the URL
		o.errorf(w.node, "url with a user in it: remove it")
	case u.Scheme != "https":
		o.errorf(w.node, "url %s: a list is read over https only", quote(w.text))
	case u.Fragment != "":
		o.errorf(w.node, "url %s has a fragment: remove `#` and what follows", quote(w.text))
	case !isHost(u.Hostname()):
		o.errorf(w.node, "url %s: %s is no host", quote(w.text), quote(u.Hostname()))
	case badPort(u):
		o.errorf(w.node, "url %s: its port is a number from 1 to 65535", quote(w.text))
	}
	return w.text
}

func isHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || isHostName(strings.ToLower(s))
}

func badPort(u *url.URL) bool {
	_, err := parsePort(u.Port())
	return err != nil && (u.Port() != "" || strings.HasSuffix(u.Host, ":"))
}

func (o *object) interval() time.Duration {
	w, ok := o.word("interval")
	if !ok {
		return 0
	}
	d, err := ParseDuration(w.text)
	switch {
	case err != nil:
		o.errorf(w.node, "interval %s", err)
	case d < shortestPoll || d > longestPoll:
		o.errorf(w.node, "interval %s: from 1m to 30d", quote(w.text))
	}
	return d
}

// checksum reads the SHA-256 that the content must have, in lower case.
func (o *object) checksum() string {
	w, ok := o.word("sha256")
	if !ok {
		return ""
	}
	sum, err := hex.DecodeString(w.text)
	if err != nil || len(sum) != sha256.Size {
		o.errorf(w.node, "sha256 %s is not 64 hex digits: write what `sha256sum` prints", quote(w.text))
	}
	return strings.ToLower(w.text)
}
