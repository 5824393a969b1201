package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Sizes beyond these are refused unread: a wrong file must not fill the memory.
const (
	largestFile    = 16 << 20
	largestKeyFile = 256 << 20
	largestRule    = 64 << 10
)

// Load reads the configuration in the file at path, and the key file that it
// names. The error is Errors, or an *fs.PathError that names the file.
func Load(path string) (*Config, error) {
	data, err := readFile(path, largestFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read config: %w (name the file with -c, or in HEADGATE_CONFIG)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	return Parse(path, data)
}

// Parse reads a configuration from data. name stands in messages, and paths of
// other files are relative to its folder. With any fault the Config is nil and
// the error is Errors, all of them.
func Parse(name string, data []byte) (*Config, error) { return ParseWith(name, data, ReadKeys) }

// ParseWith is Parse for who may have read the key file before: keys returns what
// it holds, as ReadKeys does.
func ParseWith(name string, data []byte, keys func(path string) (*Keyring, error)) (*Config, error) {
	r := &reader{file: name, read: readFile, readKeys: keys}
	c := r.config(data)
	if err := r.errs.sorted(name).err(); err != nil {
		return nil, err
	}
	return c, nil
}

// ParseRule reads one rule, a mapping in YAML or JSON. name stands in messages.
// The error is Errors. What shows only among other rules is CheckRules' part.
func ParseRule(name string, data []byte) (Rule, error) {
	r := &reader{file: name}
	rule := Rule{}
	switch root, ok := r.sized(data, largestRule); {
	case !ok:
	case root == nil:
		r.add(0, 0, "empty: a rule is a mapping, such as {name: login, match: {path: /login}, per: client, limit: 5/min}")
	default:
		rule = r.readRule(root, "")
	}
	if err := r.errs.sorted(name).err(); err != nil {
		return Rule{}, err
	}
	return rule, nil
}

// sized parses data unless it is too large.
func (r *reader) sized(data []byte, most int) (ast.Node, bool) {
	if len(data) > most {
		r.add(0, 0, fmt.Sprintf("%d bytes: the most that is read is %d", len(data), most))
		return nil, false
	}
	return r.document(data)
}

// config reads the whole file.
func (r *reader) config(data []byte) *Config {
	root, ok := r.sized(data, largestFile)
	if !ok {
		return nil
	}
	if root == nil {
		r.add(0, 0, "the file is empty: start it with `version: 1`")
		return nil
	}
	o := r.object(root, fileLevel)
	if o == nil {
		return nil
	}
	c := &Config{
		Version: o.version(),
		Mode:    o.mode(),
		Network: o.section("network", networkLevel).network(),
		Lists:   o.lists(),
		Admin:   o.section("admin", adminLevel).admin(),
		State:   o.section("state", stateLevel).state(),
		Fleet:   o.fleet(),
	}
	allow, block := o.addressList("allow"), o.addressList("block")
	c.Allow, c.AllowLists, c.Block, c.BlockLists = allow.Prefixes, allow.Lists, block.Prefixes, block.Lists
	http := o.section("http", httpLevel)
	c.HTTP = http.http()
	c.HTTP.Keys = http.loadKeys(c.HTTP.KeyFile)
	http.loadUsers(&c.HTTP.Users)
	all := r.rules(o.objects("rules"))
	r.checkSet(all)
	o.across(c, all)
	r.explained(c)
	for _, p := range all {
		c.Rules = append(c.Rules, Effective(c.Mode, p.Rule))
	}
	return c
}

func (o *object) version() int {
	if !o.need("version", fmt.Sprintf("add `version: %d` at the top", Version)) {
		return 0
	}
	w, ok := o.word("version")
	if ok && w.text != fmt.Sprint(Version) {
		o.errorf(w.node, "version %s: this headgate reads version %d", quote(w.text), Version)
	}
	return Version
}

// across checks what two sections say together.
func (o *object) across(c *Config, rules []placed) {
	for _, l := range c.HTTP.Listeners {
		if c.Admin.Listen != "" && collide(c.Admin.Listen, l.Address) {
			o.errorf(o.at("admin"), "admin listens on %s, and so does the http gate on %s: change a port", quote(c.Admin.Listen), quote(l.Address))
		}
	}
	for _, p := range rules {
		if !p.ok {
			continue
		}
		if fault := c.checkScope(p.Rule); fault != "" {
			o.errorf(p.node, "%s", fault)
		}
		for _, fault := range c.HTTP.identified(p.Rule) {
			o.errorf(p.node, "%s", fault)
		}
	}
}

// loadKeys reads the key file; its faults carry its own name.
func (o *object) loadKeys(file string) *Keyring {
	if file == "" {
		return nil
	}
	ring, err := o.readKeys(beside(o.file, file))
	var faults Errors
	switch {
	case errors.As(err, &faults):
		o.errs = append(o.errs, faults...)
	case err != nil:
		o.errorf(o.inner("identities", "key", "file"), "read key file: %s", err)
	}
	return ring
}

// beside resolves path against the folder of the file that names it.
func beside(name, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(name), path)
}

// readFile reads at most most bytes of the file at path.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	if st, err := f.Stat(); err == nil && st.Size() <= most {
		b.Grow(int(st.Size()) + bytes.MinRead)
	}
	n, err := io.Copy(&b, io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, err
	case n > most:
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("more than %d MiB", most>>20)}
	case strings.HasSuffix(path, string(filepath.Separator)):
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("is a directory")}
	}
	return b.Bytes(), nil
}
