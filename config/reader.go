package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// reader walks one file's syntax tree and collects what is wrong with it.
type reader struct {
	file  string
	where string // what is being read, put before each message: `rule "login": `
	errs  Errors

	mentions     []mention
	certificates []Certificate // what was read so far

	// read opens the files that this one names: readFile, but in fuzzing.
	read func(path string, most int64) ([]byte, error)

	readKeys func(path string) (*Keyring, error) // ReadKeys, but in tests
}

// word is one scalar as text, and where it stands.
type word struct {
	text string
	node ast.Node
}

// object is one mapping, its keys checked against the level it is on.
type object struct {
	*reader
	level  *level
	node   ast.Node
	values map[string]ast.Node
	keys   map[string]ast.Node
	meant  map[string]bool // said wrongly, so that it is not missed as well
}

func (r *reader) add(line, col int, msg string) {
	r.errs = append(r.errs, Error{r.file, line, col, r.where + msg})
}

// errorf reports a fault at n; a nil n is the start of the file.
func (r *reader) errorf(n ast.Node, format string, args ...any) {
	line, col := 1, 1
	if p := position(n); p != nil {
		line, col = p.Line, p.Column
	}
	r.add(line, col, fmt.Sprintf(format, args...))
}

// position returns where n starts. A block mapping has no token of its own: it
// starts at its first key.
func position(n ast.Node) *token.Position {
	switch v := n.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if !v.IsFlowStyle && len(v.Values) > 0 {
			return position(v.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return position(v.Key)
	}
	if t := n.GetToken(); t != nil {
		return t.Position
	}
	return nil
}

// object reads a mapping, and reports keys that l does not have, that are
// there twice or that have no value.
func (r *reader) object(n ast.Node, l *level) *object {
	o := &object{
		reader: r, level: l, node: n,
		values: map[string]ast.Node{}, keys: map[string]ast.Node{}, meant: map[string]bool{},
	}
	var pairs []*ast.MappingValueNode
	switch v := n.(type) {
	case *ast.MappingNode:
		pairs = v.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{v}
	default:
		r.errorf(n, "%s is %s, not %s: write `key: value` pairs, such as `%s: ...`",
			l.title, "a mapping", kind(n), l.keys[0].name)
		return nil
	}
	for _, p := range pairs {
		o.pair(p)
	}
	return o
}

// pair files one key and its value.
func (o *object) pair(p *ast.MappingValueNode) {
	name, ok := o.keyName(p.Key)
	if !ok {
		return
	}
	if !o.level.has(name) {
		msg, meant := unknownKey(o.level, name)
		o.meant[meant], o.meant[name] = true, true
		o.errorf(p.Key, "%s", msg)
		return
	}
	if first, twice := o.keys[name]; twice {
		o.errorf(p.Key, "`%s` is there twice, first in line %d: remove one", name, position(first).Line)
		return
	}
	o.keys[name] = p.Key
	if _, null := p.Value.(*ast.NullNode); null || p.Value == nil {
		o.meant[name] = true
		o.errorf(p.Key, "`%s` has no value: give it one or remove the key", name)
		return
	}
	o.values[name] = p.Value
}

func (o *object) keyName(n ast.MapKeyNode) (string, bool) {
	switch v := n.(type) {
	case *ast.MergeKeyNode:
		o.errorf(v, "merge key `<<` is not read: write the keys out")
		return "", false
	case *ast.MappingKeyNode, *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		o.errorf(v, "a key is a plain word")
		return "", false
	}
	if t := n.GetToken(); t != nil {
		return t.Value, true
	}
	return "", false
}

func (o *object) has(key string) bool { return o.keys[key] != nil }

// at returns where to report a fault of key's value: the value, else the key,
// else the mapping.
func (o *object) at(key string) ast.Node {
	if n := o.values[key]; n != nil {
		return n
	}
	if n := o.keys[key]; n != nil {
		return n
	}
	return o.node
}

// need reports key as missing, with its use, unless something stands for it.
func (o *object) need(key, use string) bool {
	if o.values[key] != nil {
		return true
	}
	if o.meant[key] {
		return false
	}
	in := " in " + o.level.title
	if o.level == ruleLevel {
		in = "" // the message starts with the rule's name
	}
	o.errorf(o.node, "`%s` is missing%s: %s", key, in, use)
	return false
}

// word returns a scalar, the default of the grammar if the key is absent; ok
// is false if there is neither, or the value is no scalar.
func (o *object) word(key string) (w word, ok bool) {
	n := o.values[key]
	if n == nil {
		k, _ := o.level.find(key)
		return word{k.def, o.at(key)}, k.def != ""
	}
	return o.scalar(n, key)
}

// words returns one scalar or a list of them.
func (o *object) words(key string) []word {
	list, isList := o.values[key].(*ast.SequenceNode)
	if !isList {
		if w, ok := o.word(key); ok {
			return []word{w}
		}
		return nil
	}
	if len(list.Values) == 0 {
		o.errorf(list, "`%s` is an empty list: fill it or remove the key", key)
	}
	return o.scalars(list, key)
}

// list returns the scalars of a list, which may be empty.
func (o *object) list(key string) []word {
	n := o.values[key]
	if n == nil {
		return nil
	}
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		o.notList(n, key)
		return nil
	}
	return o.scalars(list, key)
}

