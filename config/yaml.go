package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// deepest is the most brackets or dashes that may be open at once. The grammar
// needs five; the parser is recursive, and Go cannot recover from a stack that
// has run out.
const deepest = 64

// document parses data as one YAML document and returns its root, nil for an
// empty one. JSON is read as the YAML that it is.
func (r *reader) document(data []byte) (root ast.Node, ok bool) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !r.checkText(data) {
		return nil, false
	}
	// The library counts the end of a comment twice where it is CR LF.
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	file, err := parseYAML(data)
	if err != nil {
		r.syntaxError(data, err)
		return nil, false
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if _, directive := doc.Body.(*ast.DirectiveNode); directive {
			continue
		}
		if root != nil {
			r.errorf(doc.Body, "second document: one file is one document, remove the `---`")
			return nil, false
		}
		root = doc.Body
	}
	return root, true
}

// parseYAML keeps what the library may do wrong on hostile input away from the
// process: deep nesting is refused before it recurses, a panic is an error.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			file, err = nil, fmt.Errorf("the yaml parser gives up: %v", p)
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if t := tooDeep(tokens); t != nil {
		return nil, &yaml.SyntaxError{Message: "nested too deeply", Token: t}
	}
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// tooDeep returns the token at which nesting passes deepest, nil for none.
// Nesting by indentation costs a line and a column a level, so only brackets,
// dashes on one line, and what this grammar has no use for go deep cheaply.
func tooDeep(tokens token.Tokens) *token.Token {
	brackets, dashes, unused, line := 0, 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets--
		case token.SequenceEntryType:
			dashes++
		case token.MappingKeyType, token.AnchorType, token.AliasType, token.TagType:
			unused++
		}
		if max(brackets, dashes, unused, t.Position.Column/16) > deepest {
			return t
		}
	}
	return nil
}

// checkText refuses bytes that are no text. They would be shown as something
// else than what they are.
func (r *reader) checkText(data []byte) bool {
	line, col := 1, 1
	for i := 0; i < len(data); {
		c, size := utf8.DecodeRune(data[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			r.add(line, col, "not UTF-8: save the file as UTF-8")
			return false
		case c < ' ' && c != '\n' && c != '\t' && !bytes.HasPrefix(data[i:], []byte("\r\n")), c == 0x7f, c == 0x85, c == 0x2028, c == 0x2029:
			r.add(line, col, fmt.Sprintf("control character %U: remove it", c))
			return false
		case c == '\n':
			line, col = line+1, 0
		}
		i, col = i+size, col+1
	}
	return true
}

// syntaxError reports that data is no YAML. What follows the first such error
// cannot be trusted, so it is the only one, but for tabs: these are all named.
func (r *reader) syntaxError(data []byte, err error) {
	if n := r.tabs(data); n > 0 {
		return
	}
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil || ye.GetToken().Position == nil {
		r.add(0, 0, fmt.Sprintf("not YAML: %v", err))
		return
	}
	at := ye.GetToken().Position
	r.add(at.Line, at.Column, "not YAML: "+syntaxHint(ye.GetMessage(), lineOf(data, at.Line)))
}

// tabs reports every line that is indented by tabs, and returns their number.
func (r *reader) tabs(data []byte) (n int) {
	for i, line := range bytes.Split(data, []byte("\n")) {
		indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
		tab := bytes.IndexByte(indent, '\t')
		if tab < 0 || len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		r.add(i+1, tab+1, "tab in the indentation: use spaces")
		n++
	}
	return n
}

// syntaxHint adds the cure to the library's words where users of this grammar
// are likely to need it. Some of its messages end in a piece of the file, which
// may be long, or a secret: that is left out.
func syntaxHint(msg, line string) string {
	msg, _, _ = strings.Cut(msg, ": \"")
	switch {
	case strings.Contains(line, "{") && strings.Contains(line, "path") && strings.Contains(msg, "must be specified"):
		return msg + "; quote a path that has braces: \"/u/{id}\""
	case strings.Contains(msg, "alias"):
		return msg + "; quote a word that starts with `*`: \"*.example.com\""
	case strings.Contains(msg, "reserved character"), strings.Contains(msg, "directive"):
		return msg + "; quote the word"
	case strings.Contains(msg, "mapping value is not allowed"):
		return msg + "; put a key on a line of its own, or quote a word that has `: ` in it"
	}
	return msg
}

// lineOf returns line n of data, counted from 1, without its end.
func lineOf(data []byte, n int) string {
	for range n - 1 {
		_, rest, ok := bytes.Cut(data, []byte("\n"))
		if !ok {
			return ""
		}
		data = rest
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return string(line)
}