func (o *object) scalars(list *ast.SequenceNode, key string) []word {
	words := make([]word, 0, len(list.Values))
	for _, v := range list.Values {
		if w, ok := o.scalar(v, key); ok {
			words = append(words, w)
		}
	}
	return words
}

// objects returns the mappings of a list.
func (o *object) objects(key string) []ast.Node {
	n := o.values[key]
	if n == nil {
		return nil
	}
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		o.notList(n, key)
		return nil
	}
	return list.Values
}

// child reads the mapping under key; nil if it is absent or none.
func (o *object) child(key string, l *level) *object {
	if n := o.values[key]; n != nil {
		return o.object(n, l)
	}
	return nil
}

// section reads the mapping under key, or makes an empty one, so that the
// defaults of its keys hold.
func (o *object) section(key string, l *level) *object {
	if c := o.child(key, l); c != nil {
		return c
	}
	return &object{reader: o.reader, level: l, node: o.at(key)}
}

// scalar returns a value's text as it is written, numbers too: 010 must not
// become 8 on its way here.
func (r *reader) scalar(n ast.Node, key string) (word, bool) {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
	case *ast.NullNode:
		r.errorf(n, "`%s` has an empty item: remove it", key)
		return word{}, false
	default:
		r.errorf(n, "`%s` takes a word, not %s", key, kind(n))
		return word{}, false
	}
	text := n.GetToken().Value
	switch {
	case text == "":
		r.errorf(n, "`%s` is empty: give it a value or remove the key", key)
	case strings.TrimSpace(text) != text:
		r.errorf(n, "%s has spaces around it: remove them", quote(text))
	case strings.ContainsAny(text, "\n\r\t"):
		r.errorf(n, "%s runs over several lines: write it on one", quote(text))
	default:
		return word{text, n}, true
	}
	return word{}, false
}

// kind names what n is, for messages.
func kind(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias (write the value out; quote a word that starts with * or &)"
	case *ast.TagNode:
		return "a tag (remove it; quote a word that starts with !)"
	case *ast.LiteralNode:
		return "a block of text"
	}
	return "a word"
}

// notList reports n where a list should be, and shows a lone word as one.
func (r *reader) notList(n ast.Node, key string) {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode:
		text := n.GetToken().Value
		if len(text) > 48 {
			text = "..."
		}
		r.errorf(n, "`%s` is a list: write [%s]", key, text)
	case *ast.MappingNode, *ast.MappingValueNode:
		r.errorf(n, "`%s` is a list: start each item with `- `", key)
	default:
		r.errorf(n, "`%s` is a list, not %s", key, kind(n))
	}
}
